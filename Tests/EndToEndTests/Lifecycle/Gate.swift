import Synchronization

/// A gate at which a server's script waits until a test opens it.
final class Gate: Sendable {
    private let state = Atomic(false)

    var isOpen: Bool { state.load(ordering: .acquiring) }

    func open() { state.store(true, ordering: .releasing) }
}

/// A counter from 1. Safe to use from any thread.
final class Counter: Sendable {
    private let count = Atomic(0)

    func next() -> Int { count.add(1, ordering: .relaxed).newValue }

    /// The last number; 0 at first.
    var last: Int { count.load(ordering: .relaxed) }
}
