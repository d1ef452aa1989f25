import TestSupport

/// An external client that has run to its end.
struct Command {
    let status: Int32
    let output: String
    let errors: String

    /// - Parameter timeout: seconds after which the process is killed, so that a test fails rather than hangs.
    static func run(_ path: String, _ arguments: [String], timeout: Double = 60) async throws -> Command {
        let process = try ChildProcess(path, arguments)
        guard case .exited(let status) = try await process.wait(within: .seconds(timeout)) else {
            throw process.failure("was ended by a signal")
        }
        return Command(status: status, output: process.output, errors: process.errors)
    }
}
