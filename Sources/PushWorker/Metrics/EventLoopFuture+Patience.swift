import NIOConcurrencyHelpers
import NIOCore

extension EventLoopFuture where Value: Sendable {
    /// Waits for the value, but not for ever: an event loop that is stuck never gives one.
    /// - Returns: `nil` where it failed, or did not come in time.
    func get(until deadline: ContinuousClock.Instant) async -> Value? {
        await withCheckedContinuation { continuation in
            let waiting = NIOLockedValueBox<CheckedContinuation<Value?, Never>?>(continuation)
            let resume: @Sendable (Value?) -> Void = { value in
                let first = waiting.withLockedValue { waiting in
                    defer { waiting = nil }
                    return waiting
                }
                first?.resume(returning: value)
            }
            let timer = Task {
                // Cancelled when the value has come.
                guard (try? await Task.sleep(until: deadline)) != nil else { return }
                resume(nil)
            }
            whenComplete { result in
                timer.cancel()
                resume(try? result.get())
            }
        }
    }
}
