import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Producers over HTTP")
    struct HTTPProducerTests {
        private static func stored(_ redis: RedisServer, _ queue: String = "default") throws -> [String] {
            try redis.run("LRANGE", "push:{\(queue)}:jobs", "0", "-1").strings()
        }

        @Test("can enqueue on their queues and for their apps, and nothing else")
        func rights() async throws {
            let redis = try RedisServer()
            let web = try await WebProcess(
                redis.url,
                [
                    "shop": ["--role", "producer", "--queue", "default", "--queue", "bulk", "--app", "shop"],
                    "blog": ["--role", "producer", "--queue", "blog", "--app", "a", "--app", "b"],
                    "vic": ["--role", "viewer"], "ada": ["--role", "operator"],
                ])
            let job = TestJob.text(TestJob.token("a", 1))
            // The queue was never used before. The producer's token adds the app to the job.
            let accepted = try await web.post("shop", job, "?queue=bulk")
            #expect(accepted.status == 202 && accepted.body["queue"] as? String == "bulk", "\(accepted)")
            let id = try #require(accepted.ids?.first)
            let body = try #require(try Self.stored(redis, "bulk").first)
            #expect(body.contains(#""id":"\#(id)""#) && body.contains(#""app":"shop""#), "\(body)")
            #expect(accepted.body["notes"] as? [String] == ["no worker claims jobs from queue bulk"])
            let named = TestJob.text(TestJob.token("a", 1), #""app":"shop","#)
            #expect(try await web.post("shop", named, "?queue=default").status == 202)
            // If a token is for one queue, the request need not name it. If it is for several apps, the job must name one.
            #expect(try await web.post("blog", TestJob.text("ab", #""app":"b","#)).status == 202)

            for (token, body, query, status) in [
                ("shop", job, "", 400), ("shop", job, "?queue=blog", 403),
                ("shop", job, "?queue=bulk&queue=default", 400),
                ("shop", TestJob.text("ab", #""app":"b","#), "?queue=bulk", 403), ("blog", job, "", 403),
                ("blog", TestJob.text("ab", #""topic":"com.example.c","#), "", 403), ("x", job, "?queue=bulk", 401),
                ("vic", job, "?queue=bulk", 403), ("ada", job, "", 400),
                ("ada", job, "?queue=none", 404),
            ] {
                let answer = try await web.post(token, body, query)
                #expect(answer.status == status && !answer.error.isEmpty, "\(query) \(answer)")
            }
            #expect(try Self.stored(redis, "bulk").count == 1 && Self.stored(redis).count == 1)
            #expect(try Self.stored(redis, "blog").count == 1)
            #expect(try await web.post("ada", job, "?queue=bulk").status == 202)
            for path in ["/api/v1/jobs", "/api/v1/status", "/api/v1/openapi.json", "/", "/jobs"] {
                #expect(try await web.ask("shop", path).status == 403, "\(path)")
            }
            for path in ["/api/v1/check", "/api/v1/actions/pause-queue", "/api/v1/actions/enqueue"] {
                #expect(try await web.ask("shop", path, "{}").status == 403, "\(path)")
            }
            #expect(try redis.run("XLEN", "push:{shared}:audit").number == 1)
            web.process.send(SIGTERM)
            #expect(try await web.process.wait() == .exited(0))
        }

        @Test("enqueue all jobs of a request or none, and learn which lines are wrong")
        func lines() async throws {
            let redis = try RedisServer()
            let web = try await WebProcess(redis.url, ["shop": ["--role", "producer", "--queue", "default"]])
            let jobs = TestJob.many(1000)
            let all = try await web.post("shop", jobs.joined(separator: "\n"))
            #expect(all.status == 202 && all.body["enqueued"] as? Int == 1000)
            let stored = try Self.stored(redis)
            #expect(stored.count == 1000 && all.ids?.count == 1000)
            #expect(zip(stored, all.ids ?? []).allSatisfy { $0.contains(#""id":"\#($1)""#) })
            let array = try await web.post("shop", "[\(jobs[..<3].joined(separator: ","))]")
            #expect(array.status == 202 && array.ids?.count == 3)

            let broken = [jobs[0], "{\"token\":", jobs[1], #"{"alert":"x"}"#, "", "x"].joined(separator: "\n")
            for (body, status, numbers) in [
                (jobs[0] + "\nx\n" + jobs[1] + "\n" + #"{"alert":"x"}"#, 400, [2, 4]), (broken, 400, [2, 4, 6]),
                ("[\(jobs[0]),1]", 400, [2]), ("[\(jobs[0])", 400, []), ("", 400, []),
                ((jobs + jobs).joined(separator: "\n"), 413, []),
                (TestJob.large("ab", bytes: 2 << 20), 413, []), (TestJob.large("ab", bytes: 5000), 400, [1]),
            ] {
                let answer = try await web.post("shop", body)
                #expect(answer.status == status && answer.refused == numbers, "\(answer)")
            }
            #expect(try Self.stored(redis).count == 1003)

            let mistyped = TestJob.text(TestJob.token("", 1), #""pushtype":"alert","#)
            let hinted = try await web.post("shop", mistyped + "\n" + mistyped)
            let hints = hinted.body["hints"] as? [[String: Any]]
            #expect(hinted.status == 202 && hints?.count == 1 && hints?.first?["jobs"] as? Int == 2, "\(hinted)")
            #expect(try await web.post("shop", mistyped, "?strict=1").status == 400)
        }

        @Test("repeat a request with its key, also at the same time, and each job is sent once")
        func repetitions() async throws {
            let (redis, simulator) = try await startServers()
            let web = try await WebProcess(
                redis.url,
                [
                    "shop": ["--role", "producer", "--queue", "default"],
                    "blog": ["--role", "producer", "--queue", "default"],
                ])
            let jobs = (0..<50).map { number in
                TestJob.text(
                    TestJob.token("", number),
                    #""campaign":"sale","# + (number % 2 == 0 ? "" : #""id":"own-\#(number)","#))
            }
            let body = jobs.joined(separator: "\n")
            let port = try web.port
            let headers = [
                "Authorization: Bearer \(try #require(web.tokens["shop"]))", "Idempotency-Key: order 1742",
                "Content-Type: application/x-ndjson",
            ]
            let answers: [RawConnection.Answer] = try await withThrowingTaskGroup(of: RawConnection.Answer.self) {
                group in
                for _ in 0..<6 {
                    group.addTask {
                        try await RawConnection.request(
                            "/api/v1/jobs", port: port, method: "POST", headers: headers, body: body)
                    }
                }
                return try await group.reduce(into: []) { $0.append($1) }
            }
            #expect(answers.allSatisfy { $0.status == 202 }, "\(answers)")
            let all = try answers.map { try #require(jsonObject($0.body)["ids"] as? [String]) }
            let ids = all[0]
            #expect(Set(all).count == 1 && Set(ids).count == 50)
            // A request with another key, of another user, or without a key is another request.
            let others = [
                try await web.post("shop", jobs[0], "", ["Idempotency-Key: order 1743"]),
                try await web.post("blog", jobs[0], "", ["Idempotency-Key: order 1742"]),
                try await web.post("shop", jobs[0]),
            ].map { $0.ids?.first ?? "" }
            #expect(Set(others + ids).count == 53)
            #expect(
                try await web.post("shop", jobs[0], "", ["Idempotency-Key: \(String(repeating: "k", count: 256))"])
                    .status
                    == 400)
            let account = try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish()
            let queue = try QueueContents(redis)
            #expect(account.delivered == 53 && queue.count("dropped") == 0)
            #expect(queue.isSettled && queue.dead.isEmpty)
            // A repetition pushes nothing, and adds nothing to the total.
            try await redis.apnsWorker(["campaign", "show", "sale", "--json"]).shows(
                #""total":53"#, #""left":0"#, #""delivered":53"#, #""dropped":0"#)
        }

        @Test("repeat a request that Redis did not confirm, and each job is sent once")
        func unconfirmed() async throws {
            let (redis, simulator) = try await startServers()
            let web = try await WebProcess(redis.url, ["shop": ["--role", "producer", "--queue", "default"]])
            let body = TestJob.many(10).joined(separator: "\n")
            #expect(try await web.post("shop", TestJob.text(TestJob.token("f", 1))).status == 202)
            redis.pause()
            let lost = try await web.post("shop", body, "", ["Idempotency-Key: k"])
            #expect(lost.status == 503 && lost.error.contains("Redis"), "\(lost)")
            redis.resume()
            try await eventually("the dashboard finds Redis again") {
                try await web.post("shop", body, "", ["Idempotency-Key: k"]).status == 202
            }
            let first = try await web.post("shop", body, "", ["Idempotency-Key: k"])
            #expect(first.status == 202 && first.ids?.count == 10)
            let stored = try Self.stored(redis)
            // All repetitions have pushed the same IDs.
            let ids = Set(stored.compactMap { $0.firstMatch(of: /"id":"([^"]+)"/).map { String($0.1) } })
            #expect(ids.isSuperset(of: first.ids ?? []) && ids.count == 11)
            let account = try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish()
            #expect(account.delivered == 11)
            let queue = try QueueContents(redis)
            #expect(queue.count("dropped:Duplicate") == stored.count - 11 && queue.isSettled && queue.dead.isEmpty)
        }

        @Test("are asked to come back later while the queue is too long or Redis is nearly full")
        func later() async throws {
            let redis = try RedisServer()
            let web = try await WebProcess(
                redis.url, ["shop": ["--role", "producer", "--queue", "default", "--max-queue-length", "10"]])
            let jobs = TestJob.many(8).joined(separator: "\n")
            #expect(try await web.post("shop", jobs).status == 202)
            #expect(try await web.post("shop", jobs).status == 202)
            let refused = try await web.post("shop", jobs)
            #expect(refused.status == 429 && refused.retryAfter ?? 0 > 0, "\(refused)")
            #expect(try Self.stored(redis).count == 16)
            try redis.run("LTRIM", "push:{default}:jobs", "0", "8")
            #expect(try await web.post("shop", jobs).status == 202)

            try redis.run("DEL", "push:{default}:jobs")
            try redis.run("CONFIG", "SET", "maxmemory", "1")
            // The dashboard reads the memory once per second. Before that, Redis itself refuses the jobs.
            let full = try await web.post("shop", jobs)
            #expect(full.status == 429 && full.retryAfter ?? 0 > 0, "\(full)")
            try redis.run("CONFIG", "SET", "maxmemory", "0")
            try redis.fill(percent: 95)
            try await eventually("nearly full") {
                let answer = try await web.post("shop", jobs)
                return answer.status == 429 && answer.error.contains("nearly full")
            }
            try redis.run("CONFIG", "SET", "maxmemory", "0")
            try redis.run("DEL", "push:{default}:jobs")
            try await eventually("not full") { try await web.post("shop", jobs).status == 202 }

            // Requests with mistakes use up the token's credit, if they come fast enough.
            try await eventually("the credit is used up") {
                let arguments = [
                    "-sS", "--noproxy", "*", "-H", "Authorization: Bearer \(web.tokens["shop"] ?? "")", "-d", "{",
                ]
                let addresses = Array(repeating: web.address + "/api/v1/jobs", count: 400)
                let curl = try ChildProcess("curl", arguments + addresses)
                try await curl.wait()
                return curl.output.contains("had mistakes")
            }
            #expect(web.process.errors.contains("web_producer_limited"))
        }

        @Test(
            "The bytes of half-sent bodies are bounded, for each producer and in all, and other producers are served.")
        func halfSent() async throws {
            let redis = try RedisServer()
            let rights = ["--role", "producer", "--queue", "default"]
            let names = ["a", "b", "c", "d", "e", "f"]
            let web = try await WebProcess(
                redis.url, Dictionary(uniqueKeysWithValues: (names + ["shop"]).map { ($0, rights) }))
            #expect(try await web.post("shop", TestJob.many(1)[0]).status == 202)
            let half = String(repeating: "x", count: 1 << 19)
            // Opens connections, and sends half a body on each.
            func begin(_ name: String, _ count: Int) async throws -> [RawConnection] {
                let token = try #require(web.tokens[name])
                var connections: [RawConnection] = []
                for _ in 0..<count {
                    let connection = try RawConnection(port: web.port)
                    let text =
                        "POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer \(token)\r\n"
                        + "Content-Length: \(1 << 20)\r\n\r\n\(half)"
                    var rest = Substring(text)
                    try await eventually("it is sent or refused") {
                        connection.read()
                        rest = rest.dropFirst(connection.send(String(rest)))
                        return rest.isEmpty || connection.isClosed || !connection.received.isEmpty
                    }
                    connections.append(connection)
                }
                return connections
            }
            func count(_ status: Int, _ connections: [RawConnection]) -> Int {
                for connection in connections { connection.read() }
                return connections.count { $0.received.hasPrefix("HTTP/1.1 \(status) ") }
            }
            var own = try await begin("a", 60)
            try await eventually("the producer is refused what exceeds its share") { count(429, own) >= 44 }
            #expect(own.contains { $0.received.lowercased().contains("retry-after: 1\r\n") })
            // Other producers are not refused.
            #expect(try await web.post("shop", TestJob.many(1)[0]).status == 202)
            var others: [RawConnection] = []
            for name in names.dropFirst() { others += try await begin(name, 15) }
            try await eventually("all are refused what exceeds the share of all") { count(503, others) > 0 }
            let status = try String(contentsOfFile: "/proc/\(web.process.processIdentifier)/status", encoding: .utf8)
            let resident = try #require(status.firstMatch(of: /VmHWM:\s+(\d+) kB/).flatMap { Int($0.1) })
            #expect(resident < 256 << 10, "\(resident) KiB")
            // The share of a request is free again when the request ends.
            (own, others) = ([], [])
            try await eventually("the share is free again") {
                let jobs = TestJob.many(1)[0]
                for name in names {
                    guard try await web.post(name, jobs).status == 202 else { return false }
                }
                return true
            }
        }

        /// The requests of a client, which sends one after the other on one connection, until one fails.
        private struct Client {
            let process: ChildProcess

            init(_ web: WebProcess, _ names: [String]) throws {
                let requests = names.map { name in
                    """
                    url = "\(web.address)/api/v1/jobs"
                    header = "Authorization: Bearer \(web.tokens["shop"] ?? "")"
                    header = "Idempotency-Key: \(name)"
                    header = "Content-Type: application/json"
                    data = "{\\"token\\":\\"\(name)\\",\\"alert\\":\\"x\\"}"
                    noproxy = "*"
                    no-buffer
                    silent
                    write-out = "\(name) %{http_code}\\n"
                    """
                }
                let file = web.path(UUID().uuidString)
                try Data(requests.joined(separator: "\nnext\n").utf8).write(to: URL(filePath: file))
                process = try ChildProcess("curl", ["--fail-early", "-K", file])
            }

            var accepted: [String] { process.output.matches(of: /([0-9a-f]{64}) 202\n/).map { String($0.1) } }
        }

        @Test(
            "find every job of an answered request in Redis once after the dashboard was killed, and repeat the others")
        func crashes() async throws {
            let (redis, simulator) = try await startServers()
            let web = try await WebProcess(redis.url, ["shop": ["--role", "producer", "--queue", "default"]])
            let (connections, requests, kills) = (4, 1000, 3)
            // The idempotency key of a request is its job's token.
            var left = (0..<connections).map { client in
                (0..<requests).map { TestJob.token("a\(client)", $0) }
            }
            var (answered, repeated): (Set<String>, Set<String>) = ([], [])
            func stored() throws -> [(token: String, id: String)] {
                try Self.stored(redis).map { job in
                    let token = try #require(job.firstMatch(of: /"token":"([0-9a-f]+)"/)?.1)
                    return (String(token), String(try #require(job.firstMatch(of: /"id":"([0-9a-f]+)"/)?.1)))
                }
            }
            for round in 0...kills {
                let clients = try left.filter { !$0.isEmpty }.map { try Client(web, $0) }
                if round < kills {
                    try await eventually("requests are answered, round \(round)") {
                        clients.allSatisfy { $0.accepted.count >= 50 || $0.process.ending != nil }
                    }
                    web.process.kill()
                }
                for client in clients { try await client.process.wait() }
                let accepted = clients.flatMap(\.accepted)
                #expect(!accepted.isEmpty && answered.isDisjoint(with: accepted))
                answered.formUnion(accepted)
                left = left.map { names in names.filter { !answered.contains($0) } }
                let counts = try stored().reduce(into: [:]) { $0[$1.token, default: 0] += 1 }
                #expect(answered.allSatisfy { counts[$0] == 1 || counts[$0] ?? 0 > 1 && repeated.contains($0) })
                // Of the requests without an answer, only the one that each client had in flight can be in Redis.
                repeated.formUnion(left.compactMap(\.first))
                #expect(Set(counts.keys).isSubset(of: answered.union(repeated)))
                if round < kills { try await web.restart() }
            }
            let (total, jobs) = (connections * requests, try stored())
            #expect(answered.count == total && Set(jobs.map(\.token)).count == total)
            // The repetition of a request pushes the same ID.
            #expect(Set(jobs.map { $0.token + $0.id }).count == total && jobs.count - total <= kills * connections)
            let account = try await WorkerProcess(redis, simulator, ["--exit-when-done"]).finish()
            #expect(account.delivered == total)
            let queue = try QueueContents(redis)
            #expect(queue.count("dropped:Duplicate") == jobs.count - total && queue.isSettled && queue.dead.isEmpty)
            let sent = try await simulator.stop()
            #expect(sent.distinctTokens == total && sent.duplicates == 0)
        }

        @Test("can do so with the example in Python")
        func example() async throws {
            let redis = try RedisServer()
            let web = try await WebProcess(redis.url, ["shop": ["--role", "producer", "--queue", "default"]])
            let path = Repository.path("deploy/producers/enqueue_http.py")
            let text = ##"a"b\c </x> Grüße 😀"##
            let python = try ChildProcess(
                "/usr/bin/python3", [path, TestJob.token("a", 1), text],
                environment: ["DASHBOARD_URL": web.address, "DASHBOARD_TOKEN": try #require(web.tokens["shop"])])
            #expect(try await python.wait() == .exited(0), "\(python.errors)")
            #expect(python.output == "enqueued 101 jobs\n")
            let stored = try Self.stored(redis)
            #expect(stored.count == 101 && stored.count { $0.contains(#""unique_for":"86400s""#) } == 100)
            // The last job has `replaces`, and is the newest with that key.
            let newest = try #require(try redis.run("GET", "push:{default}:newest:courier-1742").text)
            #expect(stored.last?.contains(newest) == true && stored.last?.contains("replaces") == true)
        }
    }
}
