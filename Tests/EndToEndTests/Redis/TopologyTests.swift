import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Redis topologies")
    struct TopologyTests {
        @Test("a Sentinel failover is followed without a restart, and nothing is lost")
        func sentinel() async throws {
            let set = try await RedisSentinelSet(arguments: ["--min-replicas-to-write", "1"])
            let simulator = try await SimulatorProcess(options: ["--delay", "60ms±40ms"])
            let count = 4000
            try set.master().push(TestJob.many(count))
            // With 600 notifications per second, the worker lives longer than the failover takes.
            let worker = try WorkerProcess(
                redis: set.url, endpoint: simulator.port,
                options: ["--max-connections", "1", "--max-streams", "36", "--exit-when-done"])
            try await eventually("it is at work") { try QueueContents(set.master()).count("delivered") > 200 }
            try await set.failOver()
            try #require(worker.process.ending == nil, "the worker was done before the failover")
            let account = try await worker.finish()
            let queue = try QueueContents(set.master())
            let accepted = try await simulator.stop()
            #expect(queue.isSettled && queue.workers.isEmpty && queue.dead.isEmpty)
            #expect(queue.count("delivered") == count)
            #expect(accepted.distinctTokens == count)
            // The worker repeats writes that were lost with the old master.
            #expect(account.delivered == accepted.accepted)
        }

        @Test("in a Cluster two queues are on two servers, and one that moves is followed")
        func cluster() async throws {
            let cluster = try await RedisCluster()
            let simulator = try await SimulatorProcess(
                rules: ["prefix=dead,answer=410"], options: ["--delay", "60ms±40ms"])
            let queues = ["a", "b"]
            let slots = try queues.map { try cluster.slot(of: "push:{\($0)}:jobs") }
            let owners = try slots.map { try cluster.owner(ofSlot: $0) }
            #expect(owners[0] !== owners[1])
            let count = 2000
            for (index, queue) in queues.enumerated() {
                let jobs = TestJob.many(count, prefix: "\(index)") + TestJob.many(20, prefix: "dead\(index)")
                try await apnsWorker(
                    cluster.url, ["enqueue", "--queue", queue],
                    input: jobs.joined(separator: "\n")
                ).prints("enqueued \(count + 20) jobs on \(queue)\n")
            }
            let worker = try WorkerProcess(
                redis: cluster.url, endpoint: simulator.port,
                options: ["--queue", "a:2,b:1", "--max-connections", "1", "--max-streams", "200", "--exit-when-done"])
            try await eventually("it is at work") { try QueueContents(owners[0], queue: "a").count("delivered") > 200 }
            try cluster.migrate(slot: slots[0], from: owners[0], to: owners[1])
            let account = try await worker.finish()
            for queue in queues {
                let contents = try QueueContents(owners[1], queue: queue)
                #expect(contents.isSettled && contents.workers.isEmpty && contents.dead.isEmpty)
                #expect(contents.count("delivered") == count && contents.count("invalid_token") == 20)
            }
            let accepted = try await simulator.stop()
            #expect(account.delivered == 2 * count && account.lostClaims == 0)
            #expect(accepted.distinctTokens == 2 * count && accepted.duplicates == 0)
            let invalid = try cluster.owner(ofSlot: cluster.slot(of: "push:{shared}:invalid-tokens"))
            #expect(try invalid.run("SCARD", "push:{shared}:invalid-tokens") == 40)
            #expect(try invalid.invalidTokens().detailsCount() == 40)
        }

        @Test(
            "in a Cluster a lane has one connection per node, and one for waiting, for any number of apps and queues",
            arguments: [(apps: 1, queues: 1), (apps: 10, queues: 1), (apps: 10, queues: 3)])
        func connections(apps: Int, queues: Int) async throws {
            let cluster = try await RedisCluster()
            let simulator = try await SimulatorProcess(rules: ["prefix=dead,answer=410", "prefix=ffff,answer=429"])
            let names = (0..<apps).map { "a\($0)" }
            let worker = try WorkerProcess(
                redis: cluster.url, endpoint: simulator.port,
                options: ["--lanes", "2", "--queue", (0..<queues).map { "q\($0)" }.joined(separator: ",")],
                environment: appVariables(names).merging(["APNS_WORKER_MAX_PER_SECOND": "500"]) { $1 })
            for queue in 0..<queues {
                // These jobs use all state that the fleet shares.
                let jobs = names.flatMap { name in
                    ["aaaa", "dead", "ffff"].flatMap { prefix in
                        TestJob.many(5, prefix: "\(prefix)\(queue)", members: #""app":"\#(name)","#)
                    }
                }
                try cluster.owner(ofSlot: cluster.slot(of: "push:{q\(queue)}:jobs")).push(jobs, queue: "q\(queue)")
            }
            try await eventually("the jobs are delivered") {
                try await simulator.account().accepted >= 5 * apps * queues
            }
            /// Returns the number of connections to each node, by lane, and by queue for connections that wait.
            func found() throws -> [String: [Int]] {
                var found: [String: [Int]] = [:]
                for (index, node) in cluster.nodes.enumerated() {
                    let list = try #require(try node.run("CLIENT", "LIST").text)
                    for match in list.matches(of: /name=apns-worker:[^:\s]+:(\S+)\s/) {
                        found[String(match.1), default: [0, 0, 0]][index] += 1
                    }
                }
                return found
            }
            // A connection that reads the slots is closed after the answer.
            try await eventually("no lane has two connections to a node") {
                try found().values.allSatisfy { $0.allSatisfy { $0 <= 1 } }
            }
            let all = try found()
            #expect(Set(all.keys) == Set(["0", "1"] + (0..<queues).map { "wait:q\($0)" }), "\(all)")
            for (name, counts) in all where name.hasPrefix("wait") { #expect(counts.reduce(0, +) == 1, "\(all)") }
            _ = try await worker.stop()
        }

        @Test(
            "TLS with a client certificate, an ACL user, a password file and another database",
            .enabled(if: RedisServer.hasTLS))
        func secured() async throws {
            let redis = try RedisServer(tls: true)
            try redis.run("CONFIG", "SET", "tls-auth-clients", "yes")
            // The user has only the permissions that a worker needs.
            try redis.run(
                "ACL", "SETUSER", "worker", "on", ">s3cret", "~push:*", "+@connection", "+@scripting", "+@read",
                "+@write", "+time", "+select", "+info")
            let passwordFile = redis.directory.appending(path: "password")
            try "s3cret\n".write(to: passwordFile, atomically: true, encoding: .utf8)
            let port = try #require(redis.tlsPort)
            let environment = [
                "APNS_WORKER_REDIS_URL": "rediss://worker@localhost:\(port)/3?password_file=\(passwordFile.path)",
                "APNS_WORKER_REDIS_CA": try TestCertificates.path("ca.pem"),
                "APNS_WORKER_REDIS_CERTIFICATE": try TestCertificates.path("client.pem"),
                "APNS_WORKER_REDIS_CERTIFICATE_KEY": try TestCertificates.path("client-key.pem"),
            ]
            let jobs = TestJob.many(200).joined(separator: "\n")
            try await CommandLineTests.run(["enqueue"], environment: environment, input: jobs).prints(
                "enqueued 200 jobs on default\n")
            #expect(try redis.run("DBSIZE") == 0)

            let simulator = try await SimulatorProcess()
            let flags = [
                "--redis-ca": "APNS_WORKER_REDIS_CA", "--redis-certificate": "APNS_WORKER_REDIS_CERTIFICATE",
                "--redis-certificate-key": "APNS_WORKER_REDIS_CERTIFICATE_KEY",
            ]
            let worker = try WorkerProcess(
                redis: environment["APNS_WORKER_REDIS_URL"] ?? "", endpoint: simulator.port,
                options: flags.flatMap { [$0, environment[$1] ?? ""] })
            try await eventually("all are delivered") { try await simulator.account().accepted == 200 }
            let names = try redis.run("CLIENT", "LIST").text ?? ""
            #expect(names.contains("name=apns-worker:") && names.contains("user=worker"))
            #expect(try await worker.stop().delivered == 200)
            #expect(!worker.log.contains("s3cret") && !worker.log.contains("NOPERM"))
        }

        @Test(
            "problems with its certificates are reported",
            arguments: [
                (["--redis-ca", "/does/not/exist", "--redis", "rediss://localhost"], "/does/not/exist"),
                (["--redis-ca", "./x", "--redis", "redis://localhost"], "rediss"),
                (["--redis-certificate-key", "x.pem", "--redis", "rediss://localhost"], "without its certificate"),
            ])
        func mistakes(flags: [String], words: String) async throws {
            try await CommandLineTests.run(["enqueue", "--token", "ab", "--alert", "x"] + flags).fails(words)
        }
    }
}
