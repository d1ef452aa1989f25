import NIOCore
import PushJob

/// A lane's report in the form in which it is sent with a claim. Redis adds the times.
public struct WorkerHeartbeat: Sendable {
    /// The name of the worker's process, to which commands are given.
    public var process: String
    /// The time for which the process has been running, in milliseconds.
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
        var json = ByteBuffer()
        json.writeString(#""process":"#)
        json.writeShort(report.process)
        json.writeString(#","host":"#)
        json.writeShort(report.host)
        json.writeString(",\"pid\":\(report.processIdentifier),\"version\":")
        json.writeShort(report.version)
        json.writeString(",\"lane\":\(report.lane),\"lanes\":\(report.lanes)")
        json.writeString(#","state":"\#(report.state.rawValue)","in_flight":\#(report.inFlight)"#)
        if let configuration = report.configuration {
            json.writeString(",\"configuration\":\"\(configuration.text)\"")
        }
        json.writeString(",\"done\":\(report.done),\"delivered\":\(report.delivered)")
        if report.undatedExpirations > 0 {
            json.writeString(",\"undated_expirations\":\(report.undatedExpirations)")
        }
        if !report.commands.isEmpty {
            json.writeString(",\"commands\":")
            json.writeShort(report.commands)
            json.writeString(",\"cancelled_in_flight\":\(report.cancelledInFlight)")
        }
        json.writeString(#","rate":\#((report.rate * 10).rounded() / 10),"redis":"\#(report.redis)""#)
        if let failoverWatch = report.failoverWatch {
            json.writeString(",\"failover_watch\":")
            json.writeShort(failoverWatch)
        }
        if let refusedReload = report.refusedReload {
            json.writeString(",\"refused_reload\":")
            json.writeShort(refusedReload)
        }
        if !report.obstacles.isEmpty {
            json.writeString(",\"obstacles\":[")
            for (index, obstacle) in report.obstacles.prefix(WorkerReport.maximumObstacles).enumerated() {
                if index > 0 { json.writeString(",") }
                json.write(obstacle)
            }
            json.writeString("]")
        }
        if !report.scopes.isEmpty {
            json.writeString(",\"scopes\":[")
            for (index, scope) in report.scopes.prefix(WorkerReport.maximumScopes).enumerated() {
                if index > 0 { json.writeString(",") }
                json.write(scope)
            }
            json.writeString("]")
        }
        json.writeString(",\"apps\":[")
        let apps = Self.chosen(report.apps)
        for (index, app) in apps.enumerated() {
            if index > 0 { json.writeString(",") }
            json.write(app)
        }
        json.writeString("],\"more_apps\":\(report.apps.count - apps.count + report.moreApps)}")
        members = json
    }

    /// Returns the apps to report. If there are too many, those in trouble come first.
    private static func chosen(_ apps: [WorkerReport.App]) -> [WorkerReport.App] {
        guard apps.count > WorkerReport.maximumApps else { return apps }
        let affected = apps.filter(\.hasProblem)
        let others = apps.filter { !$0.hasProblem }
        return Array((affected + others).prefix(WorkerReport.maximumApps))
    }
}

extension ByteBuffer {
    fileprivate mutating func writeShort(_ text: String) {
        writeJSONString(String(text.prefix(WorkerReport.maximumText)))
    }

    fileprivate mutating func write(_ obstacle: WorkerReport.Obstacle) {
        writeString("{\"kind\":\"\(obstacle.kind.rawValue)\",\"reason\":")
        writeShort(obstacle.reason)
        if let app = obstacle.app {
            writeString(",\"app\":")
            writeShort(app)
        }
        writeString("}")
    }

    fileprivate mutating func write(_ scope: ScopeRecord) {
        writeString("{\"scope\":\"\(scope.scope.rawValue)\",\"state\":\"\(scope.state.rawValue)\",\"name\":")
        writeShort(scope.name)
        for (key, text) in [("app", scope.app), ("reason", scope.reason), ("detail", scope.detail)] {
            guard let text else { continue }
            writeString(",\"\(key)\":")
            writeShort(text)
        }
        if let status = scope.status { writeString(",\"status\":\(status)") }
        writeString(",\"failures\":\(scope.failures),\"notifications\":\(scope.notifications),\"since\":\(scope.since)")
        writeString(",\"others_delivered\":\(scope.othersDelivered),\"jobs\":[")
        for (index, job) in scope.jobs.prefix(ScopeRecord.maximumJobs).enumerated() {
            if index > 0 { writeString(",") }
            writeShort(job)
        }
        writeString("]}")
    }

    fileprivate mutating func write(_ app: WorkerReport.App) {
        writeString(#"{"name":"#)
        writeShort(app.name)
        writeString(#","endpoint":"#)
        writeShort(app.endpoint)
        var separator = ",\"topics\":["
        for topic in app.topics.prefix(WorkerReport.maximumTopics) {
            writeString(separator)
            writeShort(topic)
            separator = ","
        }
        if !app.topics.isEmpty { writeString("]") }
        if let keyID = app.keyID {
            writeString(",\"key_id\":")
            writeShort(keyID)
        }
        writeString(",\"usable\":\(app.usable),\"connecting\":\(app.connecting)")
        writeString(",\"streams\":\(app.streams),\"stream_limit\":\(app.streamLimit)")
        if app.isDormant { writeString(",\"dormant\":true") }
        if let at = app.tokenIssuedAt { writeString(",\"token_issued_at\":\(at)") }
        if let at = app.certificateExpiresAt { writeString(",\"certificate_expires_at\":\(at)") }
        if app.state != .sending { writeString(",\"state\":\"\(app.state.rawValue)\"") }
        if let problem = app.credentialProblem {
            writeString(",\"credential_problem\":")
            writeShort(problem)
        }
        if let pause = app.pause {
            writeString(",\"pause\":")
            writeShort(pause)
        }
        if let failure = app.failure {
            writeString(",\"failure\":")
            writeShort(failure)
        }
        writeString("}")
    }
}
