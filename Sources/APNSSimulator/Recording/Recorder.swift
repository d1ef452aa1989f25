import Synchronization

/// Keeps the last notifications that a simulator received, and lets callers wait for the next one.
///
/// Several event loops can record at the same time.
package final class Recorder: Sendable {
    package static let defaultLimit = 10_000

    private struct State {
        var ring: NotificationRing
        /// A follower waits in ``Recorder/notifications(_:wait:)`` without a time limit.
        var waiters: [UInt64: (continuation: CheckedContinuation<Void, Never>, isFollower: Bool)] = [:]
        var nextWaiter: UInt64 = 0
        var waitsEnded = false
    }

    private let state: Mutex<State>
    private let file: RecordFile?

    /// - Parameters:
    ///   - limit: the maximum number of notifications in memory, at least 1. The newest replaces the oldest.
    ///   - file: a file to append each notification to as well.
    package init(limit: Int = Recorder.defaultLimit, file: RecordFile? = nil) {
        state = Mutex(State(ring: NotificationRing(limit: limit)))
        self.file = file
    }

    /// Call this before the answer is sent, so that a client that has received the answer finds the notification here.
    package func record(_ notification: ReceivedNotification) {
        if let file {
            file.append { notification.json(sequence: keep(notification)) }
        } else {
            _ = keep(notification)
        }
    }

    private func keep(_ notification: ReceivedNotification) -> UInt64 {
        let (sequence, waiters) = state.withLock { state in
            let sequence = state.ring.append(notification)
            let waiters = state.waiters
            if !waiters.isEmpty { state.waiters = [:] }
            return (sequence, waiters)
        }
        for waiter in waiters.values { waiter.continuation.resume() }
        return sequence
    }

    /// The number of notifications ever recorded.
    package var count: UInt64 { state.withLock { $0.ring.newest } }

    /// The number of requests that wait for the next notification.
    var waiting: Int { state.withLock { $0.waiters.values.count { !$0.isFollower } } }

    var extent: (kept: Int, newest: UInt64) { state.withLock { ($0.ring.count, $0.ring.newest) } }

    func entry(_ sequence: UInt64) -> NotificationPage.Entry? {
        guard sequence < .max else { return nil }
        let found = state.withLock { $0.ring.newest(before: sequence + 1, atMost: 1) }.first
        return found?.sequence == sequence ? found : nil
    }

    /// Calls the body with the kept entries before a number, newest first, until it returns false.
    ///
    /// The lock is held only for short times, so that recording is not blocked.
    func forEach(before sequence: UInt64 = .max, _ body: (NotificationPage.Entry) -> Bool) {
        var sequence = sequence
        while true {
            let part = state.withLock { $0.ring.newest(before: sequence, atMost: 256) }
            guard let oldest = part.last else { return }
            for entry in part where !body(entry) { return }
            sequence = oldest.sequence
        }
    }

    /// - Returns: the number of deleted notifications.
    @discardableResult
    package func clear() -> Int {
        state.withLock { state in
            defer { state.ring.clear() }
            return state.ring.count
        }
    }

    /// - Returns: false if no notification with this number is kept.
    func remove(_ sequence: UInt64) -> Bool { state.withLock { $0.ring.remove(sequence) } }

    var limit: Int { state.withLock { $0.ring.limit } }

    /// Returns the selected notifications that are kept.
    package func notifications(_ filter: NotificationFilter = NotificationFilter()) -> NotificationPage {
        state.withLock { $0.ring.page(filter) }
    }

    /// Returns the selected notifications. Waits for the first if there is none yet.
    /// - Parameter wait: the maximum time to wait; nil for no limit, which does not count as ``waiting``. The wait ends early, without
    ///   notifications, when the simulator stops or the task is cancelled.
    package func notifications(_ filter: NotificationFilter, wait: Duration?) async -> NotificationPage {
        let deadline = wait.map { ContinuousClock.now + $0 }
        var filter = filter
        while true {
            let (page, waitsEnded) = state.withLock { ($0.ring.page(filter), $0.waitsEnded) }
            let isOver = waitsEnded || Task.isCancelled || deadline.map { ContinuousClock.now >= $0 } ?? false
            if !page.entries.isEmpty || isOver { return page }
            await change(after: page.last, until: deadline)
            // The next search can skip the entries that did not match, unless it must still count overwritten entries.
            if page.overwritten == 0 { filter.after = max(filter.after, page.last) }
        }
    }

    /// Resumes all waiting callers, and makes later calls return at once.
    package func endWaits() {
        let waiters = state.withLock { state in
            state.waitsEnded = true
            defer { state.waiters = [:] }
            return state.waiters
        }
        for waiter in waiters.values { waiter.continuation.resume() }
    }

    /// Closes the file. Later notifications are kept in memory only.
    func closeFile() { file?.close() }

    private func change(after sequence: UInt64, until deadline: ContinuousClock.Instant?) async {
        guard let deadline else { return await change(after: sequence, isFollower: true) }
        await withTaskGroup(of: Void.self) { group in
            group.addTask { await self.change(after: sequence, isFollower: false) }
            group.addTask {
                // Throws only if cancelled, because the other task has ended first.
                try? await Task.sleep(until: deadline, clock: .continuous)
            }
            await group.next()
            group.cancelAll()
        }
    }

    private func change(after sequence: UInt64, isFollower: Bool) async {
        let number = state.withLock { state in
            state.nextWaiter += 1
            return state.nextWaiter
        }
        await withTaskCancellationHandler {
            await withCheckedContinuation { continuation in
                let waits = state.withLock { state in
                    // A cancellation before this point found no waiter to resume.
                    guard state.ring.newest <= sequence, !state.waitsEnded, !Task.isCancelled else { return false }
                    state.waiters[number] = (continuation, isFollower)
                    return true
                }
                if !waits { continuation.resume() }
            }
        } onCancel: {
            state.withLock { $0.waiters.removeValue(forKey: number) }?.continuation.resume()
        }
    }
}
