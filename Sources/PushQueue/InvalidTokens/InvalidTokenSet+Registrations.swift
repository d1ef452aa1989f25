import NIOCore
import Redis

/// What a feedback service says, against what is known of devices that have registered since.
extension InvalidTokenSet {
    /// What became of a token that was said to be invalid.
    public enum Marking: Int, Sendable {
        /// It is in the set now.
        case added = 1
        /// It was in the set already.
        case known = 0
        /// Its device is known to have registered since; it was left out.
        case registeredSince = -1
    }

    /// That a device has registered.
    public struct Registration: Sendable, Equatable {
        /// Its token, in lower-case hex.
        public var token: ByteBuffer
        /// When, in milliseconds since 1970.
        public var at: Int64

        /// Takes both as they are.
        public init(token: ByteBuffer, at: Int64) {
            self.token = token
            self.at = at
        }
    }

    /// Adds tokens whose devices are not known to have registered since, and what is known about each, where nothing newer is.
    ///
    /// In a Cluster the set is written first and the details then; elsewhere both at once. Without tokens it finds out whether they
    /// could be written.
    /// - Parameters:
    ///   - marked: not more than some thousands.
    ///   - completion: gets what became of each, in their order. After a failure all may be added again; those that were added
    ///     before it are ``Marking/known`` then.
    public func mark(
        _ marked: [InvalidToken], completion: @escaping (Result<[Marking], QueueConnection.Failure>) -> Void
    ) {
        func arguments(_ tokens: [InvalidToken]) -> (inout RedisCommand) -> Void {
            { command in
                for token in tokens {
                    command.append(token.token)
                    command.append(Int(token.at))
                    command.append(token.details)
                }
            }
        }
        var keyNames = [keys.invalidTokens, keys.registrations]
        if isWithOneServer { keyNames.append(keys.invalidTokenDetails) }
        scripts.run(
            .mark, keyNames, expecting: marked.count * 3, arguments: arguments(marked),
            completion: { result in
                let markings = result.flatMap { reply -> Result<[Marking], QueueConnection.Failure> in
                    let markings = reply.root.children.compactMap { $0.integer.flatMap(Marking.init) }
                    guard reply.root.count == marked.count, markings.count == marked.count else {
                        return .failure(.unexpectedReply(.mark))
                    }
                    return .success(markings)
                }
                guard case .success(let outcomes) = markings, !isWithOneServer else { return completion(markings) }
                let described = zip(marked, outcomes).filter { $1 != .registeredSince }.map(\.0)
                detailScripts.run(
                    .describe, [keys.invalidTokenDetails], expecting: described.count * 3,
                    arguments: arguments(described),
                    completion: { result in completion(result.map { _ in outcomes }) })
            })
    }

    /// Takes tokens out of the set because their devices have registered again, and remembers that.
    /// - Parameter completion: called when Redis has done so, or not.
    public func register(
        _ registered: [Registration], completion: @escaping (Result<Void, QueueConnection.Failure>) -> Void
    ) {
        guard !registered.isEmpty else { return completion(.success(())) }
        var (open, failure) = (2, QueueConnection.Failure?.none)
        func answered(_ result: Result<RESPReply, QueueConnection.Failure>) {
            if case .failure(let error) = result { failure = failure ?? error }
            open -= 1
            if open == 0 { completion(failure.map(Result.failure) ?? .success(())) }
        }
        scripts.run(
            .register, [keys.invalidTokens, keys.registrations], expecting: registered.count * 2,
            arguments: { command in
                for registration in registered {
                    command.append(registration.token)
                    command.append(Int(registration.at))
                }
            }, completion: answered)
        var forget = RedisCommand("HDEL", expecting: registered.count + 1, bytes: registered.count * 64)
        forget.append(keys.invalidTokenDetails)
        for registration in registered { forget.append(registration.token) }
        details.send(forget) { answered($0.mapError(QueueConnection.Failure.redis)) }
    }
}
