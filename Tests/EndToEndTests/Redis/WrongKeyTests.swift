import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Each key of `docs/redis.md` has a wrong type while a worker runs.
    @Suite("A key of another type")
    struct WrongKeyTests {
        private struct Key: Sendable { let pattern, type: String }

        private static let types = ["string", "list", "set", "sorted set", "hash", "stream"]

        /// The keys of the tables in `docs/redis.md`.
        private static func schema() throws -> [Key] {
            let text = try Repository.text("docs/redis.md")
            return text.split(separator: "\n").compactMap { line in
                let cells = line.split(separator: "|").map { $0.trimmingCharacters(in: .whitespaces) }
                guard cells.count == 3, cells[0].hasPrefix("`push:{"), types.contains(cells[1]) else { return nil }
                return Key(pattern: String(cells[0].dropFirst().dropLast()), type: cells[1])
            }
        }

        private static func write(_ type: String, to key: String) -> [String] {
            switch type {
            case "string": ["SET", key, "x"]
            case "list": ["RPUSH", key, "x"]
            case "set": ["SADD", key, "x"]
            case "sorted set": ["ZADD", key, "1", "x"]
            case "hash": ["HSET", key, "x", "1"]
            default: ["XADD", key, "*", "x", "1"]
            }
        }

        /// Runs a worker while a key has another type.
        /// - Returns: a description of the fault; `nil` if there is none.
        private static func fault(
            of key: Key, as type: String, _ number: Int, _ redis: RedisServer, _ port: Int
        ) async throws -> String? {
            let prefix = "p\(number)"
            let worker = try WorkerProcess(
                redis: redis.url, endpoint: port,
                environment: [
                    "APNS_WORKER_PREFIX": prefix, "APNS_WORKER_MAX_PER_SECOND": "1000", "APNS_WORKER_RESULTS": "all",
                ])
            var lane = ""
            try await eventually("\(prefix) has joined") {
                lane = try redis.run("ZRANGE", "\(prefix):{default}:workers", "0", "0").elements?.first?.text ?? ""
                return !lane.isEmpty
            }
            let now = Date()
            let day = now.formatted(.iso8601.year().month().day())
            let minutes = (0...1).map {
                now.addingTimeInterval(60 * Double($0)).formatted(
                    .iso8601.year().month().day().time(includingFractionalSeconds: false)
                ).prefix(16)
            }
            let keys = minutes.map { minute in
                [
                    "push:": prefix + ":", "<lane>": lane, "<process>": String(lane.dropLast(2)), "<day>": day,
                    "<minute>": String(minute), "<id>": "u", "<name>": "c", "<app>": "default", "<team>": "TEAM123456",
                    "<key>": "ABC123DEFG",
                ].reduce(key.pattern) { $0.replacingOccurrences(of: $1.key, with: $1.value) }
            }
            for key in Set(keys) {
                try redis.run("DEL", key)
                try redis.connect().run(write(type, to: key).map { Array($0.utf8) })
            }
            let jobs = (0..<9).map { index in
                let members = [
                    "", #""campaign":"c","#, #""unique_for":"60s","id":"u\#(index / 3 == 2 ? "" : "\(index)")","#,
                ][index % 3]
                return #"{\#(members)"token":"\#(TestJob.token("a", index))","alert":"x"}"#
            }
            try redis.connect().run((["RPUSH", "\(prefix):{default}:jobs"] + jobs).map { Array($0.utf8) })
            func delivered() throws -> Int {
                Int(try redis.run("HGET", "\(prefix):{default}:stats:\(day)", "delivered").text ?? "") ?? 0
            }
            let limit = ContinuousClock.now + .seconds(10)
            while try delivered() < jobs.count, ContinuousClock.now < limit {
                try await Task.sleep(for: .milliseconds(100))
            }
            let view = try await FleetView(redis.url, "--prefix", prefix)
            let isDelivered = try delivered() == jobs.count
            let isNamed = view.problems.contains { problem in keys.contains { problem.message.contains($0) } }
            let check = try await redis.apnsWorker(["status", "--check", "--prefix", prefix])
            _ = try await worker.stop()
            if isNamed, check.ending == .exited(2) { return nil }
            // A wrong key of one job, minute or command must not stop other jobs.
            if isDelivered, key.pattern.contains("<") { return nil }
            // The worker has replaced the wrong key by the size of the dead letters.
            if isDelivered, key.pattern.hasSuffix(":dead-bytes"), try redis.run("TYPE", keys[0]).text == "string" {
                return nil
            }
            return "\(key.pattern) as a \(type): delivered \(try delivered()), \(view.kinds), \(check.ending)"
        }

        @Test("is named by `status` and by the exit status of `--check`, whichever key it is")
        func matrix() async throws {
            let (redis, simulator) = try await startServers()
            let schema = try Self.schema()
            #expect(schema.count > 20)
            // Each key gets one wrong type, because Redis refuses all wrong types in the same way.
            var cases = schema.enumerated().map { index, key in
                let others = ["string", "list", "hash"].filter { $0 != key.type }
                return (key, others[index % others.count])
            }
            var number = 0
            while !cases.isEmpty {
                let batch = cases.prefix(12)
                cases.removeFirst(batch.count)
                let faults = try await withThrowingTaskGroup(of: String?.self) { group in
                    for (key, type) in batch {
                        number += 1
                        group.addTask { [number] in
                            try await Self.fault(of: key, as: type, number, redis, simulator.port)
                        }
                    }
                    return try await group.reduce(into: []) { $0.append($1) }
                }
                for fault in faults.compactMap({ $0 }) { Issue.record("\(fault)") }
            }
        }
    }
}
