import FoundationEssentials
import NIOCore
import PrintableText
import PushQueue

// Any client of Redis can write a report, so nothing in it is trusted.
extension WorkerReport {
    private struct Form: Decodable {
        struct App: Decodable {
            var name: String?
            var endpoint: String?
            var topics: [String]?
            var key_id: String?
            var usable: Int?
            var connecting: Int?
            var streams: Int?
            var stream_limit: Int?
            var dormant: Bool?
            var state: String?
            var pause: String?
            var failure: String?
            var token_issued_at: Int64?
            var certificate_expires_at: Int64?
            var credential_problem: String?
        }

        struct Obstacle: Decodable {
            var kind: String?
            var reason: String?
            var app: String?
        }

        /// `nil` if another version has written a scope or state that this version does not know.
        struct Scope: Decodable {
            let record: ScopeRecord?

            init(from decoder: any Decoder) throws {
                do { record = try ScopeRecord(from: decoder) } catch is DecodingError { record = nil }
            }
        }

        var process: String?
        var host: String?
        var pid: Int?
        var version: String?
        var lane: Int?
        var lanes: Int?
        var started_at: Int64?
        var updated_at: Int64?
        var state: String?
        var configuration: String?
        var obstacles: [Obstacle]?
        var in_flight: Int?
        var done: Int?
        var delivered: Int?
        var undated_expirations: Int?
        var commands: String?
        var cancelled_in_flight: Int?
        var rate: Double?
        var failover_watch: String?
        var refused_reload: String?
        var redis: String?
        var scopes: [Scope]?
        var apps: [App]?
        var more_apps: Int?
    }

    /// Parses the JSON in Redis; `nil` if it is not a report.
    ///
    /// Texts are made printable and shortened. Numbers are limited so that their sums do not overflow.
    package init?(_ json: ByteBuffer) {
        guard let form = try? JSONDecoder().decode(Form.self, from: Data(json.readableBytesView)),
            let process = form.process, !process.isEmpty
        else { return nil }
        self.init()
        self.process = Self.shown(process)
        host = Self.shown(form.host)
        processIdentifier = Self.count(form.pid)
        version = Self.shown(form.version)
        lane = Self.count(form.lane)
        lanes = Self.count(form.lanes)
        startedAt = Int64(Self.count(form.started_at.map { Int($0) }))
        updatedAt = Int64(Self.count(form.updated_at.map { Int($0) }))
        state = form.state.flatMap(State.init(rawValue:)) ?? .running
        configuration = form.configuration.flatMap { ConfigurationDigest($0) }
        obstacles = (form.obstacles ?? []).prefix(Self.maximumObstacles).compactMap { obstacle in
            let reason = Self.shown(obstacle.reason)
            let kind = obstacle.kind.flatMap(Obstacle.Kind.init(rawValue:)) ?? .other
            return reason.isEmpty ? nil : Obstacle(kind, reason, app: obstacle.app.map(Self.shown))
        }
        inFlight = Self.count(form.in_flight)
        done = Self.count(form.done)
        delivered = Self.count(form.delivered)
        undatedExpirations = Self.count(form.undated_expirations)
        commands = Self.shown(form.commands)
        cancelledInFlight = Self.count(form.cancelled_in_flight)
        rate = max(0, min(form.rate ?? 0, 1e9))
        failoverWatch = form.failover_watch.map(Self.shown)
        refusedReload = form.refused_reload.map(Self.shown)
        redis = Self.shown(form.redis)
        scopes = (form.scopes ?? []).prefix(Self.maximumScopes).compactMap { $0.record.map(Self.shown) }
        let apps = form.apps ?? []
        self.apps = apps.prefix(Self.maximumApps).map { app in
            var read = App()
            read.name = Self.shown(app.name)
            read.endpoint = Self.shown(app.endpoint)
            read.topics = (app.topics ?? []).prefix(Self.maximumTopics).map(Self.shown)
            read.keyID = app.key_id.map(Self.shown)
            read.usable = Self.count(app.usable)
            read.connecting = Self.count(app.connecting)
            read.streams = Self.count(app.streams)
            read.streamLimit = Self.count(app.stream_limit)
            read.isDormant = app.dormant ?? false
            read.state = app.state.flatMap(App.State.init(rawValue:)) ?? .sending
            read.pause = app.pause.map(Self.shown)
            read.failure = app.failure.map(Self.shown)
            read.tokenIssuedAt = app.token_issued_at.map { Int64(Self.count(Int($0))) }
            read.certificateExpiresAt = app.certificate_expires_at.map { Int64(Self.count(Int($0))) }
            read.credentialProblem = app.credential_problem.map(Self.shown)
            return read
        }
        moreApps = Self.count(form.more_apps)
    }

    private static func shown(_ scope: ScopeRecord) -> ScopeRecord {
        ScopeRecord(
            scope.scope, shown(scope.name), scope.state, app: scope.app.map(shown), reason: shown(scope.reason),
            detail: scope.detail.map(shown), status: scope.status.map { count($0) }, failures: count(scope.failures),
            notifications: count(scope.notifications),
            since: Int64(count(Int(scope.since))), jobs: scope.jobs.prefix(ScopeRecord.maximumJobs).map(shown),
            othersDelivered: count(scope.othersDelivered))
    }

    private static func shown(_ text: String?) -> String {
        (text ?? "").prefix(maximumText).printable
    }

    /// Limits a number so that half a million numbers can be added without overflow. Times of the next centuries are below the limit. `nil`
    /// becomes 0.
    private static func count(_ number: Int?) -> Int { max(0, min(number ?? 0, 10_000_000_000_000)) }
}
