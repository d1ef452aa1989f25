import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Broadcasts on channels")
    struct ChannelTests {
        private let redis: RedisServer
        private let simulator: SimulatorProcess

        init() async throws {
            (redis, simulator) = try await startServers(simulator: ["--topic", "com.example.app"])
        }

        private func run(
            _ arguments: String..., environment: [String: String] = [:], input: String? = nil
        ) async throws -> CommandLineTests.Output {
            try await CommandLineTests.run(
                arguments, environment: keyEnvironment(redis, simulator).merging(environment) { $1 }, input: input)
        }

        private func output(_ arguments: String..., environment: [String: String] = [:]) async throws -> String {
            try await redis.apnsWorker(
                arguments, environment: keyEnvironment(redis, simulator).merging(environment) { $1 }
            ).succeeds().output
        }

        private func object(_ text: String) throws -> NSDictionary? {
            try JSONSerialization.jsonObject(with: Data(text.utf8)) as? NSDictionary
        }

        private func createChannel(_ storage: String = "none", on other: SimulatorProcess? = nil) async throws -> String
        {
            let environment = ["APNS_WORKER_ENDPOINT": "localhost:\((other ?? simulator).port)"]
            let id = try await output("channels", "create", "--storage", storage, environment: environment)
            return try #require(id.hasSuffix("\n") ? String(id.dropLast()) : nil)
        }

        private func enqueue(_ channel: String, _ more: String...) async throws {
            let state = ["--event", "update", "--timestamp", "now", "--content-state", #"{"score":3}"#]
            _ = try await redis.apnsWorker(["enqueue", "--channel", channel] + state + more).succeeds()
        }

        @Test("are delivered to a channel that a command created, and become dead letters after it is deleted")
        func lifeOfAChannel() async throws {
            let (channel, storing) = (try await createChannel(), try await createChannel("latest"))
            try await enqueue(channel, "--id", "one")
            try await enqueue(storing, "--expiration", "1h", "--priority", "5", "--collapse-id", "c")
            try redis.push(TestJob.many(5))
            // An invalid token has no effect on broadcasts.
            try redis.run("SADD", "push:{shared}:invalid-tokens", TestJob.token("ff", 1), "")
            var account = try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish()
            #expect(account.delivered == 7 && account.dead == 0)
            var accepted = try await simulator.account()
            #expect(accepted.broadcasts == 2 && accepted.acceptedByChannel == [channel: 1, storing: 1])
            #expect(accepted.distinctTokens == 5 && accepted.answers == ["200": 7])

            #expect(
                try await output("channels", "delete", channel, "--yes")
                    == "deleted channel \(channel) of com.example.app (localhost:\(simulator.port))\n")
            try await enqueue(channel, "--id", "two")
            try redis.push(TestJob.many(5, prefix: "1"))
            account = try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish()
            #expect(account.delivered == 5 && account.dead == 1 && account.invalidToken == 0)
            let queue = try QueueContents(redis)
            let letter = try #require(queue.dead.first)
            #expect(queue.dead.count == 1 && letter.reason == "ChannelNotRegistered")
            #expect(String(decoding: letter.original, as: UTF8.self).contains(channel))
            #expect(queue.invalidTokenDetails.isEmpty && queue.isSettled)
            accepted = try await simulator.stop()
            #expect(accepted.broadcasts == 2 && accepted.answers == ["200": 12, "400 ChannelNotRegistered": 1])
        }

        @Test("an app without the capability keeps its broadcasts waiting, and nothing else")
        func notEnabled() async throws {
            let other = try await SimulatorProcess(rules: ["prefix=ab,answer=200", "answer=FeatureNotEnabled"])
            try await enqueue(try await createChannel(on: other))
            let worker = try WorkerProcess(redis: redis.url, endpoint: other.port)
            try await worker.logs("broadcasts_not_enabled")
            try await eventually("the broadcast is put off") { try QueueContents(redis).retries.count == 1 }
            try redis.push(TestJob.many(5, prefix: "ab"))
            try await redis.has(5)
            _ = try await worker.stop()
            let queue = try QueueContents(redis)
            #expect(queue.count("deferred:FeatureNotEnabled") == 1 && queue.dead.isEmpty)
            #expect(!queue.keys.contains("push:{shared}:apps:default:paused"), "\(queue.keys)")
        }

        @Test("--json makes the commands print JSON")
        func json() async throws {
            let place = "localhost:\(simulator.port)"
            let created = try object(try await output("channels", "create", "--storage", "latest", "--json"))
            let id = try #require(created?["channel"] as? String)
            let expected =
                [
                    "bundle_id": "com.example.app", "channel": id, "environment": place, "push_type": "LiveActivity",
                    "storage": "latest",
                ] as NSDictionary
            #expect(created == expected)
            #expect(try object(try await output("channels", "read", "--json", id)) == expected)
            #expect(
                try object(try await output("channels", "list", "--json"))
                    == ["bundle_id": "com.example.app", "channels": [id], "environment": place] as NSDictionary)
            #expect(try await output("channels", "list") == "\(id)\n")
            #expect(
                try await output("channels", "read", id)
                    == "channel \(id) of com.example.app (\(place)) is for LiveActivity and keeps the latest message\n")
            #expect(
                try object(try await output("channels", "delete", "--yes", "--json", id))
                    == ["bundle_id": "com.example.app", "channel": id, "deleted": true, "environment": place]
                    as NSDictionary)
            try await run("channels", "list").succeeds().reports("no channels").prints("")
        }

        @Test("errors name the mistake, its place and a remedy")
        func errors() async throws {
            func fails(
                _ status: Int32, _ words: String, _ arguments: String..., environment: [String: String] = [:],
                input: String? = nil, sourceLocation: SourceLocation = #_sourceLocation
            ) async throws {
                let result = try await CommandLineTests.run(
                    ["channels"] + arguments, environment: keyEnvironment(redis, simulator).merging(environment) { $1 },
                    input: input)
                #expect(result.ending == .exited(status), "\(result)", sourceLocation: sourceLocation)
                #expect(result.errors.contains(words), "\(result)", sourceLocation: sourceLocation)
            }
            try await run("channels", "read", "YQ==").fails(1, "BadPath").prints("")
            try await fails(64, "--yes", "delete", "YQ==", input: "yes\n")
            try await fails(77, "TopicMismatch", "list", "--topic", "com.example.other")
            let nowhere = "localhost:\(try RedisServer.freePort())"
            try await fails(69, "cannot connect to \(nowhere)", "list", "--management-endpoint", nowhere)
            let variable = "APNS_WORKER_MANAGEMENT_ENDPOINT"
            try await fails(78, variable, "list", environment: [variable: "a b"])
            let apps = [
                "APNS_WORKER_APPS": "shop,news", "APNS_WORKER_APPS_SHOP_TOPIC": "com.example.app",
                "APNS_WORKER_APPS_NEWS_TOPIC": "com.example.news",
            ]
            try await fails(64, "--app", "list", environment: apps)
            try await fails(64, "shop, news", "list", "--app", "x", environment: apps)
            _ = try await output("channels", "list", "--app", "shop", environment: apps)
        }

        @Test("an app with the binary gateway has none, and a wrong transport is named")
        func gateway() async throws {
            let certificate = ["APNS_WORKER_TRANSPORT": "gateway", "APNS_WORKER_KEY": ""]
                .merging(try TestCertificates.clientVariables()) { $1 }
            let channels = try await run("channels", "list", environment: certificate)
            #expect(channels.ending == .exited(78) && channels.errors.contains("does not support channels"))
            try await run("channels", "list", environment: ["APNS_WORKER_TRANSPORT": "gateway"]).fails(
                78, "needs a certificate")
            for (name, value, words) in [
                ("TRANSPORT", "pigeon", "http2 or gateway"), ("GATEWAY_FRAME", "3", "simple, enhanced or items"),
                ("GATEWAY_BARRIER", "maybe", "on or off"), ("GATEWAY_CONFIRM_AFTER", "600001", "10m"),
                ("GATEWAY_WINDOW", "0", "GATEWAY_WINDOW"), ("ENDPOINT", "a b", "host:port"),
            ] {
                let wrong = try await run(
                    "channels", "list", environment: certificate.merging(["APNS_WORKER_\(name)": value]) { $1 })
                #expect(wrong.ending == .exited(78) && wrong.errors.contains(words), "\(name): \(wrong.errors)")
            }
        }

        @Test("deleting asks on a terminal, and accepts only yes", arguments: ["yes", "y", "no", ""])
        func asks(answer: String) async throws {
            let channel = try await createChannel()
            let command = "\(try BuiltProgram.path("apns-worker")) channels delete \(channel)"
            // script(1) gives the command a terminal, and types the input.
            let terminal = try ChildProcess(
                "script", ["--quiet", "--return", "--command", command, "/dev/null"],
                environment: keyEnvironment(redis, simulator),
                input: Data((answer + "\n").utf8))
            let ending = try await terminal.wait()
            #expect(terminal.output.contains("Delete channel \(channel) of com.example.app"), "\(terminal.output)")
            #expect(ending == .exited(answer == "yes" ? 0 : 1), "\(terminal.output)")
            #expect(try await output("channels", "list") == (answer == "yes" ? "" : "\(channel)\n"))
        }

        @Test("a certificate works as well as a key")
        func certificate() async throws {
            let simulator = try await SimulatorProcess(options: ["--client-ca", try TestCertificates.path("ca.pem")])
            _ = try await output(
                "channels", "create", "--storage", "none",
                environment: [
                    "APNS_WORKER_ENDPOINT": "localhost:\(simulator.port)", "APNS_WORKER_KEY": "",
                    "APNS_WORKER_TEAM_ID": "",
                ].merging(try TestCertificates.clientVariables()) { $1 })
        }
    }
}
