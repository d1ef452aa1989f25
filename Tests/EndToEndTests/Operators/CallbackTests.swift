import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Callbacks")
    struct CallbackTests {
        private struct Receiver: Sendable {
            struct Request: Decodable {
                let path, message, type: String
                let signed: Bool
                let status: Int
                let ids: [String?]
                let entries: [String]
                let at: Double
            }

            static let secret = "whsec_" + Data("a secret of some thirty-two bytes".utf8).base64EncodedString()

            private let receiver: ForeignReceiver
            var port: Int { receiver.port }

            init(_ behaviour: String = "200", port: Int = 0, withTLS: Bool = false) async throws {
                receiver = try await ForeignReceiver(
                    "webhook_receiver.py", behaviour: behaviour, port: port, withTLS: withTLS,
                    arguments: ["--secret", Self.secret])
            }

            func behave(_ behaviour: String) throws { try receiver.behave(behaviour) }

            var requests: [Request] { get throws { try receiver.requests(Request.self) } }

            /// The IDs of the results in accepted requests, in order. An ID can be there several times.
            var accepted: [String] {
                get throws { try requests.filter { $0.status == 200 }.flatMap { $0.ids.compactMap { $0 } } }
            }

            func stop() { receiver.stop() }
        }

        private let redis: RedisServer

        init() throws { redis = try RedisServer() }

        private let stream = "push:{default}:results"

        private func callbacks(_ arguments: [String], environment: [String: String] = [:]) throws -> ChildProcess {
            let own = ["APNS_WORKER_REDIS_URL": redis.url, "APNS_WORKER_WEBHOOK_SECRET": Receiver.secret]
            return try ChildProcess(
                BuiltProgram.path("apns-worker"), ["results"] + arguments, environment: own.merging(environment) { $1 })
        }

        private func webhook(_ receiver: Receiver, _ more: String...) throws -> ChildProcess {
            try callbacks(["--webhook", "http://127.0.0.1:\(receiver.port)/hook?key=s3cret"] + more)
        }

        /// Waits until the process has made its group.
        private func listening(_ process: ChildProcess) async throws -> ChildProcess {
            try await process.until("the group is there") {
                try redis.run("EXISTS", stream).number == 1
                    && !(try redis.run("XINFO", "GROUPS", stream).elements ?? []).isEmpty
            }
            return process
        }

        private func expectEnd(_ process: ChildProcess, at location: SourceLocation = #_sourceLocation) async throws {
            process.send(SIGTERM)
            #expect(try await process.wait() == .exited(0), "\(process.errors)", sourceLocation: location)
        }

        /// Runs the command once. It hands over the results that are in Redis now.
        private func once(_ arguments: [String], at location: SourceLocation = #_sourceLocation) async throws {
            let process = try callbacks(arguments + ["--once"])
            #expect(try await process.wait() == .exited(0), "\(process.errors)", sourceLocation: location)
        }

        /// Adds results as a worker does.
        private func add(_ ids: [String], outcome: String = "dead") throws {
            let connection = try redis.connect()
            for id in ids {
                try connection.run(
                    "XADD", stream, "*", "id", id, "token", TestJob.token("a", 1), "outcome", outcome, "reason",
                    "BadTopic", "status", "400", "apns_id", "", "app", "default", "attempt", "1", "time",
                    "1795279247000", "trace_id", "", "parent_id", "", "apns_unique_id", "", "campaign", "spring",
                    "labels", #"{"user":"4711"}"#)
            }
        }

        /// The number of entries that the group has not acknowledged.
        private var pending: Int {
            get throws { try redis.run("XPENDING", stream, "callbacks").elements?.first?.number ?? -1 }
        }

        private var parked: Int {
            get throws { try redis.run("XLEN", "push:{default}:results-parked:callbacks").number ?? -1 }
        }

        @Test("a worker's results are posted to the URL once each, signed and in batches")
        func posted() async throws {
            let simulator = try await SimulatorProcess(rules: ["prefix=1,answer=BadCollapseId"])
            let receiver = try await Receiver()
            let process = try await listening(webhook(receiver, "--batch", "50"))
            let jobs = (0..<300).map {
                TestJob.text(TestJob.token($0 % 3 == 0 ? "1" : "a", $0), #""id":"\#($0)","labels":{"user":"u\#($0)"},"#)
            }
            try redis.push(jobs)
            _ = try await WorkerProcess(redis, simulator, ["--exit-when-done", "--results", "all"]).finish()
            try await eventually("all are posted") { try receiver.accepted.count >= 300 }
            let requests = try receiver.requests
            #expect(try Set(receiver.accepted).count == 300 && receiver.accepted.count == 300)
            #expect(requests.allSatisfy { $0.signed && $0.path == "/hook?key=s3cret" && $0.type == "application/json" })
            #expect(requests.allSatisfy { (1...50).contains($0.ids.count) })
            #expect(Set(requests.map(\.message)).count == requests.count)
            try await eventually("all are acknowledged") { try pending == 0 }
            try await expectEnd(process)
            #expect(process.errors.contains("queue default: handed over 300 results"))
            // The messages must have neither the URL, which can have a secret, nor a device token.
            #expect(!process.errors.contains("s3cret") && !process.errors.contains(TestJob.token("a", 1)))
            // The command leaves no consumer.
            #expect(try redis.run("XINFO", "CONSUMERS", stream, "callbacks").elements?.isEmpty == true)
        }

        @Test("only the selected results are posted; a new group starts at a given time; TLS works")
        func filtered() async throws {
            try add(["old"])
            try add(["delivered"], outcome: "delivered")
            let receiver = try await Receiver(withTLS: true)
            let url = ["--webhook", "https://localhost:\(receiver.port)/"]
            let ca = ["--webhook-ca", try TestCertificates.path("ca.pem")]
            let distrustful = try callbacks(url + ["--once", "--since", "1h", "--tries", "1", "--group", "other"])
            #expect(try await distrustful.wait() == .exited(1))
            #expect(distrustful.errors.contains("cannot be reached"), "\(distrustful.errors)")
            try await once(url + ca + ["--since", "1h", "--outcome", "dead"])
            #expect(try receiver.accepted == ["old"] && pending == 0)
            // `--since` has no effect on a group that exists: it gets only new results.
            try add(["new"])
            try await once(url + ca + ["--since", "1h"])
            #expect(try receiver.accepted == ["old", "new"])
            // A new group gets no old results.
            try await once(url + ca + ["--group", "third"])
            #expect(try receiver.accepted.count == 2)
        }

        @Test(
            "no result is lost while the receiver is unavailable, failing, slow, or cuts its answers",
            arguments: ["down", "500", "silent", "cut", "slow"])
        func outage(_ failure: String) async throws {
            var receiver = try await Receiver(failure == "down" ? "200" : failure)
            if failure == "down" { receiver.stop() }
            let process = try await listening(webhook(receiver, "--answer-timeout", "1s"))
            let ids = (0..<20).map { "\($0)" }
            try add(ids)
            try await eventually("it says that results are not accepted") {
                process.errors.contains("does not accept results")
            }
            #expect(try pending > 0)
            if failure == "down" {
                receiver = try await Receiver(port: receiver.port)
            } else {
                try receiver.behave("200")
            }
            try await eventually("all are acknowledged") { try pending == 0 && Set(receiver.accepted) == Set(ids) }
            try await eventually("it says that results are accepted again") {
                process.errors.contains("accepts results again")
            }
            #expect(!process.errors.contains("parked"))
            try await expectEnd(process)
        }

        @Test("a result that is never accepted is parked and does not block others", arguments: ["bad", "sick"])
        func poison(_ kind: String) async throws {
            let receiver = try await Receiver("\(kind):7")
            let process = try await listening(webhook(receiver, "--tries", "3", "--batch", "10"))
            let ids = (0..<40).map { "\($0)" }
            try add(ids)
            try await eventually("the others are accepted, and it is parked") {
                try Set(receiver.accepted).count == 39 && process.errors.contains("parked result")
            }
            #expect(try Set(receiver.accepted) == Set(ids).subtracting(["7"]) && receiver.accepted.count == 39)
            try await eventually("none is pending") { try pending == 0 }
            try await expectEnd(process)
            #expect(process.errors.contains(#/parked result \d+-\d+\/0 after 3 tries: it answered (422|500)/#))
            #expect(try parked == 1)
            // The command retries a parked result only with `--retry-parked`. If the result fails again, it stays parked.
            let url = ["--webhook", "http://127.0.0.1:\(receiver.port)/"]
            try await once(url + ["--answer-timeout", "1s", "--claim-after", "2s"])
            let failing = try callbacks(url + ["--once", "--retry-parked", "--tries", "1"])
            #expect(try await failing.wait() == .exited(1))
            #expect(try parked == 1)
            try receiver.behave("200")
            try await once(url + ["--retry-parked"])
            #expect(try parked == 0 && receiver.accepted.contains("7"))
            let entries = try receiver.requests.filter { $0.ids == ["7"] }.map(\.entries)
            #expect(Set(entries).count == 1)
        }

        @Test("an entry with many results is handed over in batches, and again from its beginning after a crash")
        func largeEntry() async throws {
            let receiver = try await Receiver("bad:400")
            let process = try await listening(
                webhook(receiver, "--batch", "100", "--tries", "2", "--consumer", "one"))
            let own = (0..<1000).map { #"{"id":"\#($0)"}"# }.joined(separator: ",")
            try redis.run(
                "XADD", stream, "*", "results", #"[{"outcome":"dead","attempt":1,"notifications":[\#(own)]}]"#)
            let ids = Set((0..<1000).map { "\($0)" })
            try await eventually("all but one are accepted, and that one is parked") {
                try Set(receiver.accepted) == ids.subtracting(["400"]) && pending == 0 && parked == 1
            }
            #expect(try receiver.accepted.count == 999 && receiver.requests.allSatisfy { $0.ids.count <= 100 })
            #expect(try Set(receiver.requests.flatMap(\.entries)).count == 1000)

            // The receiver does not answer the third batch.
            let before = try receiver.requests.count
            let more = (1000..<2000).map { #"{"id":"\#($0)"}"# }.joined(separator: ",")
            try receiver.behave("slow")
            try redis.run(
                "XADD", stream, "*", "results", #"[{"outcome":"dead","attempt":1,"notifications":[\#(more)]}]"#)
            try await eventually("it works on them") { try receiver.requests.count > before }
            process.kill()
            #expect(try await process.wait() == .signalled(SIGKILL))
            #expect(try pending == 1)
            try receiver.behave("200")
            try await once(["--webhook", "http://127.0.0.1:\(receiver.port)/", "--consumer", "one"])
            #expect(try pending == 0)
            try await eventually("the receiver has printed all") {
                try Set(receiver.accepted) == Set((0..<2000).map { "\($0)" }).subtracting(["400"])
            }
            let entries = try receiver.requests.filter { $0.status == 200 }.flatMap(\.entries)
            #expect(Set(entries).count == 1999)
        }

        @Test("an outage of the receiver parks no good result, also while one that is never accepted is being retried")
        func outageAfterPoison() async throws {
            let receiver = try await Receiver("sick:poison")
            let process = try await listening(webhook(receiver, "--tries", "2"))
            try add(["poison", "first"])
            try await eventually("the good one is accepted") { try receiver.accepted == ["first"] }
            try receiver.behave("503")
            let good = (0..<6).map { "good \($0)" }
            try add(good)
            try await eventually("each was tried several times on its own") {
                try good.allSatisfy { id in try receiver.requests.filter { $0.ids == [id] }.count >= 3 }
            }
            try receiver.behave("sick:poison")
            try await eventually("all good ones are accepted, and the other is parked") {
                try Set(receiver.accepted) == Set(good + ["first"]) && pending == 0 && parked == 1
                    && process.errors.contains("parked result")
            }
            try await expectEnd(process)
            #expect(process.errors.contains("; parked 1, which"), "\(process.errors)")
        }

        @Test("several bad results at the end do not hold up those that come later")
        func laterResults() async throws {
            let poison = (0..<5).map { "poison\($0)" }
            let receiver = try await Receiver("sick:\(poison.joined(separator: ","))")
            let process = try await listening(webhook(receiver, "--tries", "2"))
            try add(["first"] + poison)
            try await eventually("the good one is accepted, and each of the others was tried as often as it may") {
                let alone = try receiver.requests.filter { $0.ids.count == 1 }.map(\.ids[0])
                return try receiver.accepted == ["first"]
                    && poison.allSatisfy { id in alone.filter { $0 == id }.count >= 2 }
            }
            // The receiver seems to be at fault until it accepts another result.
            try add(["second"])
            try await eventually("the second is accepted, and the others are parked") {
                try receiver.accepted == ["first", "second"]
                    && parked == 5
            }
            try await expectEnd(process)
        }

        @Test("results of a killed consumer are delivered by another, or by itself after a restart")
        func killed() async throws {
            let receiver = try await Receiver("slow")
            let options = ["--answer-timeout", "1s", "--claim-after", "2s"]
            let url = ["--webhook", "http://127.0.0.1:\(receiver.port)/"]
            let first = try await listening(callbacks(url + options + ["--consumer", "one"]))
            let ids = (0..<250).map { "\($0)" }
            try add(ids)
            try await eventually("the first one works on them") { try !receiver.requests.isEmpty }
            first.kill()
            #expect(try await first.wait() == .signalled(SIGKILL))
            #expect(try pending > 0)
            try receiver.behave("200")
            let second = try callbacks(url + options + ["--consumer", "two"])
            try await eventually("the second one hands over all") { try Set(receiver.accepted).count == 250 }
            try await eventually("all are acknowledged") { try pending == 0 }
            try await expectEnd(second)

            try receiver.behave("slow")
            let third = try callbacks(url + options + ["--consumer", "three"])
            try add(["again"])
            try await eventually("the third one works on it") { try receiver.requests.contains { $0.ids == ["again"] } }
            third.kill()
            _ = try await third.wait()
            try receiver.behave("200")
            // A process with the consumer name of the killed process continues at once.
            try await once(url + ["--consumer", "three"])
            #expect(try receiver.accepted.contains("again") && pending == 0)
        }

        @Test("a command gets JSON lines and a clean environment, and accepts the lines by exiting with 0")
        func command() async throws {
            let directory = redis.directory.path
            let script = """
                env > '\(directory)/env'; cat > '\(directory)/last'; [ ! -e '\(directory)/sick' ] || exit 3; \
                cat '\(directory)/last' >> '\(directory)/all'
                """
            try Data().write(to: URL(fileURLWithPath: "\(directory)/sick"))
            let command = ["--exec", script, "--exec-env", "WANTED"]
            let process = try await listening(callbacks(command, environment: ["WANTED": "value", "SECRET": "s3cret"]))
            try add((0..<150).map { "\($0)" })
            try await eventually("it says that the command fails") { process.errors.contains("ended with status 3") }
            try FileManager.default.removeItem(atPath: "\(directory)/sick")
            // After each portion, no result is pending. So the test waits until the file has all results.
            var objects: [[String: Any]] = []
            try await eventually("all are acknowledged") {
                let text = (try? String(contentsOfFile: "\(directory)/all", encoding: .utf8)) ?? ""
                guard text.isEmpty || text.hasSuffix("\n"), try pending == 0 else { return false }
                objects = try jsonObjects(text)
                return Set(objects.compactMap { $0["id"] as? String }).count == 150
            }
            let first = try #require(objects.first)
            #expect(first["queue"] as? String == "default" && first["status"] as? Int == 400)
            #expect(
                first["at"] as? Int == 1_795_279_247_000 && first["labels"] as? [String: String] == ["user": "4711"])
            let environment = try String(contentsOfFile: "\(directory)/env", encoding: .utf8)
            #expect(environment.contains("WANTED=value"))
            #expect(!environment.contains("s3cret") && !environment.contains("APNS_WORKER"))
            try await expectEnd(process)
        }

        @Test(
            "a command that fails accepts nothing, although the parent of this process ignores the ends of its children"
        )
        func ignoredChildren() async throws {
            func start(_ command: String) throws -> ChildProcess {
                let shell = ["-c", "trap '' CHLD; exec \"$0\" \"$@\"", try BuiltProgram.path("apns-worker")]
                return try ChildProcess(
                    "/bin/bash", shell + ["results", "--once", "--exec", command],
                    environment: ["APNS_WORKER_REDIS_URL": redis.url])
            }
            #expect(try await start("cat >/dev/null").wait() == .exited(0))
            try add(["a", "b", "c"])
            let process = try start("exit 1")
            try await eventually("the failure is reported") { process.errors.contains("it ended with status 1") }
            process.send(SIGTERM)
            #expect(try await process.wait() == .exited(1))
            #expect(try pending == 3)
        }

        /// The meaning of an answer. docs/results.md has the same table.
        enum Meaning {
            /// The receiver no longer exists, or refuses all results. The command ends, and parks no result.
            case closed
            /// The receiver will never accept the result. The command parks it, and continues.
            case refused
            /// The receiver accepts no result now.
            case unavailable
            /// The answer can have two reasons: the receiver accepts no results at present, or it will never accept this one. The command
            /// parks the result only if the receiver accepts other results.
            case failed
        }

        static let answers: [(status: Int, meaning: Meaning)] =
            [401, 403, 404, 410].map { ($0, .closed) } + [400, 413, 415, 422].map { ($0, .refused) }
            + [408, 425, 429].map { ($0, .unavailable) }
            + [302, 402, 451, 500, 503].map { ($0, .failed) }

        @Test("An answer is read by its meaning, and no result is skipped.", arguments: answers)
        func answer(_ status: Int, _ meaning: Meaning) async throws {
            let receiver = try await Receiver()
            let process = try await listening(webhook(receiver, "--tries", "2", "--consumer", "one"))
            try add(["first"])
            try await eventually("the first is accepted") { try receiver.accepted == ["first"] }
            // The receiver gives this answer to every request.
            try receiver.behave("\(status)")
            let ids = (0..<5).map { "\($0)" }
            try add(ids)
            if meaning == .closed {
                #expect(try await process.wait() == .exited(1), "\(process.errors)")
                #expect(process.errors.contains("refuses all results: it answered \(status); stopping"))
                // The command does not try again.
                #expect(try receiver.requests.count == 2 && parked == 0)
                try receiver.behave("200")
                try await once(["--webhook", "http://127.0.0.1:\(receiver.port)/", "--consumer", "one"])
                #expect(try receiver.accepted.sorted() == ids + ["first"] && pending == 0)
                return
            }
            let tries = meaning == .unavailable ? 4 : 7
            try await eventually("it was tried several times") { try receiver.requests.count >= tries }
            #expect(try parked == 0 && !process.errors.contains("parked"), "\(process.errors)")
            // The receiver refuses one result, and accepts the others.
            try receiver.behave(meaning == .unavailable ? "200" : "\(status):2")
            let expected = Set(ids + ["first"]).subtracting(meaning == .unavailable ? [] : ["2"])
            try await eventually("the others are accepted") { try Set(receiver.accepted).isSuperset(of: expected) }
            try add(["last"])
            try await eventually("the last is accepted, and the bad one parked") {
                try receiver.accepted.contains("last") && pending == 0 && parked == (meaning == .unavailable ? 0 : 1)
            }
            try await expectEnd(process)
        }

        @Test(
            "Retry-After is a number of seconds or a time.",
            arguments: ["503 after 3", "429 after 3", "503 until 4", "429 until 4"])
        func retryAfter(_ behaviour: String) async throws {
            let receiver = try await Receiver(behaviour)
            let process = try await listening(webhook(receiver))
            try add(["a"])
            try await eventually("it is handed over once") { try !receiver.requests.isEmpty }
            try receiver.behave("200")
            try await eventually("it is accepted") { try receiver.accepted == ["a"] }
            let times = try receiver.requests.map(\.at)
            #expect(times.count == 2 && times[1] - times[0] >= 3)
            try await expectEnd(process)
        }

        enum Loss: String, CaseIterable { case group, stream, all }

        @Test(
            "After the loss of its group, a consumer continues after what it has handed over, also when it was not running.",
            arguments: Loss.allCases, [false, true])
        func lostGroup(_ loss: Loss, whileStopped isStopped: Bool) async throws {
            let receiver = try await Receiver()
            var process = try await listening(webhook(receiver, "--consumer", "one"))
            try add(["first"])
            try await eventually("the first is accepted and acknowledged") {
                try receiver.accepted == ["first"] && pending == 0
            }
            try receiver.behave("503")
            let (before, after) = ((0..<30).map { "before\($0)" }, (0..<50).map { "after\($0)" })
            try add(before)
            try await eventually("some are at hand") { try pending > 0 && receiver.requests.count > 1 }
            if isStopped {
                process.kill()
                _ = try await process.wait()
            }
            switch loss {
            case .group: try redis.run("XGROUP", "DESTROY", stream, "callbacks")
            case .stream: try redis.run("DEL", stream)
            case .all: try redis.run("FLUSHALL")
            }
            // On an empty Redis, a process that starts makes a new group.
            if isStopped, loss == .all {
                process = try await listening(webhook(receiver, "--consumer", "one"))
                try add(after)
            } else {
                try add(after)
                if isStopped { process = try await listening(webhook(receiver, "--consumer", "one")) }
            }
            try receiver.behave("200")
            let expected = Set(loss == .group ? before + after : after)
            try await eventually("all that the stream has are accepted") {
                try Set(receiver.accepted).isSuperset(of: expected) && pending == 0
            }
            try await expectEnd(process)
            if !isStopped {
                // A running process does not lose the results that it had read, and hands over no result twice.
                #expect(try receiver.accepted.contains("before0"))
                #expect(try Set(receiver.accepted).count == receiver.accepted.count)
                #expect(
                    process.errors.contains(
                        loss == .group ? "was lost and continues" : "was lost, and so were entries of the stream"),
                    "\(process.errors)")
            }
        }

        @Test("A new group reports the entries that it does not hand over.")
        func newGroup() async throws {
            try add(["a", "b"])
            let process = try callbacks(["--exec", "cat", "--once"])
            #expect(try await process.wait() == .exited(0))
            #expect(process.errors.contains("the stream has 2 entries before it, which --since hands over"))
        }

        @Test(
            "mistakes are reported at once",
            arguments: [
                (["--webhook", "ftp://x/"], "https or http"), (["--webhook", "https://u:p@x/"], "user or a password"),
                (["--webhook", "https://x y/"], "must be a URL"), (["--webhook", "https://:1/"], "host name"),
                (["--webhook", "http://x", "--exec", "cat"], "cannot be combined"),
                (["--group", "x"], "--group needs --exec or --webhook"),
                (["--exec", "cat", "--consumer", "a b"], "--consumer"),
                (["--exec", "cat", "--batch", "0"], "--batch"), (["--exec", "cat", "--follow"], "--follow"),
                (["--exec", "cat", "--claim-after", "5s"], "--claim-after"),
                (["--webhook", "http://x", "--webhook-secret-file", "./no/where"], "./no/where"),
            ])
        func mistakes(_ arguments: [String], _ part: String) async throws {
            let process = try callbacks(["--redis", "redis://127.0.0.1:1"] + arguments)
            #expect(try await process.wait() == .exited(64))
            #expect(process.errors.contains(part), "\(process.errors)")
        }

        @Test("a webhook needs a secret of some length, which is never shown")
        func secrets() async throws {
            for (secret, part) in [("", "needs a secret"), ("short", "fewer than 16"), ("whsec_!!", "not base64")] {
                let process = try callbacks(
                    ["--webhook", "http://127.0.0.1:1/"], environment: ["APNS_WORKER_WEBHOOK_SECRET": secret])
                #expect(try await process.wait() == .exited(64))
                #expect(process.errors.contains(part), "\(process.errors)")
                #expect(secret.isEmpty || !process.errors.contains(secret + " "))
            }
        }
    }
}
