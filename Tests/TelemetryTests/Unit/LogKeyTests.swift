import Foundation
import Telemetry
import Testing

@Suite("The names of a log's metadata")
struct LogKeyTests {
    /// Returns the keys in source code: in a metadata literal, or after `metadataKey:`.
    private static func keys(in text: String) -> Set<String> {
        var keys: Set<String> = []
        for match in text.matches(of: #/"([A-Za-z][A-Za-z_-]*)": "\\\(/#) { keys.insert(String(match.1)) }
        for match in text.matches(of: #/metadata(?:Key: |\[)"([^"\\]+)"\]/#) { keys.insert(String(match.1)) }
        return keys
    }

    @Test(
        "are all in the table, in all modules",
        arguments: ["APNS", "Dashboard", "PushWorker", "Redis", "apns-worker"])
    func table(module: String) throws {
        let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../../Sources/\(module)")
        let files = try #require(FileManager.default.enumerator(at: root, includingPropertiesForKeys: nil))
        let known = Set(LogKey.allCases.map(\.rawValue))
        var seen = 0
        for case let file as URL in files where file.pathExtension == "swift" {
            let text = try String(contentsOf: file, encoding: .utf8)
            guard text.contains("Logger") || text.contains("logger") else { continue }
            let keys = Self.keys(in: text)
            seen += keys.count
            #expect(keys.subtracting(known).isEmpty, "\(file.lastPathComponent)")
        }
        #expect(seen > 0 || module == "Redis")
    }

    @Test("are lower case with underscores")
    func spelling() {
        for key in LogKey.allCases {
            #expect(key.rawValue.allSatisfy { $0.isLowercase || $0 == "_" }, "\(key)")
        }
    }
}
