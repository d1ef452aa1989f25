import Sockets
import Synchronization
import TestSupport
import Testing

@Suite("A value that belongs to an event loop")
struct LoopBoundTests {
    /// The state of a value. It counts how often reflection reads it.
    private final class State: CustomReflectable {
        let reads = Mutex(0)

        var customMirror: Mirror {
            reads.withLock { $0 += 1 }
            return Mirror(self, children: [])
        }
    }

    private final class Bound: LoopBound, @unchecked Sendable {
        var state = State()
    }

    private final class Other {
        var state = State()
    }

    private struct Holder<Value> {
        let name = "holder"
        let value: Value?
    }

    @Test("shows nothing of its state, and neither does a value that holds it")
    func bound() throws {
        let bound = Bound()
        for value in [bound, [Holder(value: bound)], ["key": bound]] as [Any] {
            for text in try shownTexts(of: value) {
                #expect(text.contains("Bound") && !text.contains("state"), "\(text)")
            }
        }
        #expect(bound.state.reads.withLock { $0 } == 0)
    }

    @Test("may be printed by a test, unlike an object that would show its state")
    func other() {
        let other = Other()
        for value in [other, [Holder(value: other)], ["key": other]] as [Any] {
            let error = #expect(throws: ChildProcess.Failure.self) { try shownTexts(of: value) }
            #expect(error?.description == "Other would show its state")
        }
        #expect(other.state.reads.withLock { $0 } == 0)
    }
}
