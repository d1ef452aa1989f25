import Foundation

/// A folder of a test. It is removed with this object.
package final class TemporaryFolder: Sendable {
    package let url = FileManager.default.temporaryDirectory.appending(path: "apns-worker-tests-\(UUID().uuidString)")
    package var file: String { path("worker.yaml") }

    package init(_ yaml: String? = nil) throws {
        try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
        if let yaml { try write(yaml) }
    }

    deinit { try? FileManager.default.removeItem(at: url) }

    package func path(_ name: String) -> String { url.appending(path: name).path }

    /// Writes another file and renames it, as editors and Kubernetes do.
    @discardableResult
    package func write(_ text: String, as name: String = "worker.yaml") throws -> String {
        try Data(text.utf8).write(to: url.appending(path: name), options: .atomic)
        return path(name)
    }
}

/// Runs a body with a directory, and removes it afterwards.
package func withTemporaryDirectory<Result>(_ body: (URL) throws -> Result) throws -> Result {
    let folder = try TemporaryFolder()
    return try withExtendedLifetime(folder) { try body(folder.url) }
}

/// Runs a body, and then a clean-up, even if the body throws.
package func running<Result>(
    _ body: () async throws -> Result, thenAlways cleanUp: () async throws -> Void
) async throws -> Result {
    let result: Result
    do {
        result = try await body()
    } catch {
        try await cleanUp()
        throw error
    }
    try await cleanUp()
    return result
}
