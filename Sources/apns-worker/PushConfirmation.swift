import NIOCore
import Redis

/// Replicas that must have a push before it counts.
struct PushConfirmation {
    /// What is known of a push that the master has executed.
    enum Outcome {
        /// No replica was asked for.
        case unasked
        /// So many replicas have it, and no more were wanted.
        case confirmed(Int)
        /// Too few have it, or it is not known whether any has.
        case unconfirmed(String)

        /// For a line that says what was enqueued.
        /// - Parameter what: `it` or `them`.
        func inWords(_ what: String) -> String {
            guard case .confirmed(let count) = self else { return "" }
            return count == 1 ? ", and 1 replica has \(what)" : ", and \(count) replicas have \(what)"
        }

        /// Why it is not confirmed, if it should be.
        var shortfall: String? { if case .unconfirmed(let why) = self { why } else { nil } }
    }

    /// For how long a slot that moves is followed, in steps of 100 ms.
    private static let maximumMoves = 100

    var replicas: Int
    /// How long to wait for them.
    var seconds: Int64

    /// Pushes, and asks on the same connection how many replicas have it.
    /// - Throws: `RedisError` where the push may not have been executed.
    func push(_ command: RedisCommand, _ client: RedisClient) async throws -> Outcome {
        let wait = RedisCommand("WAIT", "\(replicas)", "\(seconds * 1000)")
        var moves = 0
        while true {
            do {
                let (_, answer) = try await client.call(command, then: wait, deadline: .seconds(seconds + 30))
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
            let count = reply.root.integer ?? 0
            return count >= replicas
                ? .confirmed(count) : .unconfirmed("\(count) of \(replicas) replicas confirmed within \(seconds) s")
        case .failure(let error):
            return .unconfirmed("it is not known whether replicas have it (\(error))")
        }
    }
}
