import Foundation
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
        "are all in the table, in all modules", arguments: ["APNS", "Dashboard", "PushWorker", "Redis", "apns-worker"])
    func table(module: String) throws {
        let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../../Sources/\(module)")
        let files = try #require(FileManager.default.enumerator(at: root, includingPropertiesForKeys: nil))
        var seen = 0
        for case let file as URL in files where file.pathExtension == "swift" {
            let text = try String(contentsOf: file, encoding: .utf8)
            guard text.contains("Logger") || text.contains("logger") else { continue }
            let keys = Self.keys(in: text)
            seen += keys.count
            #expect(keys.subtracting(Self.known).isEmpty, "\(file.lastPathComponent)")
        }
        #expect(seen > 0 || module == "Redis")
    }

    @Test("are lower case with underscores")
    func spelling() {
        for key in Self.known { #expect(key.allSatisfy { $0.isLowercase || $0 == "_" }, "\(key)") }
    }

    /// The names of metadata in log lines. Each has one spelling: lower case with underscores, and with the unit in the
    /// name if there is one.
    private static let known = Set(
        [
            // The event: the sentence of a line may change, the event may not.
            "event",
            // The subject of a line. Only the beginning of a token is logged. `worker` is a lane's name in Redis.
            "app queue lane job campaign labels token push_type topic trace_id parent_id worker",
            // The outcome of a notification, or `retried` or `deferred`. The cause is an attempt's last failure, the
            // detail explains the reason, and the rule is one of Apple's requirements.
            "outcome reason cause detail rule status apns_id apns_unique_id attempt",
            // A scope that is slow: its kind and name, and the deliveries outside of it in the meantime.
            "scope name others_delivered",
            // Addresses: of APNs and collectors, of Redis without its password, of ports of programs, and of pages.
            "endpoint redis server apps lanes host port apns control gateway feedback inbox address",
            // The names of settings; an operator's action, its object and the operator; the name of a login.
            "settings action subject by user",
            // Numbers, and times with their units.
            "count failures retry_in_ms after_ms limit_ms was jobs poisoned connections connections_lost",
            "connections_made in_flight waiting seconds delivered_per_second delivered invalid_token suppressed expired dropped",
            "dead retried deferred claimed accepted by_gateway",
            // The error, under the name that some libraries use.
            "error",
        ].flatMap { $0.split(separator: " ").map(String.init) })
}
