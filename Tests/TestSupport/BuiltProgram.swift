import Foundation

/// The programs of this package that were built with the tests.
package enum BuiltProgram {
    /// - Throws: ``ChildProcess/Failure`` if the program is not beside the tests.
    package static func path(_ name: String) throws -> String {
        // The programs are in the folder of the tests' binary. If a helper runs the tests, its arguments name the bundle in that folder.
        let neighbours = [Bundle.main.executablePath].compactMap { $0 } + CommandLine.arguments
        let candidates = neighbours.map { URL(filePath: $0).deletingLastPathComponent().appending(path: name).path }
        guard let path = candidates.first(where: FileManager.default.isExecutableFile(atPath:)) else {
            throw ChildProcess.Failure(description: "\(name) is not beside the tests; build it with them")
        }
        return path
    }
}
