/// A value whose state belongs to an event loop, although any thread may hold the value.
///
/// It shows nothing of its state. Reflection reads state on the calling thread, without synchronization, and follows
/// references, so it could crash while the event loop changes that state. `dump` and `Mirror` use reflection, and so
/// does each failed expectation of a test.
public protocol LoopBound: Sendable, CustomReflectable {}

extension LoopBound {
    public var customMirror: Mirror { Mirror(self, children: []) }
}
