import NIOCore
import Redis

/// Reports of invalid tokens, compared with later registrations of their devices.
extension InvalidTokenSet {
    /// The result of marking a token as invalid.
    public enum Marking: Int, Sendable {
        /// It was added.
        case added = 1
        /// It was in the set already.
        case known = 0
        /// It was not added, because its device has registered since.
        case registeredSince = -1
    }

    /// A device's registration.
    public struct Registration: Sendable, Equatable {
        /// Its token, in lower-case hex.
        public var token: ByteBuffer
        /// The time of the registration, in milliseconds since 1970.
        public var at: Int64

        /// Makes a registration; see the properties for formats and units.
        public init(token: ByteBuffer, at: Int64) {
            self.token = token
            self.at = at
        }
    }

    /// Adds tokens with their details, except tokens whose devices have registered since. Newer details are kept. Works
    /// on a Redis whose memory is full. Without tokens it only checks the keys.
    /// - Parameters:
    ///   - marked: at most a few thousand tokens.
    ///   - completion: gets the result for each token, in their order. After a failure, all can be marked again; those
    ///     that were added before it are then ``Marking/known``.
    public func mark(
        _ marked: [InvalidToken], completion: @escaping (Result<[Marking], QueueConnection.Failure>) -> Void
    ) {
        scripts.run(
            .addInvalidTokens,
            [
                keys.invalidTokens, keys.registrations, keys.invalidTokenDetails, keys.invalidTokenFacts,
                keys.invalidTokenChanges,
            ],
            expecting: marked.count * 3,
            arguments: { [maximumAge] command in
                command.append(maximumAge)
                for token in marked {
                    command.append(token.token)
                    command.append(Int(token.at))
                    command.append(token.facts)
                }
            },
            completion: completion
        ) { reply in
            if reply.count != marked.count { reply.refuse() }
            return marked.map { _ in reply.value(else: .known) }
        }
    }

    /// Removes tokens from the set because their devices have registered again, and records the registrations. Works on
    /// a Redis whose memory is full.
    public func register(
        _ registered: [Registration], completion: @escaping (Result<Void, QueueConnection.Failure>) -> Void
    ) {
        remove(registered.map { ($0.token, $0.at) }) { completion($0.map { _ in }) }
    }

    /// Removes tokens that should not be in the set. Works on a Redis whose memory is full.
    /// - Parameter completion: gets the number of tokens that were in the set.
    package func withdraw(
        _ withdrawn: [ByteBuffer], completion: @escaping (Result<Int, QueueConnection.Failure>) -> Void
    ) {
        remove(withdrawn.map { ($0, nil) }, completion: completion)
    }

    private func remove(
        _ removed: [(token: ByteBuffer, registeredAt: Int64?)],
        completion: @escaping (Result<Int, QueueConnection.Failure>) -> Void
    ) {
        guard !removed.isEmpty else { return completion(.success(0)) }
        scripts.run(
            .removeInvalidTokens,
            [keys.invalidTokens, keys.registrations, keys.invalidTokenDetails, keys.invalidTokenChanges],
            expecting: removed.count * 2,
            arguments: { [maximumAge] command in
                command.append(maximumAge)
                for (token, registeredAt) in removed {
                    command.append(token)
                    if let registeredAt { command.append(Int(registeredAt)) } else { command.append("") }
                }
            },
            completion: completion, reading: { $0.number() })
    }
}
