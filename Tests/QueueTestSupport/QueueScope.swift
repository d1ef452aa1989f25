import PushQueue
import Testing

/// Provides each test of a suite with its own queue.
package struct QueueScope: SuiteTrait, TestTrait, TestScoping {
    private struct Current: @unchecked Sendable { let queue: TestQueue }

    @TaskLocal private static var current: Current?

    package static var queue: TestQueue {
        guard let current else { preconditionFailure("the suite lacks the trait `.queue`") }
        return current.queue
    }

    package let isRecursive = true

    package func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        try await withQueue { queue in
            try await Self.$current.withValue(Current(queue: queue)) { try await function() }
        }
    }
}

extension Trait where Self == QueueScope { package static var queue: Self { Self() } }

extension QueueLimits {
    /// Creates the default limits with changes.
    package init(_ change: (inout QueueLimits) -> Void) {
        self.init()
        change(&self)
    }
}
