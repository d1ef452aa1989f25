import NIOCore
import PushQueue
import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import Operations
@testable import PushJob

@Suite("Jobs for operators", .queue)
struct QueueJobsTests {
    private let queue = QueueScope.queue

    private static func job(_ number: Int, _ members: String = "") -> String {
        #"{"id":"job-\#(number)",\#(members)"token":"\#(String(repeating: "ab", count: 32))","alert":"Hello"}"#
    }

    private static func wrapped(_ job: String, _ members: String) -> String {
        #"{"apns_worker":1,\#(members)"job":\#(job)}"#
    }

    private static func texts(_ value: RedisValue) throws -> [String] {
        let elements = try #require(value.elements)
        return elements.compactMap { $0.text }
    }

    private var jobs: QueueJobs { QueueJobs(queue.client, queue.keys) }

    private static func ids(_ jobs: QueueJobs, _ filter: JobFilter = JobFilter()) async throws -> [String] {
        try await jobs.all(filter).map { $0.id.map { String(buffer: $0) } ?? "?" }
    }

    private static func changed(_ changes: JobChanges) async throws -> Int {
        var changes = changes
        try await changes.run()
        return changes.tally.changed
    }

    @Test("the state of a job is that of its place, and a deferral does not hide a failure")
    func states() async throws {
        try queue.push([Self.job(1), Self.job(2)])
        try queue.redis.run("RPUSH", queue.keys.inbox, Self.job(3))
        let error = #""attempt":2,"error":{"status":503,"reason":"ServiceUnavailable","at":1795279247000},"#
        try queue.push(retry: Self.wrapped(Self.job(4), error), at: 4_000_000_000_000)
        try queue.push(retry: Self.wrapped(Self.job(5), #""wait":{"reason":"AppPaused","at":5},"#), at: 1)
        try queue.push(retry: Self.wrapped(Self.job(6), #""attempt":1,"id":"job-6","#), at: 4_000_000_000_001)
        try queue.push(retry: Self.job(7), at: 4_000_000_000_002)
        try queue.push(
            retry: Self.wrapped(Self.job(8), error + #""wait":{"reason":"CampaignLimited","at":6},"#),
            at: 4_000_000_000_003)
        _ = try await queue.worker("w").claim(1)
        let states = try await jobs.all().reduce(into: [String: StoredJob.State]()) { states, job in
            if let id = job.id { states[String(buffer: id)] = job.state }
        }
        #expect(
            states == [
                "job-1": .waiting, "job-2": .waiting, "job-3": .claimed, "job-4": .retrying, "job-5": .deferred,
                "job-6": .scheduled, "job-7": .scheduled, "job-8": .retrying,
            ])
        var filter = JobFilter()
        filter.states = [.retrying]
        filter.reasons = ["Service*"]
        #expect(try await Self.ids(jobs, filter) == ["job-4", "job-8"])
        filter.reasons = ["CampaignLimited"]
        #expect(try await Self.ids(jobs, filter) == ["job-8"])
        let both = try #require(try await jobs.all(filter).first)
        #expect(both.failure == Envelope.Cause(reason: "ServiceUnavailable", status: 503, at: 1_795_279_247_000))
        #expect(both.deferral == Envelope.Cause(reason: "CampaignLimited", at: 6))
        filter.reasons = ["Service*", "AppPaused"]
        filter.states = []
        filter.dueBefore = 4_000_000_000_001
        #expect(try await Self.ids(jobs, filter) == ["job-5", "job-4"])
        // A job that is due at that time is not due before it.
        filter.reasons = []
        filter.states = StoredJob.State.postponed
        #expect(try await Self.ids(jobs, filter) == ["job-5", "job-4"])
        filter.dueBefore = 4_000_000_000_002
        #expect(try await Self.ids(jobs, filter) == ["job-5", "job-6", "job-4"])
    }

    @Test("a search whose time is up reads one page of Redis, and continues from there")
    func listUntil() async throws {
        try queue.push((0..<1200).map { Self.job($0) })
        for number in 1200..<2000 { try queue.push(retry: Self.wrapped(Self.job(number), ""), at: Int64(number)) }
        let filter = JobFilter { $0.ids = ["job-7", "job-1900"] }
        let all = try await jobs.list(filter, limit: 50)
        #expect(all.looked == 2000 && all.jobs.count == 2 && all.cursor == nil)
        var (cursor, found, parts): (String?, [String], [Int]) = (nil, [], [])
        repeat {
            let part = try await jobs.list(filter, after: cursor, limit: 50, until: .now)
            found += part.jobs.compactMap { $0.id.map { String(buffer: $0) } }
            parts.append(part.looked)
            cursor = part.cursor
        } while cursor != nil
        #expect(found == ["job-7", "job-1900"])
        #expect(parts.reduce(0, +) == 2000 && parts.allSatisfy { $0 <= 250 })
    }

    @Test("a list of jobs is read in parts of one size, each job once, also by a filter", arguments: [false, true])
    func listInParts(latestFirst: Bool) async throws {
        try queue.push((0..<300).map { Self.job($0, #""app":"shop","#) })
        // Several jobs are due at one time.
        for number in 300..<450 {
            let wrapped = Self.wrapped(Self.job(number, #""app":"shop","#), #""attempt":1,"#)
            try queue.push(retry: wrapped, at: 4_000_000_000_000 + Int64(number / 7))
        }
        _ = try await queue.worker("w").claim(120)
        let shop = JobFilter { $0.apps = ["shop"] }
        for filter in [JobFilter(), shop] {
            var (cursor, found, sizes): (String?, [String], [Int]) = (nil, [], [])
            repeat {
                let part = try await jobs.list(filter, after: cursor, limit: 50, latestFirst: latestFirst)
                found += part.jobs.compactMap { $0.id.map { String(buffer: $0) } }
                sizes.append(part.jobs.count)
                cursor = part.cursor
            } while cursor != nil
            // A part that ends with the last job also has a cursor, and the next part is empty.
            #expect(sizes.filter { $0 > 0 } == Array(repeating: 50, count: 9))
            #expect(Set(found).count == 450)
            let due = try found.suffix(150).map { try #require(Int($0.dropFirst(4))) / 7 }
            #expect(due == (latestFirst ? due.sorted(by: >) : due.sorted()))
        }
    }

    @Test("a list of claimed jobs continues in the same order, although leases are renewed between its parts")
    func listAcrossLanes() async throws {
        try queue.push((0..<200).map { Self.job($0) })
        let (late, early) = (queue.worker("b"), queue.worker("a"))
        _ = try await late.claim(150)
        _ = try await early.claim(50)
        var (cursor, found): (String?, [String]) = (nil, [])
        repeat {
            let part = try await jobs.list(JobFilter(), after: cursor, limit: 40)
            found += part.jobs.compactMap { $0.id.map { String(buffer: $0) } }
            cursor = part.cursor
            for lane in [late, early] { _ = try await lane.claim(0) }
        } while cursor != nil
        #expect(found == (Array(150..<200) + Array(0..<150)).map { "job-\($0)" })
    }

    @Test("a device's record is marked as partial if the time was up before everything was searched")
    func deviceInTime() async throws {
        let token = String(repeating: "0f", count: 32)
        try queue.push([#"{"id":"first","token":"\#(token)","alert":"x"}"#] + (0..<600).map { Self.job($0) })
        for number in 0..<300 { try queue.bury(.numbered(number), at: Int64(number)) }
        var findings = DeviceFindings(token: token, now: 0)
        try await findings.search(jobs, limit: 20, for: .zero)
        #expect(findings.isPartial && findings.jobs.isEmpty)
        #expect(findings.json().contains(#""partial":true"#))
        findings = DeviceFindings(token: token, now: 0)
        try await findings.search(jobs, limit: 20)
        #expect(!findings.isPartial && findings.jobs.count == 1)
        #expect(!findings.json().contains("partial"))
        #expect(findings.gaps == ["no worker has recorded yet which results are kept"])
    }

    @Test("each filter selects what it describes, in each format")
    func filters() async throws {
        let now = try #require(queue.redis.run("TIME").elements?.first?.text.flatMap(Int64.init))
        try queue.push([
            #"{"id":"a","app":"one","topic":"com.one","campaign":"spring","fair":"acme","labels":{"country":"de","kind":"a=b"},"token":"ABCD","alert":"Hi \u00e9","enqueued_at":\#(now - 100)}"#,
            #"{"id":"b\"","tokens":["0102","<03 04>"],"alert":"other","enqueued_at":\#(now - 10)}"#,
            #"{"id":"c","priority":"broken","campaign":"spring","token":"ef"}"#,
            #"{"class":"Push","args":[{"token":"0f0f","alert":"x"}],"jid":"sidekiq"}"#, "{\"id\":\"d\",broken",
        ])
        func found(_ fill: (inout JobFilter) -> Void) async throws -> [String] {
            var filter = JobFilter()
            fill(&filter)
            return try await Self.ids(jobs, filter)
        }
        #expect(try await found { $0.ids = ["a", "c"] } == ["c", "a"])
        #expect(try await found { $0.ids = ["b\""] } == ["b\""])
        #expect(try await found { $0.ids = ["d"] } == ["d"])
        #expect(try await found { $0.ids = ["sidekiq"] } == ["sidekiq"])
        #expect(try await found { $0.apps = ["one"] } == ["a"])
        #expect(try await found { $0.topics = ["com.one"] } == ["a"])
        #expect(try await found { $0.campaigns = ["spring"] } == ["c", "a"])
        #expect(try await found { $0.fair = ["acme", "none"] } == ["a"])
        #expect(try await found { $0.fair = ["acm"] } == [])
        #expect(try await found { $0.labels = ["country=de"] } == ["a"])
        #expect(try await found { $0.labels = ["kind=a=b"] } == ["a"])
        #expect(try await found { $0.labels = ["country=fr"] } == [])
        #expect(try await found { $0.tokens = ["abcd"] } == ["a"])
        #expect(try await found { $0.tokens = ["0304", "0f0f"] } == ["sidekiq", "b\""])
        #expect(try await found { $0.tokens = ["ef"] } == ["c"])
        #expect(try await found { $0.texts = ["OTHER", "broken"] } == ["d", "c", "b\""])
        #expect(try await found { $0.until = Moment.now - 50_000 } == ["a"])
        #expect(try await found { $0.since = Moment.now - 50_000 } == ["b\""])
        #expect(try await found { $0.states = [.claimed] } == [])
        #expect(try await found { $0.campaigns = ["') redis.call('FLUSHALL') --"] } == [])
        let keys = try await jobs.all().reduce(into: [String: String]()) { keys, job in
            if let id = job.id { keys[String(buffer: id)] = job.key }
        }
        // The same digest as that of `redis.sha1hex`.
        let body = try #require(queue.jobs().first)
        let digest = try #require(queue.redis.run("EVAL", "return redis.sha1hex(ARGV[1])", "0", body).text)
        #expect(keys["a"] == String(digest.prefix(10)))
        #expect(try await found { $0.keys = [keys["sidekiq"] ?? ""] } == ["sidekiq"])
    }

    @Test(
        "every job is listed once while producers add jobs and workers claim some",
        arguments: [QueueKeys.Head.left, .right], [false, true])
    func pages(head: QueueKeys.Head, inOrder: Bool) async throws {
        let list = "list-\(UInt64.random(in: 0...UInt64.max))"
        let keys = try QueueKeys(prefix: list, queue: "q", list: list, head: head)
        let push = head == .left ? "RPUSH" : "LPUSH"
        for number in 0..<5000 { try queue.redis.run(push, list, Self.job(number)) }
        let jobs = QueueJobs(queue.client, keys)
        var (seen, next) = ([Int](), 5000)
        try await jobs.sweep(JobFilter(), inOrder: inOrder) { _, page, _ in
            seen += page.compactMap { $0.id.flatMap { Int(String(buffer: $0).dropFirst(4)) } }
            // New jobs are added at the tail, and workers claim from the head.
            for _ in 0..<Int.random(in: 0...40) {
                try queue.redis.run(push, list, Self.job(next))
                next += 1
            }
            let claimed =
                try queue.redis.run(head == .left ? "LPOP" : "RPOP", list, "10").elements?.compactMap(\.text) ?? []
            // Some claimed jobs are released, in their order.
            if Bool.random(), inOrder {
                for job in claimed.reversed() { try queue.redis.run(head == .left ? "LPUSH" : "RPUSH", list, job) }
            }
            return true
        }
        #expect(seen.count == Set(seen).count)
        #expect(seen == seen.sorted(by: inOrder ? (<) : (>)))
        // Jobs that were claimed before they were read may be missing: those at the head of the list.
        let missing = Set(inOrder ? 20..<5000 : 200..<5000).subtracting(seen)
        #expect(missing.isEmpty, "\(missing.sorted())")
    }

    @Test("equal jobs, jobs of a mebibyte and jobs that are not JSON end no page and no listing")
    func hostile() async throws {
        for _ in 0..<1500 { try queue.push(["same"]) }
        for number in 0..<6 {
            try queue.push([Self.job(number, #""x":"\#(String(repeating: "y", count: 1 << 20))","#)])
        }
        try queue.push([String(repeating: "[", count: 100_000), "\u{1B}[31m\u{0}", "", "{\"apns_worker\":1,}"])
        for number in 0..<600 { try queue.push(retry: "retry \(number)", at: 5) }
        var (count, largest, cursor, bytes) = (0, 0, String?.none, [Int]())
        repeat {
            let page = try await jobs.page(.list, after: cursor, decodes: true)
            count += page.jobs.count
            bytes.append(page.jobs.reduce(0) { $0 + $1.size })
            largest = max(largest, page.jobs.count)
            cursor = page.cursor
        } while cursor != nil
        #expect(count == 1510 && largest <= QueueJobs.pageSize)
        // A page can end with a large job.
        #expect(bytes.allSatisfy { $0 <= QueueJobs.pageBytes + (2 << 20) }, "\(bytes)")
        #expect(try await Self.ids(jobs).count == 2110)
        #expect(try queue.jobs().count == 1510)
    }

    @Test("cancelled jobs become dead letters in order, and requeue returns them", arguments: [true, false])
    func cancel(isRight: Bool) async throws {
        let list = "list-\(UInt64.random(in: 0...UInt64.max))"
        let keys = try QueueKeys(prefix: list, queue: "q", list: isRight ? list : nil, head: isRight ? .right : .left)
        let count = 3000
        for number in 0..<count {
            let campaign = number % 3 == 0 ? #""campaign":"wrong","# : ""
            try queue.redis.run(isRight ? "LPUSH" : "RPUSH", keys.jobs, Self.job(number, campaign))
        }
        try queue.redis.run("RPUSH", keys.inbox, Self.job(count, #""campaign":"wrong","#), Self.job(count + 1))
        for number in 0..<1200 {
            let job = Self.job(10_000 + number, number % 2 == 0 ? #""campaign":"wrong","# : "")
            let error =
                #""attempt":3,"error":{"status":503,"reason":"ServiceUnavailable","at":1},"tokens":["aa","bb"],"#
            try queue.redis.run("ZADD", keys.failed, "77", Self.wrapped(job, error))
        }
        let limits = QueueLimits { $0.results = .failures }
        let jobs = QueueJobs(queue.client, keys, limits: limits)
        let filter = JobFilter { $0.campaigns = ["wrong"] }
        var changes = JobChanges(jobs, .cancel(detail: "cancelled by me@here"), filter)
        try await changes.run()
        #expect(changes.tally.changed == 1000 + 1 + 600)
        #expect(changes.tally.notifications == 1001 + 1200)

        let rest = try Self.texts(queue.redis.run("LRANGE", keys.jobs, "0", "-1"))
        let expected = [Self.job(count + 1)] + (0..<count).filter { $0 % 3 != 0 }.map { Self.job($0) }
        #expect((isRight ? rest.reversed() : rest) == expected)
        #expect(try queue.redis.run("LLEN", keys.inbox).number == 0)
        #expect(try queue.redis.run("ZCARD", keys.failed).number == 600)
        #expect(try queue.redis.run("ZCARD", keys.cancelled).number == 1601)
        let results = try await ResultPage.read(from: "-", to: "+", count: 9999, queue.client, keys)
            .results
        #expect(results.count == 1001 + 1200)
        #expect(results.allSatisfy { $0["outcome"] == "cancelled" && $0["reason"] == "Cancelled" })
        #expect(results.count { $0["token"] == "aa" } == 600 && results.count { $0["token"] == "bb" } == 600)
        let day = try #require(queue.redis.run("KEYS", keys.statsPrefix + "*").elements?.first?.text)
        #expect(try Self.texts(queue.redis.run("HGETALL", day)) == ["cancelled", "2201"])

        let letters = DeadLetters(queue.client, keys)
        var only = DeadLetterFilter()
        only.reasons = [DeadLetter.cancelledReason]
        only.ids = ["job-10000"]
        var (found, place) = ([DeadLetters.Listed](), String?.none)
        repeat {
            let page = try await letters.page(.show, only, after: place, limit: 10)
            (found, place) = (found + page.letters, page.cursor)
        } while place != nil
        let letter = try #require(found.first)
        let head = letter.letter.header.text
        #expect(head.contains(#""attempts":2,"id":"job-10000""#) && head.contains(#""tokens":["aa","bb"]"#), "\(head)")
        #expect(head.contains(#""detail":"cancelled by me@here""#) && head.contains(#""error":"ServiceUnavailable""#))
        #expect(letter.letter.original.text == Self.job(10_000, #""campaign":"wrong","#))
        only.ids = []
        var (cursor, requeued) = (String?.none, 0)
        repeat {
            let page = try await letters.page(
                .requeue(first: false, keepsAttempts: true), only, after: cursor, limit: 10_000)
            (cursor, requeued) = (page.cursor, requeued + page.chosen)
        } while cursor != nil
        #expect(requeued == 1601)
        #expect(try queue.redis.run("LLEN", keys.jobs).number == 1 + 2000 + 1601)
    }

    @Test("only the jobs up to the last that matches are touched, and a limit is kept")
    func limit() async throws {
        for number in 0..<2000 { try queue.push([Self.job(number)]) }
        let filter = JobFilter { $0.ids = ["job-3"] }
        try queue.redis.run("CONFIG", "RESETSTAT")
        #expect(try await Self.changed(JobChanges(jobs, .discard, filter)) == 1)
        #expect(try queue.jobs() == (0..<2000).filter { $0 != 3 }.map { Self.job($0) })
        #expect(try await Self.changed(JobChanges(jobs, .discard, JobFilter(), limit: 700)) == 700)
        #expect(try queue.jobs() == (701..<2000).map { Self.job($0) })
        #expect(try queue.dead().isEmpty && queue.inbox().isEmpty)
        #expect(try queue.stats() == ["cancelled": 701])
    }

    @Test("run twice, a change finds nothing the second time")
    func twice() async throws {
        try queue.push([Self.job(1), Self.job(2), Self.job(3)])
        try queue.push(retry: Self.wrapped(Self.job(4), #""attempt":2,"#), at: 5)
        let page = try await jobs.page(.list, after: nil, fromHead: true, decodes: true)
        let retries = try await jobs.page(.retry, after: nil, decodes: true).jobs
        let chosen = [page.jobs[1]]
        #expect(
            try await JobWriter(jobs).change(.cancel(detail: ""), chosen, in: .list, passing: 3)
                == .init(changed: 1, passed: 3, evicted: 0))
        #expect(
            try await JobWriter(jobs).change(.cancel(detail: ""), chosen, in: .list, passing: 3)
                == .init(changed: 0, passed: 0, evicted: 0))
        for expected in [1, 0] {
            #expect(try await JobWriter(jobs).change(.cancel(detail: ""), retries, in: .retry).changed == expected)
        }
        #expect(try queue.dead().count == 2)
        #expect(try await JobWriter(jobs).restoreInbox() == 2)
        #expect(try await JobWriter(jobs).restoreInbox() == 0)
        #expect(try queue.jobs() == [Self.job(1), Self.job(3)])
    }

    @Test("while workers claim and release jobs, each is cancelled, settled or left, and none lost or duplicated")
    func concurrency() async throws {
        let count = 4000
        for number in 0..<count { try queue.push([Self.job(number, number % 2 == 0 ? #""campaign":"wrong","# : "")]) }
        let filter = JobFilter { $0.campaigns = ["wrong"] }
        let worker = queue.worker("w")
        let releasing = queue.worker("v")
        var changes = JobChanges(jobs, .cancel(detail: ""), filter)
        async let working = Self.work(worker, releasing)
        try await changes.run()
        let settled = try await working
        // Changes the jobs that were released after the last round.
        try await changes.run()
        let left = try queue.jobs() + queue.inbox()
        #expect(left.allSatisfy { !$0.contains("wrong") })
        #expect(settled + left.count + changes.tally.changed == count)
        #expect(try queue.dead().count == changes.tally.changed)
    }

    /// Claims jobs, settles some and releases others.
    private static func work(_ worker: TestWorker, _ releasing: TestWorker) async throws -> Int {
        var (settled, first) = (0, 1)
        for round in 0..<60 {
            let claimed = try await worker.claim(7, first: first, join: round == 0)
            let claims = (first..<first + claimed.bodies.count).map(worker.id)
            try await worker.settle { for claim in claims { $0.end(claim, .delivered) } }
            settled += claimed.bodies.count
            first += claimed.bodies.count
            _ = try await releasing.claim(5, first: 5 * round + 1, join: true)
            try await releasing.release()
        }
        return settled
    }

    @Test("run makes postponed jobs due, and a scheduled one is not scheduled again")
    func run() async throws {
        let far: Int64 = 4_000_000_000_000
        try queue.push(retry: Self.wrapped(Self.job(1), #""attempt":2,"error":{"reason":"X"},"#), at: far)
        try queue.push(retry: Self.wrapped(Self.job(2), #""attempt":1,"id":"job-2","#), at: far + 1)
        try queue.push(retry: Self.job(3), at: far + 2)
        try queue.push(retry: Self.wrapped(Self.job(4), #""attempt":1,"wait":{"reason":"AppPaused","at":1},"#), at: 5)
        try queue.push([Self.job(5)])
        #expect(try await Self.changed(JobChanges(jobs, .run, JobFilter())) == 3)
        let claimed = try await queue.worker("w").claim(10)
        let envelopes = claimed.bodies.map { Envelope.read($0) }
        #expect(claimed.bodies.count == 5)
        let due = zip(claimed.texts, envelopes).filter(\.1.isDue).map(\.0)
        #expect(
            Set(due) == [
                #"{"apns_worker":1,"due":true,"attempt":1,"id":"job-2","job":\#(Self.job(2))}"#,
                #"{"apns_worker":1,"due":true,"job":\#(Self.job(3))}"#,
            ])
    }

    @Test("moved jobs keep their order and their time, and are in one queue at any moment")
    func move() async throws {
        for number in 0..<1500 { try queue.push([Self.job(number, number % 5 == 0 ? #""app":"b","# : "")]) }
        let retry = Self.wrapped(Self.job(9000, #""app":"b","#), #""attempt":2,"error":{"reason":"X"},"#)
        try queue.push(retry: retry, at: 4_000_000_000_123)
        let other = try QueueKeys(prefix: "o", queue: "other", list: "\(queue.keys.jobs):o", head: .right)
        try queue.redis.run("LPUSH", other.jobs, "first")
        let filter = JobFilter { $0.apps = ["b"] }
        #expect(
            try await Self.changed(JobChanges(QueueJobs(queue.client, queue.keys), .move(to: other), filter)) == 301)
        #expect(try queue.jobs() == (0..<1500).filter { $0 % 5 != 0 }.map { Self.job($0) })
        let moved = try Self.texts(queue.redis.run("LRANGE", other.jobs, "0", "-1"))
        #expect(moved.reversed() == ["first"] + stride(from: 0, to: 1500, by: 5).map { Self.job($0, #""app":"b","#) })
        #expect(try queue.redis.run("ZSCORE", other.failed, retry).text == "4000000000123")
        #expect(try queue.retries().isEmpty && queue.stats().isEmpty)
    }

    @Test("200,000 jobs are counted in calls that read a few hundred each, and some are cancelled")
    func bounded() async throws {
        let server = try RedisServer()
        try await withQueue(on: server) { queue in
            let jobs = QueueJobs(queue.client, queue.keys)
            let fill = """
                for i = 1, 200000, 100 do
                    local jobs = {}
                    for j = i, i + 99 do
                        jobs[#jobs + 1] = '{"id":"job-' .. j .. '","campaign":"c' .. j % 2 .. '","token":"abcd","payload":{"x":"'
                            .. string.rep('y', 250) .. '"}}'
                    end
                    redis.call('RPUSH', KEYS[1], unpack(jobs))
                end
                """
            try queue.redis.run("EVAL", fill, "1", queue.keys.jobs)
            try queue.redis.run("CONFIG", "RESETSTAT")
            #expect(try await jobs.sweep(JobFilter(), decodes: false) { _, _, _ in true } == 200_000)
            // 500 jobs per page, read in portions: 1 M such jobs take Redis 5 s in calls of some 2.4 ms.
            let calls = try queue.redis.calls()
            #expect(calls["evalsha"] == 405 && calls["lrange"] ?? 0 <= 404 * 26, "\(calls)")
            let filter = JobFilter { $0.texts = [#""campaign":"c1""#] }
            #expect(try await Self.changed(JobChanges(jobs, .discard, filter, limit: 5000)) == 5000)
            #expect(try queue.redis.run("LLEN", queue.keys.jobs).number == 195_000)
        }
    }

    @Test("scheduled and deferred jobs are counted up to a number, and retries always")
    func counts() async throws {
        #expect(try await PostponedCounts.read(queue.client, queue.keys) == PostponedCounts())
        let error = #""attempt":2,"error":{"reason":"X","at":1},"#
        let id = #""id":"a,\"wait\":{ b","#
        for number in 0..<3 {
            try queue.push(retry: Self.wrapped(Self.job(number), #""wait":{"reason":"AppPaused","at":1},"#), at: 9)
            try queue.push(retry: Self.wrapped(Self.job(number), error), at: 1)
        }
        for number in 0..<900 { try queue.push(retry: Self.wrapped(Self.job(number), id), at: 5) }
        try queue.push(retry: #"{"x":1,"wait":{"reason":"AppPaused"}}"#, at: 2)
        let counts = try await PostponedCounts.read(queue.client, queue.keys)
        #expect(counts?.deferred == 3 && counts?.scheduled == 901)
        // The listing has the same numbers as the count.
        let states = try await Dictionary(grouping: jobs.all(), by: \.state).mapValues(\.count)
        #expect(states == [.retrying: 3, .deferred: 3, .scheduled: 901])
        let overview = try await QueueOverview.read(queue.client, queue.keys)
        #expect(overview.retrying == 3 && overview.due == 907 && overview.postponed == counts)
        let fill = "for i = 1, 1000 do redis.call('ZADD', KEYS[1], i, i) end"
        try queue.redis.run("EVAL", fill, "1", queue.keys.retry)
        #expect(try await PostponedCounts.read(queue.client, queue.keys) == nil)
    }
}

extension QueueJobs {
    /// Returns all jobs that match, in the order of reading.
    func all(_ filter: JobFilter = JobFilter(), inOrder: Bool = false) async throws -> [StoredJob] {
        var all: [StoredJob] = []
        try await sweep(filter, inOrder: inOrder) { _, page, _ in
            all += page
            return true
        }
        return all
    }
}

extension JobFilter {
    init(_ change: (inout JobFilter) -> Void) {
        self.init()
        change(&self)
    }
}
