import NIOCore
import PushQueue

/// Writes records into Redis, and waits for it while it is away.
struct RetryingTokenWriter: Sendable {
    /// How long Redis is waited for once the process is to end.
    private static let patienceAtStop = TimeAmount.seconds(5)

    private let writer: InvalidTokenClient
    private let stop: StopSignal
    private let limit: TimeAmount
    /// Whose records they are, for messages.
    private let name: String
    private var patience: WritePatience
    private var toldOfRedis = false
    /// Why Redis was given up; `nil` while it was not, or when it has taken something since.
    private(set) var givenUp: String?

    /// - Parameter limit: for how long Redis is waited for.
    init(_ writer: InvalidTokenClient, limit: TimeAmount, stop: StopSignal, name: String) {
        self.writer = writer
        self.limit = limit
        self.stop = stop
        self.name = name
        patience = WritePatience(limit: limit)
    }

    /// Waits until Redis is there and takes what will be written.
    /// - Throws: `QueueConnection.Failure`: at once what will not pass by itself, or when the process is to end.
    mutating func waitUntilReady() async throws {
        while true {
            do {
                // The keys are what they should be, and Redis accepts writes.
                _ = try await writer.mark([])
                try await writer.probe()
                return answered()
            } catch {
                guard error.mayPass, !stop.isStopped, await wait(after: error, waiting: 0) else { throw error }
            }
        }
    }

    /// - Returns: `nil` when Redis did not take them in all the time that there was; from then on each is tried once.
    mutating func write(_ records: [InvalidToken]) async -> [InvalidTokenSet.Marking]? {
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
        if toldOfRedis { Terminal.tell("\(name): Redis is back\n") }
        (toldOfRedis, givenUp) = (false, nil)
        patience.succeeded()
    }

    /// - Returns: whether it is to be tried again.
    private mutating func wait(after failure: QueueConnection.Failure, waiting count: Int) async -> Bool {
        if stop.isStopped { patience.shorten(to: Self.patienceAtStop, now: .now()) }
        guard case .again(let pause) = patience.failed(now: .now(), random: Double.random(in: 0..<1)) else {
            return false
        }
        // A connection that is just being made is nothing to tell of.
        if !toldOfRedis, patience.hasLasted(.seconds(1), now: .now()) {
            toldOfRedis = true
            let waiting = count > 0 ? "; \(count) records that have been read wait for it" : ""
            Terminal.tell(
                "\(name): waiting for Redis, at most \(limit.nanoseconds / 1_000_000_000) s: \(failure)\(waiting)\n"
            )
        }
        do {
            try await Task.sleep(for: .nanoseconds(pause.nanoseconds))
        } catch {
            // Cancelled; the patience bounds it all the same.
        }
        return true
    }
}
