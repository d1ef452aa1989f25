import NIOCore
import Operations
import PushQueue

/// Writes records to Redis, and waits while it is unavailable.
struct RetryingTokenWriter: Sendable {
    /// The time for which to wait for Redis once the process has received a signal to end.
    private static let patienceAtStop = TimeAmount.seconds(5)

    private let writer: InvalidTokenClient
    private let stop: StopSignal
    private let limit: TimeAmount
    /// The origin of the records, for messages.
    private let name: String
    private var patience: WritePatience
    private var hasReportedRedis = false
    /// The reason for which waiting for Redis was abandoned; `nil` if it was not, or if Redis has answered since.
    private(set) var givenUp: String?

    /// - Parameter limit: the time for which to wait for Redis.
    init(_ writer: InvalidTokenClient, limit: TimeAmount, stop: StopSignal, name: String) {
        self.writer = writer
        self.limit = limit
        self.stop = stop
        self.name = name
        patience = WritePatience(limit: limit)
    }

    /// Waits until Redis is reachable and accepts writes.
    /// - Throws: `QueueFailure`: permanent ones at once, others when the process must end.
    mutating func waitUntilReady() async throws {
        while true {
            do {
                // The keys have the right types, and Redis accepts writes.
                _ = try await writer.mark([])
                try await writer.probe()
                return answered()
            } catch {
                guard error.mayPass, !stop.isStopped, await wait(after: error, waiting: 0) else { throw error }
            }
        }
    }

    /// - Returns: `nil` if Redis did not accept the records within the time limit; from then on each batch is tried
    ///   once.
    mutating func write(_ records: [InvalidToken]) async -> [InvalidToken.Marking]? {
        while true {
            do {
                let markings = try await writer.mark(records)
                answered()
                return markings
            } catch {
                guard givenUp == nil, await wait(after: error, waiting: records.count) else {
                    givenUp = "\(error)"
                    return nil
                }
            }
        }
    }

    private mutating func answered() {
        if hasReportedRedis { Terminal.note("\(name): connected to Redis again\n") }
        (hasReportedRedis, givenUp) = (false, nil)
        patience.succeeded()
    }

    /// - Returns: true to try again.
    private mutating func wait(after failure: QueueFailure, waiting count: Int) async -> Bool {
        if stop.isStopped { patience.shorten(to: Self.patienceAtStop, now: .now()) }
        guard case .again(let pause) = patience.failed(now: .now(), random: Double.random(in: 0..<1)) else {
            return false
        }
        // A connection attempt in its first second is not worth a message.
        if !hasReportedRedis, patience.hasLasted(.seconds(1), now: .now()) {
            hasReportedRedis = true
            let waiting = count > 0 ? "; \(count) records that have been read wait for it" : ""
            Terminal.note(
                "\(name): waiting for Redis, at most \(limit.nanoseconds / 1_000_000_000) s: \(failure)\(waiting)\n"
            )
        }
        do {
            try await Task.sleep(for: .nanoseconds(pause.nanoseconds))
        } catch {
            // Cancelled; `patience` still limits the wait.
        }
        return true
    }
}
