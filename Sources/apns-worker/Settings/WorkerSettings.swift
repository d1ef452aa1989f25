import APNS
import Logging
import NIOHTTP1
import PushQueue
import PushWorker
import TLS
import Telemetry

/// The settings of a worker, its apps, and its ports.
struct WorkerSettings {
    private let settings: Settings

    init(_ settings: Settings) { self.settings = settings }

    /// Returns the whole configuration of a worker.
    func configuration(named name: String, simulated: SimulatedCredentials? = nil) throws -> WorkerConfiguration {
        let redis = RedisSettings(settings)
        var worker = WorkerConfiguration(
            redis: try redis.topology(), queues: try QueueSettings(settings).all(), sharedKeys: redis.sharedKeys,
            apps: try apps(simulated: simulated), workerName: name)
        worker.redisClient = try redis.client()
        settings.fill(&worker)
        if simulated != nil {
            for index in worker.queues.indices
            where settings.given(.results, queue: worker.queues[index].keys.queue) == nil {
                worker.queues[index].limits.results = .all
            }
        }
        return worker
    }

    /// The address of the admin port; `nil` for none.
    var adminAddress: (host: String, port: Int)? {
        guard let port = settings.number(.adminPort), let host = settings.text(.adminHost) else { return nil }
        return (host, port)
    }

    /// Returns the exporter of spans; `nil` if there is no collector.
    func traceExporter(for worker: String, logger: Logger) throws -> TraceExporter? {
        guard let url = settings.value(.tracesURL) else {
            for setting in [Setting.tracesHeaders, .tracesCA] {
                if let other = settings.value(setting) {
                    throw Settings.mistake(at: other.place.description, "it needs traces.url")
                }
            }
            return nil
        }
        var address: HTTPAddress
        do { address = try HTTPAddress(url.text) } catch {
            throw Settings.mistake(at: url.place.description, "\(error)")
        }
        // A URL without a path is the base for all signals, as in OpenTelemetry's own variables.
        if address.target == "/" { address.target = "/v1/traces" }
        let authorities = settings.value(.tracesCA)
        let post: HTTPPost
        do {
            post = try HTTPPost(address, authorities: authorities?.text, timeout: TraceExporter.timeout)
        } catch {
            throw Settings.mistake(at: (authorities ?? url).place.description, "\(error)")
        }
        var headers: Renewable<HTTPHeaders>?
        if let file = settings.value(.tracesHeaders) {
            do { headers = try Renewable([.file(file.text)]) { try HTTPHeaders(lines: $0[0]) } } catch {
                throw Settings.mistake(at: file.place.description, "\(error)")
            }
        }
        return TraceExporter(post: post, headers: headers, worker: worker, spans: SpanQueue(), logger: logger)
    }

    // MARK: Apps

    /// - Parameter simulated: replaces the apps' own credentials if APNs is simulated; the endpoints must be set once they are known.
    func apps(simulated: SimulatedCredentials? = nil) throws -> [AppConfiguration] {
        var (apps, mistakes): ([AppConfiguration], [String]) = ([], [])
        for app in try appSettings(simulated: simulated) {
            do { apps.append(try app.app()) } catch { mistakes.append(CommandFailure.message(of: error)) }
        }
        guard mistakes.isEmpty else {
            // A mistake in a common setting is found for each app.
            let distinct = mistakes.enumerated().filter { !mistakes[..<$0].contains($1) }.map(\.element)
            throw CommandFailure(.configuration, distinct.joined(separator: "\n"))
        }
        // In a simulation, all apps have the same endpoint.
        guard simulated == nil else { return apps }
        for (index, app) in apps.enumerated() {
            let topics = [app.topic] + app.otherTopics
            let others = apps[..<index].filter { !Set([$0.topic] + $0.otherTopics).isDisjoint(with: topics) }
            // An app in two environments is configured as two apps with one topic, which jobs select by `app`.
            if let other = others.first, other.endpoint == app.endpoint {
                throw CommandFailure(
                    .configuration,
                    "APNS_WORKER_APPS: \(other.name) and \(app.name) have a topic and an endpoint in common; change one of them"
                )
            }
        }
        return apps
    }

    /// Returns the settings of each app.
    func appSettings(simulated: SimulatedCredentials? = nil) throws -> [AppSettings] {
        let names = try settings.appNames
        guard !names.isEmpty else {
            return [AppSettings(name: "default", isNamed: false, settings: settings, simulated: simulated)]
        }
        var variables: Set<String> = []
        return try names.map { name in
            let variable = Setting.variable(["apps", name])
            guard variables.insert(variable).inserted else {
                throw CommandFailure(
                    .configuration,
                    "APNS_WORKER_APPS: the names of two apps make the same variables \(variable)_…; rename one app")
            }
            return AppSettings(name: name, isNamed: true, settings: settings, simulated: simulated)
        }
    }
}
