import Foundation

/// Prometheus' program `promtool`.
package enum Promtool {
    /// - Returns: promtool's findings in a page of metrics; empty if there are none.
    package static func check(_ page: String) async throws -> String {
        let file = FileManager.default.temporaryDirectory.appending(path: "metrics-\(UUID().uuidString).txt")
        try page.write(to: file, atomically: true, encoding: .utf8)
        defer { try? FileManager.default.removeItem(at: file) }
        let tool = try ChildProcess("/bin/sh", ["-c", "promtool check metrics <\"$0\" 2>&1", file.path])
        let ending = try await tool.wait()
        return ending == .exited(0) ? tool.output : "\(ending): \(tool.output)"
    }
}
