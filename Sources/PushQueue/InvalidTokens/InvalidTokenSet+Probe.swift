import Redis

extension InvalidTokenSet {
    /// Tests whether Redis accepts writes now, by a key beside the set that expires at once.
    ///
    /// Redis refuses it while its memory is full, on a replica, while it cannot save (`MISCONF`), and with too few replicas
    /// (`NOREPLICAS`).
    public func probe(completion: @escaping (Result<Void, QueueConnection.Failure>) -> Void) {
        // In the slot of the set.
        client.send(RedisCommand("SET", keys.registrations + ":probe", "", "PX", "1")) { result in
            completion(result.mapError(QueueConnection.Failure.redis).map { _ in })
        }
    }
}
