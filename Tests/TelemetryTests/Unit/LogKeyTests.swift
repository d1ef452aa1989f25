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
        for key in LogKey.allCases { #expect(key.rawValue.allSatisfy { $0.isLowercase || $0 == "_" }, "\(key)") }
    }
}

/// The names of metadata in log lines. Each has one spelling: lower case with underscores, and with the unit in the
/// name if there is one.
private enum LogKey: String, CaseIterable, Sendable {
    // The subject of a line.

    /// The event, a stable word for programs: the sentence may change, the event may not.
    case event
    /// The configured app.
    case app
    /// The queue.
    case queue
    /// The lane of a process that has several.
    case lane
    /// The producer's id of the job.
    case job
    /// The campaign of the job.
    case campaign
    /// The labels of the job, a JSON object.
    case labels
    /// The beginning of a device token or channel, followed by an ellipsis.
    case token
    /// The push type of a notification.
    case pushType = "push_type"
    /// The topic of a notification.
    case topic
    /// The trace of the job's `traceparent`.
    case traceID = "trace_id"
    /// The producer's span of the job's `traceparent`.
    case parentID = "parent_id"
    /// The name under which a lane claims jobs.
    case worker

    // The outcome of a notification.

    /// The outcome, or `retried` or `deferred`.
    case outcome
    /// The reason from APNs or from the worker.
    case reason
    /// The failure of the last attempt, if it differs from the reason.
    case cause
    /// The explanation of the reason, for people.
    case detail
    /// The requirement of Apple's that a notification violates.
    case rule
    /// The status from APNs or from the gateway.
    case status
    /// The `apns-id` of the request.
    case apnsID = "apns_id"
    /// The `apns-unique-id` in the answer of APNs.
    case apnsUniqueID = "apns_unique_id"
    /// The number of attempts.
    case attempt

    // Addresses.

    /// Host and port of APNs or of the gateway; the scheme, host and port of a collector of traces.
    case endpoint
    /// The configured Redis URL, without its password.
    case redis
    /// The Redis server of the connection.
    case server
    /// The apps of a worker and their endpoints.
    case apps
    /// The number of lanes of a process.
    case lanes
    /// The address of the admin port.
    case host, port
    /// The ports of a simulator.
    case apns, control, gateway, feedback
    /// The address of a page: the simulator's inbox, or the dashboard.
    case inbox, address
    /// The names of settings.
    case settings
    /// An operator's action, its object, and the operator.
    case action, subject, by
    /// The name with which a browser tried to log in.
    case user

    // Numbers and times.

    /// The number of occurrences since the last such line, if more than one.
    case count
    /// The number of failures.
    case failures
    /// The time until the next attempt, in milliseconds.
    case retryIn = "retry_in_ms"
    /// The duration of a problem, in milliseconds.
    case after = "after_ms"
    /// A timeout, in milliseconds.
    case limit = "limit_ms"
    /// The previous problem.
    case was
    /// The number of jobs.
    case jobs
    /// The number of jobs that became dead letters because they were claimed too often.
    case poisoned
    /// The number of connections.
    case connections
    /// The connections that were lost in the interval of a summary.
    case connectionsLost = "connections_lost"
    /// The connections that were opened in the interval of a summary.
    case connectionsMade = "connections_made"
    /// The number of unanswered requests.
    case inFlight = "in_flight"
    /// The number of notifications that are claimed and not sent.
    case waiting
    /// The length of the summary's interval, in seconds.
    case seconds
    /// The number of deliveries per second.
    case perSecond = "per_second"
    /// The numbers of notifications by outcome.
    case delivered
    case invalidToken = "invalid_token"
    case suppressed, expired, dropped, dead
    /// The numbers of retries with and without a spent attempt.
    case retried, deferred
    /// The number of claimed jobs.
    case claimed
    /// The numbers of notifications that a simulator accepted, in total and by its gateway.
    case accepted
    case acceptedByGateway = "by_gateway"
    /// The error, under the name that some libraries use.
    case error
}
