import APNS
import ArgumentParser
import Logging
import NIOHTTP1
import PushJob
import PushQueue
import PushWorker
import Redis
import TLS
import Telemetry

// A worker's configuration from its settings.
extension Settings {
    /// Returns the whole configuration of a worker.
    func worker(named name: String, simulated: SimulatedCredentials? = nil) throws -> WorkerConfiguration {
        var worker = WorkerConfiguration(
            redis: try redisTopology(), queues: try queues(), sharedKeys: sharedKeys,
            apps: try apps(simulated: simulated), workerName: name)
        worker.redisClient = try redisClient()
        fill(&worker)
        if simulated != nil {
            for index in worker.queues.indices where given(.results, queue: worker.queues[index].keys.queue) == nil {
                worker.queues[index].limits.results = .all
            }
        }
        return worker
    }

    /// The time for which invalid tokens are kept, in milliseconds; 0 for forever.
    var invalidTokenAge: Int { number(.invalidTokensDays) ?? 0 }

    /// The address of the admin port; `nil` for none.
    var adminAddress: (host: String, port: Int)? {
        guard let port = number(.adminPort), let host = text(.adminHost) else { return nil }
        return (host, port)
    }

    /// Returns the exporter of spans; `nil` if there is no collector.
    func traceExporter(for worker: String, logger: Logger) throws -> TraceExporter? {
        guard let url = value(.tracesURL) else {
            for setting in [Setting.tracesHeaders, .tracesCA] {
                if let other = value(setting) { throw Self.mistake(at: other.place.description, "it needs traces.url") }
            }
            return nil
        }
        var address: HTTPAddress
        do { address = try HTTPAddress(url.text) } catch { throw Self.mistake(at: url.place.description, "\(error)") }
        // As with OpenTelemetry's own variables, a URL without a path is that of all signals.
        if address.target == "/" { address.target = "/v1/traces" }
        let authorities = value(.tracesCA)
        let post: HTTPPost
        do {
            post = try HTTPPost(address, authorities: authorities?.text, timeout: TraceExporter.timeout)
        } catch {
            throw Self.mistake(at: (authorities ?? url).place.description, "\(error)")
        }
        var headers: Renewable<HTTPHeaders>?
        if let file = value(.tracesHeaders) {
            do { headers = try Renewable([.file(file.text)]) { try HTTPHeaders(lines: $0[0]) } } catch {
                throw Self.mistake(at: file.place.description, "\(error)")
            }
        }
        return TraceExporter(post: post, headers: headers, worker: worker, spans: SpanQueue(), logger: logger)
    }

    // MARK: Redis

    var keyPrefix: String { text(.prefix) ?? "" }

    var sharedKeys: SharedKeys { SharedKeys(prefix: keyPrefix) }

    func redisTopology() throws -> RedisTopology {
        guard let url = value(.redisURL) else {
            throw CommandFailure(.configuration, "no Redis URL is set; set one with --redis")
        }
        do {
            return try RedisTopology(url: url.text)
        } catch {
            throw Self.mistake(at: url.place.description, "\(error)")
        }
    }

    /// Returns the options of connections to Redis.
    func redisClient() throws -> RedisClientConfiguration {
        var configuration = RedisClientConfiguration()
        let ca = try redisAuthorities()
        let certificate = text(.redisCertificate).map(SecretSource.file)
        let key = text(.redisCertificateKey).map(SecretSource.file)
        guard ca != nil || certificate != nil || key != nil else { return configuration }
        guard try redisTopology().usesTLS else {
            throw CommandFailure(
                .configuration,
                "certificates for Redis are set, but its URL does not use TLS; use rediss://")
        }
        if certificate == nil, let key {
            throw CommandFailure(.configuration, "the private key \(key) for Redis is set without its certificate")
        }
        do {
            configuration.tls = try Renewable([certificate, key, ca].compactMap { $0 }) { contents in
                var rest = contents[...]
                var tls = TLSClientConfiguration()
                if let certificate {
                    tls.identity = try TLSIdentity(
                        bytes: rest.removeFirst(), keyBytes: key == nil ? nil : rest.removeFirst(),
                        source: "\(certificate)", keySource: key.map { "\($0)" })
                }
                if let ca { tls.trust = .pem(rest.removeFirst(), name: "\(ca)") }
                return try TLSContext.client(tls)
            }
        } catch {
            throw CommandFailure(.configuration, "\(error)")
        }
        return configuration
    }

