import NIOCore
import PushJob
import Redis
import Synchronization

/// The time for which a command waits for Redis.
struct RedisPatience: Sendable {
    static let standard = 10_000
    /// The time after which an unsuccessful attempt to connect is reported, in milliseconds.
    private static let silence = 500
    private static let hasReported = Atomic(false)

    /// The time in milliseconds.
    var milliseconds = standard

    /// Waits for a client. Reports the problem of the first attempt on standard error, once per process.
    /// - Parameter ready: waits for at most the given time.
    func wait(until ready: (TimeAmount) async throws -> Void) async throws {
        let first = min(Self.silence, milliseconds)
        do {
            return try await ready(.milliseconds(Int64(first)))
        } catch let error as RedisError {
            if case .authentication = error { throw error }
            guard first < milliseconds else { throw error }
            if !Self.hasReported.exchange(true, ordering: .relaxed) {
                Terminal.note("waiting up to \(DurationText.text(milliseconds)) for Redis: \(error)\n")
            }
        }
        try await ready(.milliseconds(Int64(milliseconds - first)))
    }
}
