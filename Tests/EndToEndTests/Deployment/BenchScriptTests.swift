import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("scripts/bench")
    struct BenchScriptTests {
        @Test("the comparison of two commits, the counters and the report are right for fixed measurements")
        func python() async throws {
            let tests = Repository.root.appending(path: "Tests/BenchScript")
            let python = try ChildProcess(
                "/usr/bin/python3", ["-B", "-m", "unittest", "discover", "--start-directory", tests.path])
            guard try await python.wait() == .exited(0) else { throw python.failure("failed") }
            #expect(python.errors.contains(/Ran [1-9][0-9]* tests/))
        }
    }
}
