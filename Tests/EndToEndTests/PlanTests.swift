import Foundation
import TestSupport
import Testing

@testable import Operations
@testable import apns_worker

extension EndToEnd {
    @Suite("apns-worker plan")
    struct PlanTests {
        private static let constants = """
            {"machine": "example", "commit": "abc", "measured_at": 1795478400000, "answer_ms": 20, "streams": 500,
            "worker_bytes": 33554432, "job_sizes": [
            {"tokens": 1, "job_bytes": 400, "at_once": {"per_second": 100000, "worker_us": 4, "redis_us": 4.63523138347365},
            "delayed": {"per_second": 20000, "worker_us": 8, "redis_us": 7.892556509887895}},
            {"tokens": 1000, "job_bytes": 80000, "at_once": {"per_second": 100000, "worker_us": 2, "redis_us": 0.28513333333333335},
            "delayed": {"per_second": 20000, "worker_us": 4, "redis_us": 0.38813899812498254}}]}
            """

        private static func plan(_ arguments: [String]) async throws -> CommandLineTests.Output {
            let folder = try ConfigurationTests.Folder()
            let file = try folder.write(constants, as: "constants.json")
            return try await CommandLineTests.run(["plan", "--constants", file] + arguments)
        }

        @Test("prints a table, the bottleneck with advice, and the place of the constants")
        func text() async throws {
            try await Self.plan([
                "--tokens", "6M", "--within", "2m", "--job-size", "1k", "--latency", "75ms",
            ]).succeeds().prints(
                """
                6,000,000 notifications within 2 min: 50,000 per second, in 6,000 jobs of 1,000 tokens, with answers after 75 ms

                              needs                                      used                        at most
                workers       2 with 1 lane, 32.0 MiB each               8.8 % of a core per lane    1,000,000 per second
                connections   6, 3 per lane (max_connections)            67 % of 1,000 streams each  75,000 per second
                Redis CPU     1 queue (1 slot)                           1.7 % of a core per queue   4,618,630 per second
                Redis memory  457.7 MiB before the first job is claimed

                Bottleneck: the connections to APNs at 75,000 per second, so all take at least 80 s. Raise max_connections above \
                3, or add lanes.
                Unknown: the connections and the rate that APNs accepts from you. Apple publishes no limits.
                Constants: example, abc, 2026-11-24T00:00:00Z; --measure measures this machine.

                """)
        }