    private func redisAuthorities() throws -> SecretSource? {
        switch (given(.redisCA), given(.redisCABase64)) {
        case (nil, nil): nil
        case (let path?, nil): .file(path.text)
        case (nil, let text?): .base64(text.text, name: text.place.description)
        case (let path?, let text?):
            throw CommandFailure(.configuration, "\(path.place) and \(text.place) are both set; omit one of them")
        }
    }

    // MARK: Apps

    /// - Parameter simulated: replaces the apps' own credentials if APNs is simulated; the endpoints must be set once
    ///   they are known.
    func apps(simulated: SimulatedCredentials? = nil) throws -> [AppConfiguration] {
        var (apps, mistakes): ([AppConfiguration], [String]) = ([], [])
        for settings in try appSettings(simulated: simulated) {
            do { apps.append(try settings.app()) } catch { mistakes.append(CommandFailure.message(of: error)) }
        }
        guard mistakes.isEmpty else {
            // A mistake in a common setting is found for each app.
            let distinct = mistakes.enumerated().filter { !mistakes[..<$0].contains($1) }.map(\.element)
            throw CommandFailure(.configuration, distinct.joined(separator: "\n"))
        }
        // All of them use the simulator's endpoint.
        guard simulated == nil else { return apps }
        for (index, app) in apps.enumerated() {
            let topics = [app.topic] + app.otherTopics
            let others = apps[..<index].filter { !Set([$0.topic] + $0.otherTopics).isDisjoint(with: topics) }
            // An app in two environments is configured as two apps with one topic, which jobs select by `app`.
            if let other = others.first, other.endpoint == app.endpoint {
                throw CommandFailure(
                    .configuration,
                    "APNS_WORKER_APPS: \(other.name) and \(app.name) have a topic and an endpoint in common")
            }
        }
        return apps
    }

    /// Returns the settings of each app.
    func appSettings(simulated: SimulatedCredentials? = nil) throws -> [AppSettings] {
        let names = try appNames
        guard !names.isEmpty else {
            return [AppSettings(name: "default", isNamed: false, settings: self, simulated: simulated)]
        }
        var variables: Set<String> = []
        return try names.map { name in
            let variable = Setting.variable(["apps", name])
            guard variables.insert(variable).inserted else {
                throw CommandFailure(.configuration, "APNS_WORKER_APPS: two apps have the variables \(variable)_…")
            }
            return AppSettings(name: name, isNamed: true, settings: self, simulated: simulated)
        }
    }

    // MARK: Queues

    func queues() throws -> [QueueConfiguration] {
        let queues = try namedQueues()
        let names = queues.map(\.keys.queue)
        if let twice = names.first(where: { name in names.filter { $0 == name }.count > 1 }) {
            throw CommandFailure(.configuration, "APNS_WORKER_QUEUE (or --queue) names the queue \(twice) twice")
        }
        return queues
    }

