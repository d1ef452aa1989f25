import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The producers of deploy/producers")
    struct ProducerTests {
        private static let token = "00FC13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
        /// A text that breaks programs that merely concatenate strings.
        private static let text = ##"a"b\c </x> $(id) `id` %s %n '; {"x":1} Grüße 😀 \u00e9 \##u{2028}"##

        enum Producer: String, CaseIterable {
            case shell = "enqueue.sh"
            case python = "enqueue.py"
            case node = "enqueue.mjs"
            case ruby = "enqueue.rb"
            case go = "enqueue.go"
            case php = "enqueue.php"
            case sidekiq = "sidekiq.rb"
            case celery = "celery_task.py"
        }

        private static func path(_ producer: Producer) -> String {
            Repository.path("deploy/producers/\(producer.rawValue)")
        }

        private static let goProgram = Task { try await ForeignProgram.build([path(.go)], as: "producer") }

        /// Runs a producer with the libraries from Debian's packages.
        private func run(
            _ producer: Producer, _ url: String, _ arguments: [String], _ more: [String: String] = [:],
            fails: Bool = false
        ) async throws -> String {
            let path = Self.path(producer)
            let authority = try TestCertificates.path("ca.pem")
            // Node.js has its own variable for authorities. The other languages use the variable of OpenSSL.
            var environment = [
                "LANG": "C.UTF-8", "REDIS_URL": url, "SSL_CERT_FILE": authority, "NODE_EXTRA_CA_CERTS": authority,
            ]
            let command: [String]
            let workshop = try TemporaryFolder()
            switch producer {
            case .shell: command = ["/bin/sh", path]
            case .python, .celery: command = ["/usr/bin/python3", path]
            case .ruby, .sidekiq: command = ["/usr/bin/ruby", path]
            case .php: command = ["/usr/bin/php", path]
            case .go: command = [try await Self.goProgram.value]
            case .node:
                // Node searches for packages only in the folder of the program.
                let packages = workshop.url.appending(path: "node_modules")
                try FileManager.default.createDirectory(at: packages, withIntermediateDirectories: true)
                try FileManager.default.createSymbolicLink(
                    atPath: packages.appending(path: "redis").path, withDestinationPath: "/usr/share/nodejs/redis")
                let copy = workshop.path(producer.rawValue)
                try FileManager.default.copyItem(atPath: path, toPath: copy)
                environment["NODE_PATH"] = "/usr/share/nodejs"
                command = ["/usr/bin/node", copy]
            }
            let process = try ChildProcess(command + arguments, environment: environment.merging(more) { $1 })
            let ending = try await process.wait()
            withExtendedLifetime(workshop) {}
            try #require((ending == .exited(0)) != fails, "\(process.errors)\(process.output)")
            // Drops the lines that Sidekiq 7.3 prints about its connection.
            return process.output.split(separator: "\n", omittingEmptySubsequences: false)
                .filter { !$0.contains(" INFO: Sidekiq ") }.joined(separator: "\n")
        }

        @Test("enqueue any text unchanged", arguments: Producer.allCases)
        func producer(_ producer: Producer) async throws {
            let redis = try RedisServer()
            let record = redis.directory.appending(path: "record")
            let simulator = try await SimulatorProcess(options: ["--record", record.path])
            let output = try await run(producer, redis.url, [Self.token, Self.text])
            let isTask = producer == .celery
            let list = producer == .sidekiq ? "queue:push" : "push:{default}:jobs"
            let jobs = try redis.run("LRANGE", list, "0", "-1").strings()
            #expect(jobs.count == (isTask ? 1 : 104))
            #expect(jobs.allSatisfy { $0.contains(/"enqueued_at": ?1/) }, "\(jobs.first ?? "")")
            let all = "enqueued 104 jobs; the token is not known to be invalid\n"
            #expect(output == (isTask ? "enqueued 1 job\n" : all))

            let format =
                producer == .sidekiq ? ["--queue", "push", "--format", "sidekiq", "--job-class", "PushJob"] : []
            let worker = try WorkerProcess(redis, simulator, format + ["--exit-when-done"])
            let summary = try await worker.finish()
            // The producer enqueues two positions of a courier; only the last is sent.
            #expect(summary.delivered == (isTask ? 1 : 103) && summary.dropped == (isTask ? 0 : 1), "\(worker.log)")
            _ = try await simulator.stop()
            let queue = try QueueContents(redis, queue: producer == .sidekiq ? "push" : "default")
            #expect(queue.isSettled && queue.dead.isEmpty)

            let received = try jsonObjects(String(contentsOf: record, encoding: .utf8))
            func aps(_ notification: [String: Any]) -> [String: Any]? {
                (notification["payload"] as? [String: Any])?["aps"] as? [String: Any]
            }
            let texts = received.map { aps($0)?["alert"] as? String }
            #expect(texts.count { $0 == Self.text } == (isTask ? 1 : 101), "\(texts.first as Any)")
            guard !isTask else { return }
            #expect(texts.contains("1 km") && !texts.contains("2 km"))
            let whole = try #require(received.first { $0["collapse_id"] as? String == "order-1742" })
            let content = try #require(aps(whole))
            #expect(content["alert"] as? [String: String] == ["title": "Your order", "body": Self.text])
            #expect(content["badge"] as? Int == 1 && content["sound"] as? String == "default")
            #expect(whole["token"] as? String == Self.token.lowercased() && whole["priority"] as? Int == 10)
            #expect((whole["payload"] as? [String: Any])?["order"] as? Int == 1742)
            #expect(Set(received.compactMap { $0["token"] as? String }).count == 101)

            let token = Self.token.lowercased()
            let shard = (Int(token.prefix(4), radix: 16) ?? 0) * 16 >> 16
            let divided = "push:{shared.16.\(shard)}:invalid-tokens"
            let digit = token.dropFirst(4).prefix(1)
            let answers = [
                ("push:{shared}:invalid-tokens", "", "production"),
                ("push:{shared}:invalid-tokens:sandbox", "", "sandbox"),
                ("\(divided):\(digit)", "16", "production"), ("\(divided):sandbox:\(digit)", "16", "sandbox"),
            ]
            for (set, shards, environment) in answers {
                try redis.run("FLUSHALL")
                if !shards.isEmpty { try redis.run("SET", "push:{shared}:invalid-tokens:division", shards) }
                try redis.run("SADD", set, token)
                for asked in ["production", "sandbox"] {
                    let output = try await run(producer, redis.url, [Self.token], ["APNS_ENVIRONMENT": asked])
                    let isKnown = asked == environment
                    #expect(
                        output
                            == "enqueued 104 jobs; the token is \(isKnown ? "invalid" : "not known to be invalid")\n",
                        "\(set), \(asked)")
                }
            }
        }

        @Test("honour the URL's database, user, password and TLS", arguments: Producer.allCases)
        func url(_ producer: Producer) async throws {
            let redis = try RedisServer(tls: true)
            let password = "p@ss/#?%:+ w=1"
            try redis.run("ACL", "SETUSER", "producer", "on", ">\(password)", "~*", "&*", "+@all")
            let encoded = try #require(password.addingPercentEncoding(withAllowedCharacters: .alphanumerics))
            let url = "rediss://producer:\(encoded)@localhost:\(try #require(redis.tlsPort))/9"
            _ = try await run(producer, url, [Self.token, Self.text])
            #expect(try redis.run("DBSIZE").number == 0)
            let list = producer == .sidekiq ? "queue:push" : "push:{default}:jobs"
            let length = "redis.call('SELECT', '9') return redis.call('LLEN', ARGV[1])"
            #expect(try redis.run("EVAL", length, "0", list).number == (producer == .celery ? 1 : 104))
        }

        @Test("honour a password without a user, and fail if Redis refuses the jobs", arguments: Producer.allCases)
        func refused(_ producer: Producer) async throws {
            let redis = try RedisServer(password: "sesame")
            _ = try await run(producer, redis.url, [Self.token, Self.text])
            let list = producer == .sidekiq ? "queue:push" : "push:{default}:jobs"
            #expect(try redis.run("LLEN", list).number == (producer == .celery ? 1 : 104))
            try redis.run("SET", list, "not a list")
            _ = try await run(producer, redis.url, [Self.token, Self.text], fails: true)
        }
    }
}
