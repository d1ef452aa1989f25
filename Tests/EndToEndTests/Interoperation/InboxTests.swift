import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The inbox of run --simulate")
    struct InboxTests {
        private func worker(
            _ redis: RedisServer, _ options: [String] = [], environment: [String: String] = [:]
        ) throws -> WorkerProcess {
            try WorkerProcess(
                redis: redis.url, endpoint: 1, options: ["--simulate"] + options, environment: environment)
        }

        /// Returns the address of the inbox from the log.
        private func link(_ worker: WorkerProcess) async throws -> String {
            var link: String?
            try await worker.process.until("the link is printed") {
                link = worker.log.split(separator: "\n").first { $0.hasPrefix("inbox  http://") }.map {
                    String($0.dropFirst("inbox  ".count))
                }
                return link != nil
            }
            return try #require(link)
        }

        @Test("prints a link to the inbox and a line per push, and ignores settings for the real APNs")
        func terminal() async throws {
            let redis = try RedisServer()
            // `WorkerProcess` adds a key, an endpoint and an authority, which the worker also ignores.
            let worker = try worker(
                redis, ["--simulate-rule", "prefix=dead,answer=410"],
                environment: [
                    "APNS_WORKER_ENDPOINT": "production", "APNS_WORKER_KEY_PASSPHRASE_FILE": "/nowhere/passphrase",
                    "APNS_WORKER_PROXY": "http://127.0.0.1:1", "HTTPS_PROXY": "http://127.0.0.1:1",
                ])
            let link = try await link(worker)
            try await worker.logs("simulation_started", "inbox=\(link)")
            try await worker.logs(
                "simulation_ignored_settings", "APNS_WORKER_ENDPOINT", "APNS_WORKER_KEY,",
                "APNS_WORKER_KEY_PASSPHRASE_FILE", "APNS_WORKER_PROXY", "HTTPS_PROXY")
            let curl = try ChildProcess(
                "/usr/bin/curl", ["--silent", "--show-error", "--noproxy", "*", "--header", "Accept: text/html", link])
            #expect(try await curl.wait() == .exited(0))
            #expect(curl.output.hasPrefix("<!doctype html>") && curl.output.contains("Nothing was received yet."))
            try redis.push([
                TestJob.text(TestJob.token("aa", 1)), TestJob.text(TestJob.token("dead", 2)),
                #"{"token":"\#(TestJob.token("bb", 3))","alert":{"title":"Your order","body":"On\nits\u001b way"}}"#,
            ])
            try await eventually("three lines") {
                [
                    "✓ 200  aa000000…  alert \"Hello 000001\"  com.example.app  apns-id ",
                    "✗ 410 Unregistered  dead0000…  alert \"",
                ].allSatisfy(worker.log.contains)
                    && worker.log.contains(#"✓ 200  bb000000…  alert "Your order — On its\u{1B} way"  com.example.app"#)
            }
            let account = try await worker.stop()
            #expect(account.delivered == 2 && account.invalidToken == 1)
        }

        @Test("prints no lines if they are not wanted, or if programs read the log")
        func noLines() async throws {
            let redis = try RedisServer()
            try redis.push(TestJob.many(20))
            let quiet = try worker(redis, ["--simulate-no-lines", "--exit-when-done"])
            #expect(try await quiet.finish().delivered == 20)
            let lines = quiet.log.split(separator: "\n")
            #expect(lines.contains { $0.hasPrefix("inbox  http://") } && !quiet.log.contains("✓"), "\(quiet.log)")
            try redis.push(TestJob.many(20, prefix: "f"))
            let json = try worker(redis, ["--exit-when-done"], environment: ["APNS_WORKER_LOG_FORMAT": "json"])
            #expect(try await json.finish().delivered == 20)
            for line in json.log.split(separator: "\n") {
                #expect(throws: Never.self) { try JSONSerialization.jsonObject(with: Data(line.utf8)) }
            }
            #expect(json.log.contains(#""inbox":"http://127.0.0.1:"#))
        }

        @Test("prints all pushes of a worker that ends, up to 50 per second, and then their number")
        func flood() async throws {
            let redis = try RedisServer()
            try redis.push(TestJob.many(3000))
            let worker = try worker(redis, ["--exit-when-done"])
            #expect(try await worker.finish().delivered == 3000)
            let lines = worker.log.split(separator: "\n")
            let printed = lines.count { $0.hasPrefix("✓ 200  ") }
            let left = lines.filter { $0.hasPrefix("… and ") }.reduce(0) { $0 + (Int($1.filter(\.isNumber)) ?? 0) }
            #expect(printed >= 50 && printed + left == 3000, "\(printed) \(left)")
        }

        @Test("accepts apps for both environments of one topic, as a file for production has them")
        func environments() async throws {
            let redis = try RedisServer()
            let worker = try worker(
                redis, ["--exit-when-done"],
                environment: [
                    "APNS_WORKER_APPS": "live,test", "APNS_WORKER_APPS_LIVE_ENDPOINT": "production",
                    "APNS_WORKER_APPS_TEST_ENDPOINT": "sandbox",
                ])
            try redis.push([
                TestJob.text(TestJob.token("aa", 1), #""app":"live","#),
                TestJob.text(TestJob.token("bb", 2), #""app":"test","#),
            ])
            try await worker.logs("simulation_ignored_settings", "APNS_WORKER_APPS_LIVE_ENDPOINT")
            try await redis.has(2)
        }

        @Test("apns-simulator prints the link and the lines too", arguments: [[], ["--no-lines"], ["--quiet"]])
        func simulator(options: [String]) async throws {
            let simulator = try await SimulatorProcess(options: ["--control-port", "0"] + options)
            let redis = try RedisServer()
            try redis.push([TestJob.text(TestJob.token("aa", 1))])
            #expect(try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish().delivered == 1)
            _ = try await simulator.stop()
            let errors = simulator.process.errors
            let port = try #require(simulator.controlPort)
            #expect(errors.contains("inbox  http://127.0.0.1:\(port)/\n") == (options != ["--quiet"]))
            #expect(errors.contains("✓ 200  aa000000…  alert \"Hello 000001\"") == options.isEmpty, "\(errors)")
        }

        @Test(
            "works in a browser: live, with buttons, a search and a page per push, and without an error in the console",
            .enabled(
                if: ProcessInfo.processInfo.environment["APNS_WORKER_TEST_BROWSER"] != nil,
                "needs Chromium; set APNS_WORKER_TEST_BROWSER"))
        func browser() async throws {
            let redis = try RedisServer()
            let worker = try worker(redis, ["--request-timeout", "3s"])
            let link = try await link(worker)
            let profile = redis.directory.appending(path: "chromium").path
            let python = ForeignProgram.python("inbox_browser.py")
            let browser = try ChildProcess(
                python + ["--inbox", link, "--redis", "\(redis.port)", "--profile", profile])
            guard try await browser.wait(within: .seconds(240)) == .exited(0) else { throw browser.failure("failed") }
            _ = try await worker.stop()
        }
    }
}
