import ArgumentParser
import PushQueue
import PushWorker
import Redis

/// The queue that a command is about.
struct QueueOptions: ParsableArguments {
    @OptionGroup var redis: RedisOptions

    @Option(help: "The queue's name. (APNS_WORKER_QUEUE; default default)")
    var queue: String?

    func keys() throws -> QueueKeys {
        let queues = try QueueList.parse(queue, prefix: redis.keyPrefix)
        guard let only = queues.first, queues.count == 1 else {
            throw ValidationError("APNS_WORKER_QUEUE names \(queues.count) queues; say which one with --queue")
        }
        return only.keys
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

    func queues() throws -> [QueueConfiguration] { try QueueList.parse(queue, prefix: redis.keyPrefix) }

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
    static func parse(_ flag: String?, prefix: String) throws -> [QueueConfiguration] {
        let text = Setting.text(flag, "APNS_WORKER_QUEUE") ?? "default"
        let queues = try text.split(separator: ",", omittingEmptySubsequences: false).map { item in
            let (name, weight) = try split(item)
            do {
                return QueueConfiguration(keys: try QueueKeys(prefix: prefix, queue: name), weight: weight)
            } catch {
                throw ValidationError("APNS_WORKER_QUEUE (or --queue): \(error)")
            }
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