    private func namedQueues() throws -> [QueueConfiguration] {
        let inFile = queueNamesOfFile
        guard inFile.isEmpty else {
            return try inFile.map { try queue($0, weight: nil, place: "queues", isOnly: inFile.count == 1) }
        }
        let list = value(.queueNames)
        let place = list.map(\.place.description) ?? ""
        let items = (list?.text ?? "").split(separator: ",", omittingEmptySubsequences: false)
        let isOnly = items.count == 1
        return try items.map { item in
            guard let colon = item.lastIndex(of: ":") else {
                return try queue(String(item), weight: nil, place: place, isOnly: isOnly)
            }
            guard let weight = Int(item[item.index(after: colon)...]), (1...1000).contains(weight) else {
                throw Self.mistake(
                    at: place, "\(item) must be a name, or a name, a colon and a weight from 1 to 1000")
            }
            return try queue(String(item[..<colon]), weight: weight, place: place, isOnly: isOnly)
        }
    }

    func queue(_ name: String, weight: Int?, place: String, isOnly: Bool) throws -> QueueConfiguration {
        // The name is checked first, so that a mistake in it is reported with its place.
        do { _ = try QueueKeys(prefix: keyPrefix, queue: name) } catch { throw Self.mistake(at: place, "\(error)") }
        var queue = QueueConfiguration(
            keys: try keys(of: name, isOnly: isOnly), weight: weight ?? number(.weight, queue: name) ?? 1)
        queue.format = try format(of: name)
        fill(&queue.limits, queue: name)
        if let time = variables.steadyTime { queue.limits.steadyTime = time }
        return queue
    }

    /// The format of the first queue's jobs, also if its list is in another slot of a Cluster than its other keys: jobs of
    /// another system are only read.
    var firstFormat: JobFormat {
        get throws {
            let names = queueNamesOfFile + SettingsVariables.names(value(.queueNames)?.text)
            return try names.first.map { try format(of: $0) } ?? .native
        }
    }

    func writer(of queue: String) -> ProducerFormat {
        text(.format, queue: queue).flatMap(ProducerFormat.init(rawValue:)) ?? .native
    }

    func format(of queue: String) throws -> JobFormat {
        let classes = given(.jobClass, queue: queue)
        guard writer(of: queue) == .native else {
            return .sidekiq(classes: (classes?.text ?? "").split(separator: ",").map(String.init))
        }
        if let classes {
            throw CommandFailure(
                .configuration,
                "\(classes.place) is for the formats sidekiq and resque, and the format of the queue \(queue) is native"
            )
        }
        return .native
    }

    /// Returns the names of a queue's keys.
    /// - Parameter isOnly: true if the worker has no other queue.
    func keys(of queue: String, isOnly: Bool) throws -> QueueKeys {
        let writer = writer(of: queue)
        let list = own(.list, queue: queue) ?? given(.list)
        if let list, !isOnly, own(.list, queue: queue) == nil {
            throw CommandFailure(
                .configuration,
                "\(list.place) names the list of one queue, but there are several; run a worker for each,"
                    + " or set one for each in the file, as queues.<name>.list")
        }
        let keys: QueueKeys
        do {
            keys = try QueueKeys(
                prefix: keyPrefix, queue: queue, list: list?.text ?? writer.list(of: queue), head: writer.head)
        } catch {
            throw CommandFailure(.configuration, list.map { "\($0.place): \(error)" } ?? "\(error)")
        }
        if case .cluster = try redisTopology(), !keys.listIsInSlot { throw Self.otherSlot(keys) }
        return keys
    }

    /// Returns the failure for a value given at a place: a usage error if that is a flag.
    private static func mistake(at place: String, _ sentence: String) -> CommandFailure {
        CommandFailure(place.hasPrefix("--") ? .usage : .configuration, "\(place): \(sentence)")
    }

    private static func otherSlot(_ keys: QueueKeys) -> CommandFailure {
        CommandFailure(
            .configuration,
            """
            the list \(keys.jobs) and the queue's other keys (\(keys.retry) and so on) are in different slots of the Redis \
            Cluster, so that no script can move a job between them: name the list so that {\(keys.queue)} is in it \
            (--list 'queue:{\(keys.queue)}', which is Sidekiq's queue "{\(keys.queue)}"), or have these jobs on a Redis \
            that is not a Cluster
            """)
    }
}
