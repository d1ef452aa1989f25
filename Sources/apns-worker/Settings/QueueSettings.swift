import PushJob
import PushQueue
import PushWorker
import Redis

struct QueueSettings {
    private let settings: Settings
    private let redis: RedisSettings

    init(_ settings: Settings) { (self.settings, redis) = (settings, RedisSettings(settings)) }

    func all() throws -> [QueueConfiguration] {
        let queues = try named()
        let names = queues.map(\.keys.queue)
        if let twice = names.first(where: { name in names.filter { $0 == name }.count > 1 }) {
            throw CommandFailure(.configuration, "APNS_WORKER_QUEUE (or --queue) names the queue \(twice) twice")
        }
        return queues
    }

    private func named() throws -> [QueueConfiguration] {
        let inFile = settings.queueNamesOfFile
        guard inFile.isEmpty else {
            return try inFile.map { try queue($0, weight: nil, place: "queues", isOnly: inFile.count == 1) }
        }
        let list = settings.value(.queueNames)
        let place = list.map(\.place.description) ?? ""
        let items = (list?.text ?? "").split(separator: ",", omittingEmptySubsequences: false)
        let isOnly = items.count == 1
        return try items.map { item in
            guard let colon = item.lastIndex(of: ":") else {
                return try queue(String(item), weight: nil, place: place, isOnly: isOnly)
            }
            guard let weight = Int(item[item.index(after: colon)...]), (1...1000).contains(weight) else {
                throw Settings.mistake(
                    at: place, "\(item) must be a name, or a name, a colon and a weight from 1 to 1000")
            }
            return try queue(String(item[..<colon]), weight: weight, place: place, isOnly: isOnly)
        }
    }

    /// - Parameters:
    ///   - weight: `nil` for the weight in the queue's settings.
    ///   - place: the place of the queue's name, for an error.
    ///   - isOnly: true if the worker has no other queue.
    func queue(_ name: String, weight: Int?, place: String, isOnly: Bool) throws -> QueueConfiguration {
        // The name is checked first, so that a mistake in it is reported with its place.
        do { _ = try QueueKeys(prefix: redis.prefix, queue: name) } catch {
            throw Settings.mistake(at: place, "\(error)")
        }
        var queue = QueueConfiguration(
            keys: try keys(of: name, isOnly: isOnly), weight: weight ?? settings.number(.weight, queue: name) ?? 1)
        queue.format = try format(of: name)
        settings.fill(&queue.limits, queue: name)
        if let time = settings.variables.steadyTime { queue.limits.steadyTime = time }
        return queue
    }

    /// The format of the first queue's jobs. Unlike ``all()``, it accepts keys in different slots of a Cluster, because the caller only
    /// reads jobs.
    var firstFormat: JobFormat {
        get throws {
            let names = settings.queueNamesOfFile + SettingsVariables.names(settings.value(.queueNames)?.text)
            return try names.first.map { try format(of: $0) } ?? .native
        }
    }

    func writer(of queue: String) -> ProducerFormat {
        settings.text(.format, queue: queue).flatMap(ProducerFormat.init(rawValue:)) ?? .native
    }

    func format(of queue: String) throws -> JobFormat {
        let classes = settings.given(.jobClass, queue: queue)
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
        let list = settings.own(.list, queue: queue) ?? settings.given(.list)
        if let list, !isOnly, settings.own(.list, queue: queue) == nil {
            throw CommandFailure(
                .configuration,
                "\(list.place) names the list of one queue, but there are several; run a worker for each,"
                    + " or set one for each in the file, as queues.<name>.list")
        }
        let keys: QueueKeys
        do {
            keys = try QueueKeys(
                prefix: redis.prefix, queue: queue, list: list?.text ?? writer.list(of: queue), head: writer.head)
        } catch {
            throw CommandFailure(.configuration, list.map { "\($0.place): \(error)" } ?? "\(error)")
        }
        if case .cluster = try redis.topology(), !keys.listIsInSlot { throw Self.otherSlot(keys) }
        return keys
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