        @Test("prints one JSON object with --json")
        func json() async throws {
            let result = try await Self.plan([
                "--tokens", "6M", "--within", "2m", "--job-size", "1000", "--latency", "75ms", "--json",
            ]).succeeds()
            #expect(result.output.split(separator: "\n").count == 1)
            let plan = try #require(
                try JSONSerialization.jsonObject(with: Data(result.output.utf8)) as? [String: Any])
            let numbers: [String: Double] = [
                "tokens": 6e6, "within_ms": 120_000, "job_size": 1000, "jobs": 6000, "latency_ms": 75,
                "per_second": 50_000, "workers": 2, "lanes": 1, "connections": 3, "streams": 1000, "queues": 1,
                "masters_needed": 1, "worker_cores": 0.175, "worker_bytes": 33_554_432, "in_flight": 4000,
                "redis_cores": 0.017161067811865476, "redis_bytes": 480_000_000, "maximum_per_second": 75_000,
                "shortest_ms": 80_000,
            ]
            for (name, value) in numbers {
                let found = try #require(plan[name] as? Double, "\(name)")
                #expect(abs(found - value) <= 1e-9 * value, "\(name)")
            }
            #expect(plan["bottleneck"] as? String == "connections" && plan["fits"] as? Bool == true)
            #expect(plan["advice"] as? String == "Raise max_connections above 3, or add lanes.")
            #expect(
                plan["limits"] as? [String: Int]
                    == ["workers": 1_000_000, "connections": 75_000, "redis": 4_618_630])
            let constants = try JSONSerialization.jsonObject(with: Data(Self.constants.utf8))
            #expect(plan["constants"] as? NSDictionary == constants as? NSDictionary)
            let others = Set(plan.keys).subtracting(numbers.keys)
            #expect(others == ["bottleneck", "fits", "advice", "limits", "constants"])
        }

        @Test("exits with 1 if the fleet is too slow, and a Cluster divides the work")
        func tooSlow() async throws {
            let work = ["--tokens", "2.16B", "--within", "1h", "--latency", "75ms"]
            try await Self.plan(work).ends(
                1,
                "TOO SLOW. Bottleneck: the CPU of Redis at 250,000 per second, so all take at least 2 h 24 min. Use larger jobs"
            )
            try await Self.plan(work + ["--topology", "sentinel", "--json"]).ends(1, "\"fits\":false")
            try await Self.plan(work + ["--topology", "cluster:6"]).succeeds(
                "4 queues (4 slots), each on a master of its own")
        }

        @Test("a given part is not calculated")
        func given() async throws {
            try await Self.plan([
                "--tokens", "100k", "--within", "10s", "--latency", "20ms", "--workers", "1", "--lanes", "1",
                "--connections", "1", "--streams", "500",
            ]).succeeds("1 with 1 lane", "1, 1 per lane", "50 % of 500 streams each", "20,000 per second")
        }

        @Test("uses the constants of the program without a file")
        func program() async throws {
            let constants = try PlanConstants.ofProgram()
            try await CommandLineTests.run(["plan", "--tokens", "5M", "--within", "2m", "--job-size", "1000"]).succeeds(
                "5,000,000 notifications within 2 min: 41,667 per second, in 5,000 jobs of 1,000 tokens",
                "Constants: \(constants.machine), \(constants.commit), ")
        }

        @Test(
            "numbers without a meaning are refused, with the flag or the part",
            arguments: [
                (["--tokens", "0"], "tokens must be from 1 to"), (["--tokens", "-5"], "--tokens"),
                (["--tokens", "1e300"], "--tokens is 1e300"), (["--tokens", "9007199254740993"], "--tokens is"),
                (["--tokens", "5m"], "--tokens is 5m"), (["--tokens", "1.5"], "--tokens is 1.5"),
                (["--tokens", "2T"], "--tokens is 2T"), (["--tokens", "9999999B"], "--tokens is"),
                (["--tokens", "2000B"], "tokens must be from 1 to"), (["--within", "0s"], "--within is 0s"),
                (["--within", "1e300"], "--within is 1e300"), (["--within", "2M"], "--within is 2M"),
                (["--within", "400d"], "--within is 400d"), (["--job-size", "0"], "job size must be from 1 to"),
                (["--job-size", "2M"], "job size must be"), (["--latency", "20m"], "--latency is 20m"),
                (["--latency", "-1"], "--latency"), (["--topology", "cluster"], "--topology is cluster"),
                (["--topology", "cluster:0"], "masters must be from 1 to"),
                (["--topology", "cluster:-9223372036854775808"], "masters must be"),
                (["--topology", "cluster:1e300"], "--topology is cluster:1e300"),
                (["--workers", "0"], "workers must be"),
                (["--lanes", "257"], "lanes must be"),
                (["--connections", "9223372036854775807"], "connections must be"),
                (["--streams", "0"], "streams must be"), (["--constants", "missing.json"], "cannot read missing.json"),
                (["--constants", "/etc/passwd"], "/etc/passwd does not have the constants"),
                (["--constants", "x", "--measure"], "cannot be combined"),
                (["--measure"], "--measure writes to Redis"),
            ])
        func refused(_ arguments: [String], _ words: String) async throws {
            let needed = [("--tokens", "5M"), ("--within", "2m")].filter { !arguments.contains($0.0) }
            try await CommandLineTests.run(["plan"] + needed.flatMap { [$0, $1] } + arguments).fails(64, words)
        }

        @Test(
            "counts have factors",
            arguments: [
                ("1", 1), ("1000", 1000), ("200k", 200_000), ("5M", 5_000_000), ("1.5B", 1_500_000_000),
                ("0.25k", 250), ("007", 7), ("9007199B", 9_007_199_000_000_000), ("", nil), ("k", nil), (".5k", nil),
                ("1.k", nil), ("1.2.3M", nil), ("0.0001k", nil), ("5 M", nil), ("+5", nil), ("٥", nil), ("5K", nil),
            ] as [(String, Int?)])
        func counts(_ text: String, _ number: Int?) { #expect(CountText.number(text) == number) }

        // MARK: Measuring

        private static let measured = ["plan", "--tokens", "5M", "--within", "2m", "--measure"]
        private static let fewer = ["--measured-notifications", "4000"]

        @Test("--measure measures this machine, and leaves Redis as it was")
        func measure() async throws {
            let redis = try RedisServer()
            try redis.run("RPUSH", "push:{default}:jobs", "a job of another program")
            let process = try ChildProcess(
                BuiltProgram.path("apns-worker"), Self.measured + Self.fewer + ["--json", "--redis", redis.url])
            let ending = try await process.wait(within: .seconds(220))
            // A slow machine may need more than one Redis has.
            #expect(ending == .exited(0) || ending == .exited(1), "\(process.errors)")
            struct Plan: Decodable { let constants: PlanConstants }
            let plan = try JSONDecoder().decode(Plan.self, from: Data(process.output.utf8))
            #expect(plan.constants.jobSizes.map(\.tokens) == [1, 10, 100, 1000])
            #expect(plan.constants.measuredAt > 1_795_000_000_000 && plan.constants.machine.contains("core"))
            let bytes = plan.constants.jobSizes.map(\.jobBytes)
            #expect(bytes == bytes.sorted() && (400...1000).contains(bytes[0]) && bytes[3] > 64_000)
            #expect(try redis.run("KEYS", "*") == .array(["push:{default}:jobs"]))
            #expect(try redis.run("LRANGE", "push:{default}:jobs", "0", "-1") == .array(["a job of another program"]))

            let object = try #require(
                try JSONSerialization.jsonObject(with: Data(process.output.utf8)) as? [String: Any])
            let folder = try ConfigurationTests.Folder()
            let text = String(
                decoding: try JSONSerialization.data(withJSONObject: object["constants"] ?? [:]), as: UTF8.self)
            let file = try folder.write(text, as: "constants.json")
            let again = try await CommandLineTests.run(
                ["plan", "--tokens", "5M", "--within", "2m", "--json", "--constants", file])
            #expect(again.ending == ending && again.output == process.output)
        }

        @Test("--measure deletes its keys when it is interrupted")
        func interrupted() async throws {
            let redis = try RedisServer()
            try redis.run("SET", "push:plan", "of another program")
            let process = try ChildProcess(BuiltProgram.path("apns-worker"), Self.measured + ["--redis", redis.url])
            try await eventually("it has keys") {
                if let ending = process.ending { throw process.failure("ended with \(ending)") }
                return try redis.run("DBSIZE").number ?? 0 > 2
            }
            process.send(SIGINT)
            #expect(try await process.wait() == .exited(130), "\(process.errors)")
            #expect(process.output.isEmpty)
            #expect(try redis.run("KEYS", "*") == .array(["push:plan"]))
        }

        @Test("--measure works on a Cluster, and reports a Redis that cannot be reached")
        func topologies() async throws {
            let cluster = try await RedisCluster()
            let process = try ChildProcess(
                BuiltProgram.path("apns-worker"),
                Self.measured + Self.fewer + ["--topology", "cluster:3", "--redis", cluster.url])
            #expect(try await process.wait(within: .seconds(220)) == .exited(0), "\(process.errors)")
            #expect(process.output.contains("(this machine).\n"), "\(process.output)")
            for key in ["{default}", "{shared}"] {
                let owner = try cluster.owner(ofSlot: cluster.slot(of: key))
                #expect(try owner.run("DBSIZE") == 0)
            }
            try await CommandLineTests.run(
                Self.measured + ["--redis", "redis://127.0.0.1:1", "--timeout", "1s"]
            ).fails(69, "127.0.0.1:1")
        }
    }
}
