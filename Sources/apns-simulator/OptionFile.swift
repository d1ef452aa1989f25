import ArgumentParser
import FoundationEssentials
import Sockets

enum StandardError {
    static func write(_ line: String) { DescriptorOutput.note(line + "\n") }
}

enum OptionFile {
    static func read(_ path: String, for option: String) throws -> Data {
        do {
            return try Data(contentsOf: URL(filePath: path))
        } catch {
            throw ValidationError("\(option): cannot read '\(path)'; check the path and its permissions")
        }
    }
}
