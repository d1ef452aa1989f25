import ArgumentParser
import FoundationEssentials
import PushQueue
import Redis

/// A setting that a flag or an environment variable gives, the flag first.
enum Setting {
    static func text(_ flag: String?, _ variable: String) -> String? {
        let environment = ProcessInfo.processInfo.environment
        if let flag { return flag }
        // An empty variable is how compose files and shells say "not set".
        if let value = environment[variable], !value.isEmpty { return value }
        return nil
    }

    static func number(_ flag: Int?, _ variable: String, in range: ClosedRange<Int>) throws -> Int? {
        var value = flag
        if flag == nil, let text = text(nil, variable) {
            guard let number = Int(text) else {
                throw ValidationError("\(variable) is not a whole number; it has to be one from \(range)")
            }
            value = number
        }
        guard let value else { return nil }
        guard range.contains(value) else {
            throw ValidationError("\(variable) (or its flag) is \(value); it has to be from \(range)")
        }
        return value
    }

    /// A file's bytes.
    static func file(_ path: String, for what: String) throws -> [UInt8] {
        do {
            return Array(try Data(contentsOf: URL(filePath: path)))
        } catch {
            throw ValidationError("cannot read the \(what) \(path): does it exist, and may this user read it?")
        }
    }
}

/// Where the queue is: the same flags for every command.
struct QueueOptions: ParsableArguments {
    @Option(
        help: "Redis, as redis://[user:password@]host:port/db. (APNS_WORKER_REDIS_URL; default redis://127.0.0.1:6379)")
    var redis: String?

    @Option(help: "The queue's name. (APNS_WORKER_QUEUE; default default)")
    var queue: String?

    @Option(help: "What all keys in Redis begin with. (APNS_WORKER_PREFIX; default push)")
    var prefix: String?

    func endpoint() throws -> RedisEndpoint {
        let url = Setting.text(redis, "APNS_WORKER_REDIS_URL") ?? "redis://127.0.0.1:6379"
        do {
            return try RedisEndpoint(url: url)
        } catch {
            throw ValidationError("APNS_WORKER_REDIS_URL (or --redis): \(error)")
        }
    }

    func keys() throws -> (QueueKeys, SharedKeys) {
        let prefix = Setting.text(prefix, "APNS_WORKER_PREFIX") ?? "push"
        do {
            let keys = try QueueKeys(prefix: prefix, queue: Setting.text(queue, "APNS_WORKER_QUEUE") ?? "default")
            return (keys, SharedKeys(prefix: prefix))
        } catch {
            throw ValidationError("\(error)")
        }
    }
}
