import Foundation

/// Runs a body with a temporary directory, and removes the directory afterwards.
package func withTemporaryDirectory<Result>(_ body: (URL) throws -> Result) throws -> Result {
    let directory = FileManager.default.temporaryDirectory.appending(path: "apns-worker-tests-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: directory) }
    return try body(directory)
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
