import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Commands for workers")
    struct WorkerCommandTests {
        @Test("a quiet worker finishes its jobs, claims no more, keeps its lease, and works again after --undo")
        func quiet() async throws {
            let (redis, simulator) = try await startServers(simulator: ["--delay", "300ms"])
            let worker = try WorkerProcess(redis, simulator, ["--max-streams", "10"])
            try redis.push(TestJob.many(100))
            try await eventually("it is at work") { try redis.counted("delivered") > 10 }
            let pid = "\(worker.process.processIdentifier)"
            try await apnsWorker(redis.url, "quiet", pid, "--wait", "--timeout", "2m").succeeds(
                "is quiet, with nothing in flight")
            let view = try await FleetView(redis.url)
            let seen = try #require(view.worker(worker))
            #expect(seen.state == "quiet" && seen.in_flight == 0 && seen.lease_left_ms > 0)
            let left = try QueueContents(redis).jobs.count + 20
            try redis.push(TestJob.many(20, prefix: "b"))
            #expect(try await FleetView(redis.url).kinds == ["no_worker default"])
            // The stopped lanes must not claim this retry, which is due, while they renew their leases several times.
            try redis.run("ZADD", "push:{default}:retry", "1", TestJob.text(TestJob.token("cc", 1)))
            let before = try #require(seen.updated_at)
            try await eventually("it has renewed its lease, and more than once") {
                try await FleetView(redis.url).worker(worker)?.updated_at ?? 0 > before + 5000
            }
            let contents = try QueueContents(redis)
            #expect(contents.jobs.count == left && contents.retries.count == 1 && contents.claims == 0)
            #expect(contents.workers.count == 1)

            try await apnsWorker(redis.url, "quiet", "--undo", pid, "--json").prints(
                #"{"order":"work","workers":["\#(seen.name)"]}"# + "\n")
            try await redis.has(121)
            #expect(try await worker.stop().delivered == 121)
            #expect(try QueueContents(redis).lastingKeys.isEmpty)
        }

        @Test("SIGTSTP makes a worker quiet, SIGCONT ends that, and SIGTERM drains a quiet worker; others are ignored")
        func signals() async throws {
            let (redis, simulator) = try await startServers()
            let worker = try WorkerProcess(redis, simulator)
            try await eventually("it is there") { try await FleetView(redis.url).worker(worker) != nil }
            for number in [SIGUSR1, SIGUSR2, SIGALRM] { worker.process.send(number) }
            try await eventually("they are ignored") { worker.lines(of: "signal_ignored").count == 3 }
            worker.process.send(SIGTSTP)
            try await eventually("it is quiet") { try await FleetView(redis.url).worker(worker)?.state == "quiet" }
            try redis.push(TestJob.many(30))
            worker.process.send(SIGCONT)
            try await redis.has(30)
            worker.process.send(SIGTSTP)
            try await eventually("it is quiet again") {
                try await FleetView(redis.url).worker(worker)?.state == "quiet"
            }
            try redis.push(TestJob.many(5, prefix: "a"))
            #expect(try await worker.stop().delivered == 30)
            #expect(try QueueContents(redis).jobs.count == 5 && QueueContents(redis).workers.isEmpty)
            #expect(worker.lines(of: "quiet").contains { $0.contains(" reason=SIGTSTP") }, "\(worker.log)")
            #expect(worker.lines(of: "not_ready").isEmpty)
        }

        @Test("no job stays with an idle worker that becomes quiet at the moment jobs arrive")
        func idle() async throws {
            let (redis, simulator) = try await startServers()
            let worker = try WorkerProcess(redis, simulator)
            try await eventually("it is there") { try await FleetView(redis.url).worker(worker) != nil }
            for round in 0..<10 {
                worker.process.send(SIGTSTP)
                try redis.push(TestJob.many(3, prefix: "\(round)"))
                try await eventually("it is quiet, and has nothing") {
                    let view = try await FleetView(redis.url)
                    return view.worker(worker)?.state == "quiet" && view.worker(worker)?.claimed == 0
                }
                worker.process.send(SIGCONT)
                // If a signal arrives before the previous signal is handled, their order is not certain.
                try await eventually("it runs again, and all are delivered") {
                    try await FleetView(redis.url).worker(worker)?.state == "running"
                        && redis.counted("delivered") == 3 * (round + 1)
                }
            }
            #expect(try await worker.stop().possibleDuplicates == 0)
        }

        @Test("workers are stopped by name or all at once: they drain, exit with 0, and leave nothing")
        func stop() async throws {
            let (redis, simulator) = try await startServers()
            let workers = try ["a", "a,b", "b"].map { queues in
                try WorkerProcess(redis, simulator, ["--queue", queues, "--lanes", "2"])
            }
            try await eventually("they are there") {
                let view = try await FleetView(redis.url)
                return view.workers.count == 3 && view.workers.allSatisfy { $0.lanes == 2 }
            }
            let unknown = try await apnsWorker(redis.url, "stop", "nobody").fails()
            for worker in workers { #expect(unknown.errors.contains(".\(worker.process.processIdentifier).")) }
            let host = try #require(try await FleetView(redis.url).workers.first).host
            try await apnsWorker(redis.url, "stop", host).fails("matches several workers")
            try await apnsWorker(redis.url, "stop").fails()

            let quiet = try await apnsWorker(redis.url, "quiet", "--all", "--yes", "--wait").succeeds()
            let undo = try #require(quiet.output.firstMatch(of: /to undo: apns-worker (.*)\n/)).1
            try await redis.apnsWorker(undo.split(separator: " ").map(String.init) + ["--yes", "--wait"]).succeeds(
                "claims jobs again")

            let name = "\(host).\(workers[1].process.processIdentifier)"
            try await apnsWorker(redis.url, "stop", name, "--wait", "--json").succeeds(#""done":true,"order":"stop""#)
            _ = try await workers[1].finish()
            #expect(workers[0].process.ending == nil && workers[2].process.ending == nil)
            try await apnsWorker(redis.url, "stop", "--all", "--yes", "--wait").succeeds()
            for worker in [workers[0], workers[2]] {
                _ = try await worker.finish()
                #expect(worker.lines(of: "stopping").count == 1)
            }
            #expect(try QueueContents(redis).lastingKeys.isEmpty)
            try await apnsWorker(redis.url, "stop", "--all", "--yes").fails("no worker is running")
        }

        @Test("a command that does not reach its worker in time is reported")
        func unheard() async throws {
            let (redis, simulator) = try await startServers()
            let worker = try WorkerProcess(redis, simulator, environment: ["APNS_WORKER_LEASE": "600000"])
            try await eventually("it is there") { try await FleetView(redis.url).worker(worker) != nil }
            try await worker.process.pause()
            let pid = "\(worker.process.processIdentifier)"
            try await apnsWorker(redis.url, "quiet", pid, "--wait", "--timeout", "1s").fails(
                1, "has not finished after 1s; state: running")
            worker.process.kill()
        }

        @Test("status, pauses and commands work in a Cluster, on queues of several servers")
        func cluster() async throws {
            let cluster = try await RedisCluster()
            let simulator = try await SimulatorProcess()
            let slots = try ["a", "b"].map { try cluster.slot(of: "push:{\($0)}:jobs") }
            #expect(try cluster.owner(ofSlot: slots[0]) !== cluster.owner(ofSlot: slots[1]))
            let worker = try WorkerProcess(redis: cluster.url, endpoint: simulator.port, options: ["--queue", "a,b"])
            // Without --queue, `status` finds the queues on all servers.
            try await eventually("it is seen on both") {
                let view = try await FleetView(cluster.url)
                return view.queues.map(\.name) == ["a", "b"] && view.worker(worker)?.queues == ["a", "b"]
            }
            let view = try await FleetView(cluster.url)
            #expect(view.workers.count == 1 && view.worker(worker)?.redis == "cluster" && view.problems.isEmpty)
            for arguments in [["--queue", "b"], ["--app", "default"]] {
                try await apnsWorker(cluster.url, ["pause", "--reason", "x"] + arguments).succeeds()
                try await apnsWorker(cluster.url, ["resume"] + arguments).shows(
                    "is resumed; it was paused: x")
            }
            try await apnsWorker(cluster.url, "stop", "--all", "--yes", "--wait").succeeds()
            _ = try await worker.finish()
            for node in cluster.nodes {
                let keys = try node.run("KEYS", "push:{[ab]}*").elements ?? []
                let may = [":configurations", ":source"]
                #expect(keys.allSatisfy { key in may.contains { key.text?.hasSuffix($0) == true } }, "\(keys)")
            }
        }
    }
}
