import NIOCore
import PushJob

/// A lane's report as it is sent with a claim. The claim script adds the times.
public struct WorkerHeartbeat: Sendable {
    /// The name of the worker's process, for operators' commands.
    public var process: String
    /// The age of the process, in milliseconds.
    public var uptime: Int64
    /// The members of the report's JSON object, with its closing brace.
    public var members: ByteBuffer
    /// The format of the queue's jobs.
    public var format: JobFormat

    /// - Parameters:
    ///   - report: the report; its times are ignored.
    ///   - format: the format of the queue's jobs.
    public init(_ report: WorkerReport, uptime: Int64, format: JobFormat = .native) {
        self.format = format
        process = report.process
        self.uptime = uptime
        var json = ByteBuffer(string: "{")
        json.writeShort("process", report.process)
        json.writeShort("host", report.host)
        json.writeMember("pid", report.processIdentifier)
        json.writeShort("version", report.version)
        json.writeMember("lane", report.lane)
        json.writeMember("lanes", report.lanes)
        json.writeMember("state", report.state.rawValue)
        json.writeMember("in_flight", report.inFlight)
        json.writeMember("configuration", report.configuration?.text)
        json.writeMember("done", report.done)
        json.writeMember("delivered", report.delivered)
        if report.undatedExpirations > 0 { json.writeMember("undated_expirations", report.undatedExpirations) }
        if !report.commands.isEmpty {
            json.writeShort("commands", report.commands)
            json.writeMember("cancelled_in_flight", report.cancelledInFlight)
        }
        json.writeMember("rate", json: ByteBuffer(string: "\((report.rate * 10).rounded() / 10)"))
        json.writeMember("redis", report.redis)
        json.writeShort("failover_watch", report.failoverWatch)
        json.writeShort("refused_reload", report.refusedReload)
        if !report.obstacles.isEmpty {
            json.writeArray("obstacles", report.obstacles.prefix(WorkerReport.maximumObstacles)) { $0.write($1) }
        }
        if !report.scopes.isEmpty {
            json.writeArray("scopes", report.scopes.prefix(WorkerReport.maximumScopes)) { $0.write($1) }
        }
        let apps = Self.chosen(report.apps)
        json.writeArray("apps", apps) { $0.write($1) }
        json.writeMember("more_apps", report.apps.count - apps.count + report.moreApps)
        json.writeString("}")
        // The script writes the beginning of the object.
        json.moveReaderIndex(forwardBy: 1)
        members = json
    }

    /// Returns the apps to report. If there are too many, apps with problems come first.
    private static func chosen(_ apps: [WorkerReport.App]) -> [WorkerReport.App] {
        guard apps.count > WorkerReport.maximumApps else { return apps }
        let affected = apps.filter(\.hasProblem)
        let others = apps.filter { !$0.hasProblem }
        return Array((affected + others).prefix(WorkerReport.maximumApps))
    }
}

extension ByteBuffer {
    private mutating func writeShort(_ text: String) {
        writeJSONString(String(text.prefix(WorkerReport.maximumText)))
    }

    fileprivate mutating func writeShort(_ name: StaticString, _ text: String?) {
        writeMember(name, text.map { String($0.prefix(WorkerReport.maximumText)) })
    }

    fileprivate mutating func write(_ obstacle: WorkerReport.Obstacle) {
        writeString("{")
        writeMember("kind", obstacle.kind.rawValue)
        writeShort("reason", obstacle.reason)
        writeShort("app", obstacle.app)
        writeString("}")
    }

    fileprivate mutating func write(_ scope: ScopeRecord) {
        writeString("{")
        writeMember("scope", scope.scope.rawValue)
        writeMember("state", scope.state.rawValue)
        writeShort("name", scope.name)
        writeShort("app", scope.app)
        writeShort("reason", scope.reason)
        writeShort("detail", scope.detail)
        writeMember("status", scope.status)
        writeMember("failures", scope.failures)
        writeMember("notifications", scope.notifications)
        writeMember("since", scope.since)
        writeMember("others_delivered", scope.othersDelivered)
        writeArray("jobs", scope.jobs.prefix(ScopeRecord.maximumJobs)) { $0.writeShort($1) }
        writeString("}")
    }

    fileprivate mutating func write(_ app: WorkerReport.App) {
        writeString("{")
        writeShort("name", app.name)
        writeShort("endpoint", app.endpoint)
        if !app.topics.isEmpty {
            writeArray("topics", app.topics.prefix(WorkerReport.maximumTopics)) { $0.writeShort($1) }
        }
        writeShort("key_id", app.keyID)
        writeMember("usable", app.usable)
        writeMember("connecting", app.connecting)
        writeMember("streams", app.streams)
        writeMember("stream_limit", app.streamLimit)
        if app.isDormant { writeMember("dormant", true) }
        writeMember("token_issued_at", app.tokenIssuedAt)
        writeMember("certificate_expires_at", app.certificateExpiresAt)
        if app.state != .sending { writeMember("state", app.state.rawValue) }
        writeShort("credential_problem", app.credentialProblem)
        writeShort("pause", app.pause)
        writeShort("failure", app.failure)
        writeString("}")
    }
}
