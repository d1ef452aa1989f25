/// A value whose state belongs to an event loop, although any thread may hold the value.
///
/// Reflection shows nothing of its state. `dump`, `Mirror` and each failed expectation of a test use reflection. Reflection follows
/// references and reads state on the calling thread, so it could crash while the event loop changes that state.
public protocol LoopBound: Sendable, CustomReflectable {}

extension LoopBound {
    public var customMirror: Mirror { Mirror(self, children: []) }
}
