import Synchronization

/// A server's script waits at the gate until a test opens it.
final class Gate: Sendable {
    private let state = Atomic(false)

    var isOpen: Bool { state.load(ordering: .acquiring) }

    func open() { state.store(true, ordering: .releasing) }
}

/// A counter that starts at 1. Any thread can use it.
final class Counter: Sendable {
    private let count = Atomic(0)

    func next() -> Int { count.add(1, ordering: .relaxed).newValue }

    var last: Int { count.load(ordering: .relaxed) }
}
