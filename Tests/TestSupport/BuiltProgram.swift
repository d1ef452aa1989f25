import Foundation

/// The programs of this package that were built with the tests.
package enum BuiltProgram {
    /// The path of a program.
    /// - Throws: ``ChildProcess/Failure`` if it is not beside the tests.
    package static func path(_ name: String) throws -> String {
        // Beside the tests' own binary or, if a helper runs them, beside the bundle that the helper was given.
        let neighbours = [Bundle.main.executablePath].compactMap { $0 } + CommandLine.arguments
        let candidates = neighbours.map { URL(filePath: $0).deletingLastPathComponent().appending(path: name).path }
        guard let path = candidates.first(where: FileManager.default.isExecutableFile(atPath:)) else {
            throw ChildProcess.Failure(description: "\(name) is not beside the tests; build it with them")
        }
        return path
    }
}
