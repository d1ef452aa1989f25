import ArgumentParser
import PushQueue
import PushWorker
import Redis

/// The queue that a command is about.
struct QueueOptions: ParsableArguments {
    @OptionGroup var redis: RedisOptions

    @Option(help: "The queue's name. (APNS_WORKER_QUEUE; default default)")
    var queue: String?

    @OptionGroup var format: FormatOptions

    /// All settings of a command that has these flags only.
    func settings() throws -> Settings {
        try redis.configuration.settings(redis.given, SettingKey.given([(.queueNames, queue)]), format.given)
    }

    /// The queue with all that is said of it.
    func only(_ settings: Settings) throws -> QueueConfiguration {
        let queues = try settings.queues()
        guard let only = queues.first, queues.count == 1 else {
            throw ValidationError("APNS_WORKER_QUEUE names \(queues.count) queues; say which one with --queue")
        }
        return only
    }

    /// Does something with the queue over a client that is ready, and is closed then.
    /// - Throws: what `body` throws; an error of Redis as one that is told as a mistake of usage is.
    func withClient(_ body: (RedisClient, QueueKeys) async throws -> Void) async throws {
        try await withClient(settings(), body)
    }

    /// The same for a command that has read its settings already.
    func withClient(
        _ settings: Settings, _ body: (RedisClient, QueueKeys) async throws -> Void
    ) async throws {
        let keys = try only(settings).keys
        try await settings.withClient(for: keys.jobs) { try await body($0, keys) }
    }
}

/// The queues that a worker takes jobs from.
struct QueuesOptions: ParsableArguments {
    @OptionGroup var redis: RedisOptions

    @Option(
        help: """
            The queues to take jobs from, each with its weight, such as critical:6,default:3,bulk:1. \
            (APNS_WORKER_QUEUE; default default)
            """)
    var queue: String?

    @Option(
        help: """
            When several queues have work: weighted, each has its share, or strict, the first has all it can use. \
            (APNS_WORKER_QUEUE_ORDER; default weighted)
            """)
    var queueOrder: String?

    @OptionGroup var format: FormatOptions

    /// What the flags say.
    var given: [SettingKey: String] {
        SettingKey.given([(.queueNames, queue), (.queueOrder, queueOrder)]).merging(redis.given) { $1 }
            .merging(format.given) { $1 }
    }
}
