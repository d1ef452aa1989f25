import PrintableText
import PushQueue
import Redis

/// A Redis server that holds queues.
package struct ServerStatus: Encodable, Sendable {
    package var found: QueueServer
    /// The queues that it holds.
    package var queues: [String]

    /// Its report; `nil` if it refuses one.
    package var info: ServerInfo? { try? found.info.get() }

    private enum CodingKeys: String, CodingKey {
        case address, queues, version, role, usedMemoryBytes, maxMemoryBytes, evictionPolicy, appendOnly, replicas
        case replicasInStep, full, writesRefused, error
    }

    package func encode(to encoder: any Encoder) throws {
        var members = encoder.container(keyedBy: CodingKeys.self)
        try members.encode(found.address, forKey: .address)
        try members.encode(queues, forKey: .queues)
        try members.encode(found.isFull, forKey: .full)
        try members.encodeIfPresent(found.writeRefusal?.message.printable, forKey: .writesRefused)
        if case .failure(let answer) = found.info { try members.encode(answer.message.printable, forKey: .error) }
        try members.encodeIfPresent(info?.version, forKey: .version)
        try members.encodeIfPresent(info?.role.map { "\($0)" }, forKey: .role)
        try members.encodeIfPresent(info?.usedMemory, forKey: .usedMemoryBytes)
        try members.encodeIfPresent(info?.memoryLimit, forKey: .maxMemoryBytes)
        try members.encodeIfPresent(info?.evictionPolicy, forKey: .evictionPolicy)
        try members.encodeIfPresent(info?.keepsAppendOnlyFile, forKey: .appendOnly)
        try members.encodeIfPresent(info?.replicas, forKey: .replicas)
        try members.encodeIfPresent(info?.replicasInStep, forKey: .replicasInStep)
    }

    /// Reads each server that has queues, once.
    /// - Throws: `RedisError`.
    static func read(_ queues: [QueueKeys], _ fleet: Fleet) async throws -> [ServerStatus] {
        var servers: [ServerStatus] = []
        for keys in queues {
            let client = try await fleet.client(for: keys.retry)
            let address = try await client.eventLoop.submit { client.server?.address }.get()
            if let known = servers.firstIndex(where: { $0.found.address == address }) {
                servers[known].queues.append(keys.queue)
            } else {
                servers.append(ServerStatus(found: try await QueueServer.read(client, keys), queues: [keys.queue]))
            }
        }
        return servers
    }
}
