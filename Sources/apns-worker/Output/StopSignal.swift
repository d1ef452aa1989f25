import Synchronization

/// A signal that the process should end.
final class StopSignal: Sendable {
    private struct State {
        var isStopped = false
        var handlers: [Int: @Sendable () -> Void] = [:]
        var next = 0
    }

    private let state = Mutex(State())

    var isStopped: Bool { state.withLock { $0.isStopped } }

    func stop() {
        let handlers = state.withLock { state in
            state.isStopped = true
            defer { state.handlers = [:] }
            return state.handlers.values.map { $0 }
        }
        for handler in handlers { handler() }
    }

    /// Calls a handler on the signal, or at once if it was already given, while `body` runs.
    func withHandler<Result>(
        _ handler: @escaping @Sendable () -> Void, _ body: () async throws -> Result
    ) async rethrows -> Result {
        let number: Int? = state.withLock { state in
            guard !state.isStopped else { return nil }
            state.next += 1
            state.handlers[state.next] = handler
            return state.next
        }
        guard let number else {
            handler()
            return try await body()
        }
        defer { state.withLock { state in state.handlers[number] = nil } }
        return try await body()
    }
}
