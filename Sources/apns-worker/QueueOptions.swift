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

    func keys() throws -> QueueKeys { try configuration().keys }

    func configuration() throws -> QueueConfiguration {
        let queues = try QueueList.parse(queue, redis, format)
        guard let only = queues.first, queues.count == 1 else {
            throw ValidationError("APNS_WORKER_QUEUE names \(queues.count) queues; say which one with --queue")
        }
        return only
    }

    /// Does something with the queue over a client that is ready, and is closed then.
    /// - Throws: what `body` throws; an error of Redis as one that is told as a mistake of usage is.
    func withClient(_ body: (RedisClient, QueueKeys) async throws -> Void) async throws {
        let keys = try keys()
        try await redis.withClient(for: keys.jobs) { try await body($0, keys) }
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

    func queues() throws -> [QueueConfiguration] { try QueueList.parse(queue, redis, format) }

    func order() throws -> QueueOrder {
        let text = Setting.text(queueOrder, "APNS_WORKER_QUEUE_ORDER") ?? QueueOrder.weighted.rawValue
        guard let order = QueueOrder(rawValue: text) else {
            let known = QueueOrder.allCases.map(\.rawValue).joined(separator: " or ")
            throw ValidationError("APNS_WORKER_QUEUE_ORDER (or --queue-order) is \(text); it has to be \(known)")
        }
        return order
    }
}

/// `name[:weight]`, and more of them after commas.
private enum QueueList {
    static func parse(
        _ flag: String?, _ redis: RedisOptions, _ options: FormatOptions
    ) throws -> [QueueConfiguration] {
        let text = Setting.text(flag, "APNS_WORKER_QUEUE") ?? "default"
        let format = try options.jobFormat()
        let items = text.split(separator: ",", omittingEmptySubsequences: false)
        let queues = try items.map { item in
            let (name, weight) = try split(item)
            let (list, head) = try options.list(of: name, isOnly: items.count == 1)
            do {
                let keys = try QueueKeys(prefix: redis.keyPrefix, queue: name, list: list, head: head)
                var queue = QueueConfiguration(keys: keys, weight: weight)
                queue.format = format
                return queue
            } catch {
                throw ValidationError(
                    list == nil
                        ? "APNS_WORKER_QUEUE (or --queue): \(error)"
                        : "APNS_WORKER_QUEUE and APNS_WORKER_LIST (or --queue and --list): \(error)")
            }
        }
        if case .cluster = try redis.topology(), let queue = queues.first(where: { !$0.keys.listIsInSlot }) {
            throw FormatOptions.otherSlot(queue.keys)
        }
        let names = queues.map(\.keys.queue)
        if let twice = names.first(where: { name in names.filter { $0 == name }.count > 1 }) {
            throw ValidationError("APNS_WORKER_QUEUE (or --queue) names the queue \(twice) twice")
        }
        return queues
    }

    private static func split(_ item: Substring) throws -> (name: String, weight: Int) {
        guard let colon = item.lastIndex(of: ":") else { return (String(item), 1) }
        let (name, number) = (item[..<colon], item[item.index(after: colon)...])
        guard let weight = Int(number), (1...1000).contains(weight) else {
            throw ValidationError(
                "APNS_WORKER_QUEUE (or --queue): \(item) has to be a name, or a name, a colon and a weight from 1 to 1000"
            )
        }
        return (String(name), weight)
    }
}
