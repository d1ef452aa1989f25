import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Enqueueing with replicas")
    struct ReplicasTests {
        /// A master with a replica in sync.
        private struct Pair {
            let master: RedisServer
            let replica: RedisServer

            init() async throws {
                let master = try RedisServer(arguments: ["--repl-diskless-sync-delay", "0"])
                self.master = master
                replica = try RedisServer(arguments: ["--replicaof", "127.0.0.1", "\(master.port)"])
                try await inStep()
            }

            func inStep() async throws {
                try await eventually("the replica is in step") {
                    try master.run("INFO", "replication").text?.contains("state=online") == true
                }
            }

            func enqueue(_ options: [String], input: String? = nil) async throws -> CommandLineTests.Output {
                try await master.apnsWorker(["enqueue"] + options, input: input)
            }
        }

        private static let one = ["--token", TestJob.token("ab", 1), "--alert", "x", "--replicas", "1"]

        @Test("a job counts once the replica has it")
        func confirmed() async throws {
            let pair = try await Pair()
            let result = try await pair.enqueue(Self.one).succeeds()
            #expect(result.output.contains(/^enqueued 1 job on default, id [0-9a-f]{24}, and 1 replica has it\n$/))
            #expect(try pair.replica.run("LLEN", "push:{default}:jobs") == 1)
            let lines = (TestJob.many(1500) + ["{"]).joined(separator: "\n")
            try await pair.enqueue(["--replicas", "1"], input: lines).fails(1).prints(
                "enqueued 1500 jobs on default, and 1 replica has them, refused 1\n")
            #expect(try pair.replica.run("LLEN", "push:{default}:jobs") == 1501)
        }

        @Test("a replica that does not answer: exit status 1, and the error reports that the job is still enqueued")
        func unconfirmed() async throws {
            let pair = try await Pair()
            pair.replica.pause()
            let result = try await pair.enqueue(Self.one + ["--replicas-timeout", "1s"])
            #expect(result.ending == .exited(1) && result.output.isEmpty)
            #expect(
                result.errors.contains(
                    """
                    , but 0 of 1 replicas confirmed within 1s: a failover may lose it; enqueueing it again may send it twice

                    """), "\(result.errors)")
            #expect(try QueueContents(pair.master).jobs.count == 1)
            pair.replica.resume()
        }

        @Test("unconfirmed lines are named, and no later line is enqueued")
        func lines() async throws {
            let pair = try await Pair()
            pair.replica.pause()
            // The numbers of lines also count an empty line and an invalid job.
            let lines = ["", "{"] + TestJob.many(2500)
            let result = try await pair.enqueue(
                ["--replicas", "1", "--replicas-timeout", "1s"], input: lines.joined(separator: "\n")
            ).fails(1).prints("enqueued 1000 jobs on default, refused 1\n")
            #expect(
                result.errors.hasSuffix(
                    """
                    lines 3 to 1002: 0 of 1 replicas confirmed within 1s: a failover may lose their jobs; enqueueing \
                    them again may send them twice; no later line was enqueued

                    """), "\(result.errors)")
            #expect(try QueueContents(pair.master).jobs.count == 1000)
            pair.replica.resume()
        }

        @Test("a master that crashes before the replica has the job: the result is unknown, not a success")
        func died() async throws {
            let pair = try await Pair()
            pair.replica.pause()
            let process = try ChildProcess(
                BuiltProgram.path("apns-worker"), ["enqueue"] + Self.one + ["--replicas-timeout", "1h"],
                environment: ["APNS_WORKER_REDIS_URL": pair.master.url])
            try await eventually("it waits for the replica") {
                try pair.master.run("CLIENT", "LIST").text?.contains("cmd=wait") == true
            }
            pair.master.kill()
            #expect(try await process.wait() == .exited(1))
            #expect(process.errors.contains("it is unknown whether replicas have it"), "\(process.errors)")
            #expect(process.output.isEmpty)
            pair.replica.resume()
        }

        @Test("in a Cluster a moved slot is followed, and the new owner's replica confirms")
        func cluster() async throws {
            let cluster = try await RedisCluster(replicas: 1)
            let slot = try cluster.slot(of: "push:{default}:jobs")
            let old = try cluster.owner(ofSlot: slot)
            let new = try #require(cluster.nodes.prefix(3).first { $0 !== old })
            try cluster.beginMigration(ofSlot: slot, from: old, to: new)
            let process = try ChildProcess(
                BuiltProgram.path("apns-worker"), ["enqueue"] + Self.one,
                environment: ["APNS_WORKER_REDIS_URL": cluster.url])
            // The list does not exist, so during the move each push is sent to the new owner.
            try await eventually("it has been sent away") {
                try old.run("INFO", "errorstats").text?.contains("errorstat_ASK") == true
            }
            try cluster.finishMigration(ofSlot: slot, from: old, to: new)
            #expect(try await process.wait() == .exited(0), "\(process.errors)")
            #expect(process.output.contains(/^enqueued 1 job on default, id [0-9a-f]{24}, and 1 replica has it\n$/))
            #expect(try new.run("LLEN", "push:{default}:jobs") == 1)
        }

        @Test("the producer's example pushes until the replica has the job, which is sent once")
        func producer() async throws {
            let pair = try await Pair()
            let example = DeployFolder.url("producers/enqueue_confirmed.py").path
            func run() async throws -> CommandLineTests.Output {
                try await CommandLineTests.run(
                    [example, TestJob.token("ab", 1)], of: "/usr/bin/python3",
                    environment: ["REDIS_URL": pair.master.url])
            }
            pair.replica.pause()
            let short = try await run().fails(1)
            #expect(short.errors == "enqueued 1 job, but fewer than 1 replicas have it: a failover may lose it\n")
            #expect(try pair.master.run("LLEN", "push:{default}:jobs") == 3)
            pair.replica.resume()
            try await pair.inStep()
            try await run().succeeds().prints("enqueued 1 job, and a replica has it\n")
            #expect(try pair.replica.run("LLEN", "push:{default}:jobs") == 4)

            let simulator = try await SimulatorProcess()
            let worker = try WorkerProcess(
                redis: pair.master.url, endpoint: simulator.port, options: ["--exit-when-done"])
            let account = try await worker.finish()
            #expect(account.delivered == 1 && account.dropped == 3, "\(account)")
        }

        @Test(
            "mistakes are reported before anything is pushed",
            arguments: [
                (["--replicas", "0"], "--replicas must be"), (["--replicas", "-1"], "replicas"),
                (["--replicas-timeout", "5s"], "is for --replicas"),
                (["--replicas", "1", "--replicas-timeout", "0s"], "from 1s to 1h"),
                (["--replicas", "1", "--replicas-timeout", "5"], "from 1s to 1h"),
            ])
        func mistakes(options: [String], words: String) async throws {
            let flags = ["--token", "ab", "--alert", "x", "--redis", "redis://127.0.0.1:1"]
            try await CommandLineTests.run(["enqueue"] + flags + options).fails(64, words)
        }
    }
}
