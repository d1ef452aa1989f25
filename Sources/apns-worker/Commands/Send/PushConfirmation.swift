import NIOCore
import PushJob
import Redis

/// The replicas that must confirm a push, and the time to wait for them.
struct PushConfirmation {
    /// The confirmation of a push that the master has executed.
    enum Outcome {
        /// No confirmation was requested.
        case unasked
        /// Enough replicas have the push. The value is their number.
        case confirmed(Int)
        /// Too few replicas have the push, or their number is unknown.
        case unconfirmed(String)

        /// Returns the end of a line such as `enqueued 1 job on default`.
        /// - Parameter what: `it` or `them`.
        func inWords(_ what: String) -> String {
            guard case .confirmed(let count) = self else { return "" }
            return count == 1 ? ", and 1 replica has \(what)" : ", and \(count) replicas have \(what)"
        }

        /// The reason why a requested confirmation is missing.
        var shortfall: String? { if case .unconfirmed(let why) = self { why } else { nil } }
    }

    /// The maximum number of repetitions of a push to a moving slot, 100 ms apart.
    private static let maximumMoves = 100

    var replicas: Int
    /// The time to wait, in milliseconds.
    var milliseconds: Int

    /// Pushes, and waits for replicas on the same connection.
    /// - Throws: `RedisError` if the push may not have been executed.
    func push(_ command: RedisCommand, _ client: RedisClient) async throws -> Outcome {
        let wait = RedisCommand("WAIT", "\(replicas)", "\(milliseconds)")
        var moves = 0
        while true {
            do {
                let (_, answer) = try await client.call(
                    command, then: wait, deadline: .milliseconds(Int64(milliseconds) + 30_000))
                return outcome(answer)
            } catch RedisError.server(let error)
                where ["MOVED", "ASK", "TRYAGAIN"].contains(error.prefix) && moves < Self.maximumMoves
            {
                moves += 1
                try await Task.sleep(for: .milliseconds(100))
                try await client.waitUntilReady(timeout: .seconds(10))
            }
        }
    }

    private func outcome(_ answer: Result<RESPReply, RedisError>) -> Outcome {
        switch answer {
        case .success(let reply):
            let count = reply.root.number ?? 0
            return count >= replicas
                ? .confirmed(count)
                : .unconfirmed("\(count) of \(replicas) replicas confirmed within \(DurationText.text(milliseconds))")
        case .failure(let error):
            return .unconfirmed("it is unknown whether replicas have it (\(error))")
        }
    }
}
