import NIOCore

/// The callers of a client that wait until commands can be sent. Only on the event loop.
final class ReadinessWaiters {
    private final class Waiter {
        var timer: Scheduled<Void>?
        let resume: (RedisError?) -> Void

        init(_ resume: @escaping (RedisError?) -> Void) { self.resume = resume }
    }

    private var waiting: [Waiter] = []

    /// Adds a caller.
    /// - Parameters:
    ///   - expired: returns the reason why there is no connection after the timeout.
    ///   - resume: called once, with the error; `nil` if commands can be sent.
    func add(
        for timeout: TimeAmount, on eventLoop: any EventLoop, expired: @escaping () -> RedisError,
        resume: @escaping (RedisError?) -> Void
    ) {
        let waiter = Waiter(resume)
        waiter.timer = eventLoop.assumeIsolated().scheduleTask(in: timeout) { [self] in
            waiting.removeAll { $0 === waiter }
            resume(expired())
        }
        waiting.append(waiter)
    }

    /// Resumes all callers.
    func resume(with error: RedisError?) {
        let resumed = waiting
        waiting = []
        for waiter in resumed {
            waiter.timer?.cancel()
            waiter.resume(error)
        }
    }
}
