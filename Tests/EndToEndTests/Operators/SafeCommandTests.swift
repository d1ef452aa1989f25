import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Commands that are safe under stress")
    struct SafeCommandTests {
        @Test(
            "commands for everything and deletions need a terminal or --yes",
            arguments: [
                ["stop", "--all"], ["quiet", "--all"], ["quiet", "--all", "--undo"], ["requeue", "--all"],
                ["requeue", "--reason", "UnknownApp", "--all-queues"], ["dead", "delete", "--all"],
                ["dead", "delete", "--reason", "UnknownApp"], ["invalid", "remove", "--all"], ["pause", "--all"],
                ["resume", "--all"], ["channels", "delete", "YQ=="],
            ])
        func confirmation(arguments: [String]) async throws {
            let redis = try RedisServer()
            try redis.bury([.numbered(1)])
            try redis.run("SADD", "push:{shared}:invalid-tokens", "ab")
            let before = try redis.run("DBSIZE")
            try await redis.apnsWorker(arguments).fails(64, "there is no terminal; pass --yes").prints("")
            #expect(try redis.run("DBSIZE") == before && QueueContents(redis).dead.count == 1)
        }

        @Test("a mistyped queue name is refused with a suggestion, and --force continues")
        func queueNames() async throws {
            let redis = try RedisServer()
            try redis.push([TestJob.text("ab")], queue: "critical")
            try redis.bury([.numbered(1)], queue: "critical")
            for arguments in [
                ["pause"], ["resume"], ["requeue", "--reason", "X"], ["dead", "delete", "--reason", "X", "--yes"],
            ] {
                try await redis.apnsWorker(arguments + ["--queue", "critcal"]).fails(
                    1, "unknown queue critcal; did you mean critical?")
            }
            #expect(try redis.run("EXISTS", "push:{critcal}:paused") == 0)
            try await apnsWorker(redis.url, "pause", "--queue", "critcal", "--force").succeeds()
            #expect(try redis.run("EXISTS", "push:{critcal}:paused") == 1)
            // Before the first queue exists, any name is accepted: a pause can come before the first job.
            let fresh = try RedisServer()
            try await apnsWorker(fresh.url, "pause", "--queue", "first").succeeds()
            try await apnsWorker(fresh.url, "pause", "--queue", "second").fails(1)
        }

        @Test(
            "no match exits with 1, also in a dry run",
            arguments: [
                ["requeue", "--reason", "typo", "--dry-run"], ["requeue", "--reason", "typo"],
                ["dead", "delete", "--reason", "typo", "--yes"], ["dead", "delete", "--reason", "typo", "--dry-run"],
                ["invalid", "remove", "--reason", "typo", "--yes"], ["resume"],
            ])
        func nothing(arguments: [String]) async throws {
            let redis = try RedisServer()
            try redis.bury([.numbered(1)])
            try await redis.apnsWorker(arguments).fails(1)
        }

        @Test("pause prints how many notifications of claimed jobs still go out, and needs no reason")
        func pauseCounts() async throws {
            let (redis, simulator) = try await startServers(rules: ["answer=silence"])
            let worker = try WorkerProcess(redis, simulator, ["--request-timeout", "600000", "--drain-timeout", "0"])
            try redis.push(
                (0..<3).map { job in TestJob.fanOut((0..<700).map { TestJob.token("\(job)", $0) }, #""id":"c\#(job)","#)
                })
            try await eventually("they are claimed") { try QueueContents(redis).claims == 3 }
            try redis.push(TestJob.many(5))
            let paused = try await redis.apnsWorker(["pause"], environment: ["USER": "ana"]).succeeds()
            #expect(paused.output.hasPrefix("queue default is paused: by ana@"), "\(paused.output)")
            let waiting = try QueueContents(redis).jobs.count
            if waiting == 5 {
                #expect(
                    paused.output.contains("Workers finish the 3 claimed jobs, at most 2,100 notifications"),
                    "\(paused.output)")
            }
            let json = try await apnsWorker(redis.url, "pause", "--reason", "x", "--json")
            let object = try jsonObject(json.output)
            #expect(object["claimed"] as? Int == 8 - waiting && object["notifications"] as? Int == 2100 + 5 - waiting)
            worker.process.kill()
        }

        @Test("pause --now makes workers return unsubmitted jobs, and resume sends each once")
        func pauseNow() async throws {
            let (redis, simulator) = try await startServers(rules: ["delay=1s"], simulator: ["--control-port", "0"])
            let worker = try WorkerProcess(redis, simulator, ["--max-connections", "1", "--max-streams", "10"])
            let jobs = (0..<3).map { job in
                TestJob.fanOut((0..<200).map { TestJob.token("\(job)", $0) }, #""id":"n\#(job)","#)
            }
            try redis.push(jobs + TestJob.many(5, prefix: "a"))
            try await eventually("it is at work") { try await simulator.account().accepted >= 10 }
            try await apnsWorker(redis.url, "pause", "--now").succeeds("Workers release")
            try await eventually("all is handed back") { try QueueContents(redis).claims == 0 }
            let accepted = try await simulator.account().accepted
            // With a limit of ten per second, only notifications in flight were sent after the command.
            #expect(accepted < 200, "\(accepted)")
            try await apnsWorker(redis.url, "resume").succeeds()
            try await simulator.control("DELETE", "/rules")
            try await redis.has(605)
            let account = try await worker.stop()
            #expect(account.delivered == 605 && account.possibleDuplicates == 0)
            #expect(try await simulator.stop().duplicates == 0)
        }

        @Test("all queues are paused, resumed, listed and requeued at once, or several by name")
        func severalQueues() async throws {
            let redis = try RedisServer()
            for (index, queue) in ["bulk", "critical", "default"].enumerated() {
                try redis.bury([.numbered(index), .numbered(index + 10, reason: "Other")], queue: queue)
            }
            let list = try await apnsWorker(redis.url, "dead", "list")
            let lines = list.output.split(separator: "\n")
            #expect(lines.count == 7 && lines[0].hasPrefix("QUEUE     TIME"), "\(list.output)")
            #expect(Set(lines.dropFirst().map { $0.prefix { $0 != " " } }) == ["bulk", "critical", "default"])
            let json = try await apnsWorker(redis.url, "dead", "list", "--json", "--limit", "4").output
            #expect(json.split(separator: "\n").count == 4 && json.contains(#""queue":"bulk""#))
            try await apnsWorker(redis.url, "dead", "list", "--by", "reason").prints("3\tOther\n3\tUnknownApp\n")
            let one = try await apnsWorker(redis.url, "dead", "list", "--queue", "bulk").output
            #expect(one.split(separator: "\n").count == 3 && one.hasPrefix("TIME"))

            let paused = try await apnsWorker(redis.url, "pause", "--all", "--yes", "--reason", "x")
            #expect(paused.output.matches(of: /queue \w+ is paused: x/).count == 3, "\(paused)")
            let resumed = try await apnsWorker(redis.url, "resume", "--queue", "bulk,default")
            #expect(resumed.ending == .exited(0) && resumed.output.matches(of: /is resumed/).count == 2)
            #expect(try redis.run("EXISTS", "push:{critical}:paused") == 1)

            // With several configured queues, a command that changes something must name its queues.
            let queues = ["APNS_WORKER_QUEUE": "critical,default"]
            try await redis.apnsWorker(["requeue", "--reason", "Other"], environment: queues).fails(
                64, "choose with --queue critical,default, or pass --all-queues")
            try await redis.apnsWorker(
                ["requeue", "--reason", "Other", "--all-queues", "--yes"], environment: queues
            ).prints("requeued 1 job of queue critical: 1 Other\nrequeued 1 job of queue default: 1 Other\n")
            try await apnsWorker(
                redis.url, "dead", "delete", "--all", "--queue", "bulk,critical", "--yes", "--limit", "2"
            ).prints("deleted 2 dead letters of queue bulk: 1 Other, 1 UnknownApp\n")
        }
    }
}
