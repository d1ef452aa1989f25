import Foundation
import NIOCore
import PushJob
import PushQueue
import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import Operations

@Suite("Sorted jobs for operators", .queue)
struct SortedJobsTests {
    private let queue = QueueScope.queue

    enum Place: String, CaseIterable, Sendable {
        case list, inbox, sorted, retry, failed

        var isPostponed: Bool { self == .retry || self == .failed }
    }

    enum Change: String, CaseIterable, Sendable { case cancel, discard, move, run }

    static func job(_ id: String, _ members: String = "") -> String {
        #"{"id":"\#(id)",\#(members)"token":"\#(OperatorScene.token)","alert":"Hello"}"#
    }

    /// A job that was released, so it has a wrapper.
    static func released(_ id: String) -> String { #"{"apns_worker":1,"attempt":2,"job":\#(job(id))}"# }

    /// A member of the sorted jobs, as claims write it.
    static func member(_ number: Int, _ job: String) -> String {
        let digits = String(number)
        let zeros = String(repeating: "0", count: 16 - digits.count)
        return #"{"apns_worker":1,"claim":"sorted:\#(zeros)\#(digits)","job":\#(job)}"#
    }

    private static func texts(_ value: RedisValue) throws -> [String] {
        try #require(value.elements).compactMap(\.text)
    }

    private var jobs: QueueJobs { QueueJobs(queue.client, queue.keys) }

    private func put(_ bodies: [String], in place: Place) throws {
        for (number, body) in bodies.enumerated() {
            switch place {
            case .list: try queue.redis.run("RPUSH", queue.keys.jobs, body)
            case .inbox: try queue.redis.run("RPUSH", queue.keys.inbox, body)
            case .sorted: try sort(body, number, at: 100 * number)
            case .retry, .failed:
                let set = place == .retry ? queue.keys.retry : queue.keys.failed
                try queue.redis.run("ZADD", set, "\(4_000_000_000_000 + number)", body)
            }
        }
    }

    private func sort(_ body: String, _ number: Int, at score: Int) throws {
        try queue.redis.run("ZADD", queue.keys.sorted, "\(score)", Self.member(number, body))
    }

    /// Returns the jobs that are left, in any place.
    private func left() throws -> [String] {
        try queue.jobs() + queue.inbox() + sorted() + queue.retries()
    }

    private func sorted() throws -> [String] {
        try Self.texts(queue.redis.run("ZRANGE", queue.keys.sorted, "0", "-1")).map {
            SortedMember(ByteBuffer(string: $0)).job.text
        }
    }

    private func other(_ head: QueueKeys.Head = .left) throws -> QueueKeys {
        try QueueKeys(prefix: "other-\(UInt64.random(in: 0...UInt64.max))", queue: "q", head: head)
    }

    private static func ids(_ found: [StoredJob]) -> [String] { found.map { $0.id?.text ?? "?" } }

    // MARK: Listing

    @Test("A job has one key and one body in every place, and its own wrapper is read.", arguments: Place.allCases)
    func places(place: Place) async throws {
        let bodies = [Self.job("a"), Self.released("b"), "not JSON", Self.job("d", #""campaign":"spring","#)]
        try put(bodies, in: place)
        let found = try await jobs.all().sorted { $0.body.text < $1.body.text }
        #expect(found.map(\.body.text) == bodies.sorted() && found.allSatisfy { $0.isWhole })
        let own = try #require(found.first { $0.id?.text == "b" })
        #expect(own.envelope.attempt == 2 && own.original.text == Self.job("b"))
        #expect(own.key == JobKey.of(ByteBuffer(string: Self.job("b"))))
        #expect(found.contains { $0.campaign?.text == "spring" })
        // The score of a sorted job is not a time.
        #expect(
            found.allSatisfy { ($0.state == .waiting) != place.isPostponed && ($0.due == nil) != place.isPostponed })
        #expect(found.allSatisfy { ($0.state == .retrying) == (place == .failed) })
        let cells = JobRow(queue: "q", job: own, now: 5).cells(now: 5, hasQueue: false)
        #expect(place.isPostponed || cells[0] == "waiting" && cells[3] == "-", "\(cells)")
        #expect(try await jobs.all(JobFilter { $0.states = [.waiting] }).isEmpty == place.isPostponed)
        #expect(try await jobs.all(JobFilter { $0.ids = ["a"] }).count == 1)
        #expect(try await jobs.all(JobFilter { $0.tokens = [OperatorScene.token] }).count == 3)
        // The bytes of the place's wrapper do not belong to the job.
        #expect(try await jobs.all(JobFilter { $0.texts = ["sorted:"] }).isEmpty)
    }

    @Test("Sorted jobs are listed as they are sent, before those of the list.")
    func order() async throws {
        try put([Self.job("list")], in: .list)
        try put([Self.job("inbox")], in: .inbox)
        try sort(Self.job("late"), 1, at: 9_000_000)
        try sort(Self.job("equal-2"), 3, at: 70)
        try sort(Self.job("equal-1"), 2, at: 70)
        try sort(Self.job("urgent"), 4, at: -1)
        let expected = ["inbox", "urgent", "equal-1", "equal-2", "late", "list"]
        #expect(try await Self.ids(jobs.all(inOrder: true)) == expected)
        for latestFirst in [false, true] {
            #expect(try await Self.ids(jobs.list(JobFilter(), limit: 50, latestFirst: latestFirst).jobs) == expected)
        }
    }

    @Test("Sorted jobs are listed in parts, each job once.", arguments: [7, 250])
    func parts(limit: Int) async throws {
        // Many jobs have one score, as urgent jobs do.
        for number in 0..<600 { try sort(Self.job("\(number)"), number, at: number < 300 ? -1 : number / 9) }
        try put((600..<700).map { Self.job("\($0)") }, in: .list)
        var (cursor, found): (String?, [String]) = (nil, [])
        repeat {
            let part = try await jobs.list(JobFilter(), after: cursor, limit: limit)
            found += Self.ids(part.jobs)
            cursor = part.cursor
        } while cursor != nil
        #expect(found.prefix(600) == (0..<600).map { "\($0)" }[...])
        #expect(found.count == 700 && Set(found).count == 700)
    }

    @Test("No job is missed that a worker sorts while all jobs are read.")
    func sortedMeanwhile() async throws {
        try put((0..<1500).map { Self.job("\($0)") }, in: .list)
        var (seen, next) = (Set<String>(), 0)
        try await jobs.sweep(JobFilter()) { place, page, _ in
            seen.formUnion(Self.ids(page))
            guard place == .list else { return true }
            for body in try Self.texts(queue.redis.run("LPOP", queue.keys.jobs, "300")) {
                try sort(body, next, at: next)
                next += 1
            }
            return true
        }
        #expect(next >= 900 && seen.count == 1500)
    }

    @Test("The beginning of a large sorted job is shown without the wrapper of its place.")
    func large() throws {
        let job = Self.job("large", #""x":"\#(String(repeating: "y", count: 5000))","#)
        let member = Self.member(7, job)
        let beginning = ByteBuffer(string: String(member.prefix(500)))
        let stored = StoredJob(sorted: beginning, size: member.utf8.count, format: .native)
        #expect(stored.size == job.utf8.count && !stored.isWhole && stored.id?.text == "large")
        #expect(job.hasPrefix(stored.body.text))
    }

    @Test(
        "A member that no worker wrote is a job itself.",
        arguments: [
            "", "{", job("a"), released("a"), #"{"apns_worker":1,"claim":"sorted:","job":{}}"#,
            #"{"apns_worker":1,"claim":"sorted:1x","job":{}}"#, #"{"apns_worker":1,"claim":"sorted:12","job":{"#,
            #"{"apns_worker":1,"claim":"sorted:12""#, #"{"apns_worker":1,"claim":"sorted:12","jobs":{}}"#,
            #" {"apns_worker":1,"claim":"sorted:12","job":{}}"#,
        ])
    func foreign(text: String) async throws {
        let member = SortedMember(ByteBuffer(string: text))
        #expect(member.job.text == text && member.lead.readableBytes == 0)
        try queue.redis.run("ZADD", queue.keys.sorted, "1", text)
        #expect(try await jobs.all().map(\.body.text) == [text])
        // The script treats the text as a job, too.
        let other = try other()
        #expect(try await changed(.move, to: other, JobFilter()) == 1)
        #expect(try Self.texts(queue.redis.run("LRANGE", other.jobs, "0", "-1")) == [text])
    }

    // MARK: Changing

    private func changed(_ change: Change, to other: QueueKeys, _ filter: JobFilter, limit: Int? = nil) async throws
        -> Int
    {
        var changes =
            switch change {
            case .cancel: JobChanges(jobs, .cancel(detail: "cancelled by ada"), filter, limit: limit)
            case .discard: JobChanges(jobs, .discard, filter, limit: limit)
            case .move: JobChanges(jobs, .move(to: other), filter, limit: limit)
            case .run: JobChanges(jobs, .run, filter, limit: limit)
            }
        try await changes.run()
        return changes.tally.changed
    }

    @Test("Each change has its effect in each place.", arguments: Place.allCases, Change.allCases)
    func changes(place: Place, change: Change) async throws {
        let other = try other(.right)
        try put([Self.job("a"), Self.released("b"), Self.job("c"), Self.job("d"), Self.job("d")], in: place)
        let filter = JobFilter { $0.ids = ["b", "d"] }
        let isPostponed = place.isPostponed
        // A sorted set of plain jobs has no equal members.
        let expected = isPostponed ? 2 : change == .run ? 0 : 3
        #expect(try await changed(change, to: other, filter) == expected)
        #expect(try await changed(change, to: other, filter) == 0)
        if change == .run {
            #expect(try left().count == (isPostponed ? 4 : 5))
            return
        }
        #expect(try left() == [Self.job("a"), Self.job("c")])
        let buried = try queue.dead()
        let cancelled = Array([Self.job("b"), Self.job("d"), Self.job("d")].prefix(expected))
        #expect(buried.map(\.original.text).sorted() == (change == .cancel ? cancelled : []))
        #expect(buried.allSatisfy { $0.header.text.contains(#""detail":"cancelled by ada""#) })
        #expect(buried.filter { $0.header.text.contains(#""attempts":1"#) }.count == (change == .cancel ? 1 : 0))
        #expect(try queue.stats() == (change == .move ? [:] : ["cancelled": expected]))
        guard change == .move else { return }
        let moved = try Self.texts(queue.redis.run("LRANGE", other.jobs, "0", "-1"))
        let retries = try Self.texts(
            queue.redis.run("ZRANGE", place == .failed ? other.failed : other.retry, "0", "-1"))
        let jobs = [Self.released("b"), Self.job("d"), Self.job("d")]
        // The head of the other list is at its right.
        #expect(isPostponed ? retries == Array(jobs.dropLast()) && moved.isEmpty : moved.reversed() == jobs)
    }

    @Test(
        "A change of many jobs keeps its limit, the order of the others and their scores.",
        arguments: [Place.list, .sorted])
    func many(place: Place) async throws {
        try put((0..<1500).map { Self.job("\($0)", $0 % 3 == 0 ? #""app":"b","# : "") }, in: place)
        let filter = JobFilter { $0.apps = ["b"] }
        let other = try other()
        #expect(try await changed(.move, to: other, filter, limit: 200) == 200)
        #expect(try await changed(.cancel, to: other, filter) == 300)
        #expect(try left() == (0..<1500).filter { $0 % 3 != 0 }.map { Self.job("\($0)") })
        let moved = try Self.texts(queue.redis.run("LRANGE", other.jobs, "0", "-1"))
        #expect(moved == (0..<200).map { Self.job("\(3 * $0)", #""app":"b","#) })
        guard place == .sorted else { return }
        let score = try queue.redis.run("ZSCORE", queue.keys.sorted, Self.member(1499, Self.job("1499"))).text
        #expect(score == "149900")
    }

    @Test("Of equal jobs, a change with a limit takes as many as it may.", arguments: [Place.list, .sorted])
    func equalJobs(place: Place) async throws {
        try put(Array(repeating: Self.job("d"), count: 5), in: place)
        let other = try other()
        #expect(try await changed(.discard, to: other, JobFilter(), limit: 2) == 2)
        #expect(try left().count == 3)
    }

    @Test("Jobs that a worker sorts between the count and the change are changed.")
    func changedMeanwhile() async throws {
        try put((0..<40).map { Self.job("\($0)") }, in: .list)
        var changes = JobChanges(jobs, .discard, JobFilter())
        var isFirst = true
        try await changes.run(
            perSecond: 100,
            progress: { _ in
                guard isFirst else { return }
                isFirst = false
                do {
                    for (number, body) in try Self.texts(queue.redis.run("LPOP", queue.keys.jobs, "40")).enumerated() {
                        try sort(body, number, at: number)
                    }
                } catch { Issue.record(error) }
            })
        #expect(!isFirst)
        #expect(changes.tally.changed == 40)
        #expect(try left().isEmpty)
    }

    @Test("Jobs are cancelled on a full Redis, and a key of another type is named and nothing is changed.")
    func conditions() async throws {
        let server = try RedisServer()
        try await withQueue(on: server) { queue in
            let keys = queue.keys
            for number in 0..<300 {
                try queue.redis.run("ZADD", keys.sorted, "1", Self.member(number, Self.job("\(number)")))
            }
            for number in 300..<1000 { try queue.push([Self.job("\(number)")]) }
            try queue.redis.run("CONFIG", "SET", "maxmemory", "1")
            var changes = JobChanges(QueueJobs(queue.client, keys), .cancel(detail: ""), JobFilter(), limit: 900)
            try await changes.run()
            try queue.redis.run("CONFIG", "SET", "maxmemory", "0")
            #expect(changes.tally.changed == 900)
            #expect(try queue.dead().count == 900 && queue.jobs().count == 0)
            #expect(try queue.redis.run("ZCARD", keys.sorted).number == 100)
            try queue.push([Self.job("a")])
            for key in [keys.sorted, keys.inbox] {
                try queue.redis.run("DEL", key)
                try queue.redis.run("SET", key, "x")
                let before = try queue.everything()
                var others = JobChanges(QueueJobs(queue.client, keys), .discard, JobFilter())
                let error = await #expect(throws: RedisError.self) { try await others.run() }
                #expect("\(error as Any)".contains("WRONGTYPE \(key) holds a string"))
                #expect(try queue.everything() == before)
                try queue.redis.run("DEL", key)
            }
        }
    }

    // MARK: Counting

    @Test("All counts have sorted jobs among those that wait.")
    func counts() async throws {
        try put([Self.job("a"), Self.job("b")], in: .list)
        try put([Self.job("c")], in: .inbox)
        try put([Self.job("d"), Self.job("e"), Self.job("f")], in: .sorted)
        let gauges = try await QueueGauges.read(queue.client, queue.keys)
        #expect(gauges.jobs == 6 && gauges.later == 0 && gauges.total == 6)
        let overview = try await QueueOverview.read(queue.client, queue.keys)
        #expect(overview.waiting == 6 && overview.due == 0)
        try await queue.worker("w").settle { $0.minute = .sample() }
        let key = try #require(queue.redis.run("KEYS", queue.keys.minute("*")).elements?.first?.text)
        #expect(try queue.redis.run("HGET", key, "backlog").text == "6")
        let check = try await QueueCheck(queue.client, queue.keys).run(now: 0)
        #expect(check.facts.contains { $0.contains(": 6 jobs wait") }, "\(check.facts)")
    }

    @Test(
        "The oldest job is the one that came first among those that are sent next, without urgent ones.",
        arguments: [false, true])
    func oldest(isUrgentOnly: Bool) async throws {
        let now = try await queue.client.time()
        func job(_ seconds: Int64) -> String { Self.job("\(seconds)", #""enqueued_at":\#(now / 1000 - seconds),"#) }
        try put([job(3)], in: .list)
        try sort(job(900), 1, at: -1)
        if !isUrgentOnly {
            try sort(job(50), 7, at: 10)
            try sort(job(70), 4, at: 30)
            try sort(job(60), 5, at: 20)
        }
        let expected: Int64 = isUrgentOnly ? 900_000 : 70_000
        let age = try #require(try await QueueOverview.read(queue.client, queue.keys).oldestWaiting)
        #expect((expected..<expected + 60_000).contains(age), "\(age)")
        let gauges = try await QueueGauges.read(queue.client, queue.keys)
        #expect(gauges.headEnqueuedAt(as: .native) == (now / 1000 - expected / 1000) * 1000)
    }

    @Test("A push and a campaign count sorted jobs toward the maximum number of waiting jobs.")
    func maximum() async throws {
        try put([Self.job("a"), Self.job("b")], in: .list)
        try put([Self.job("c"), Self.job("d"), Self.job("e")], in: .sorted)
        let more = [ByteBuffer(string: Self.job("f"))]
        let refused = try await JobPush.push(more, queue.client, queue.keys, maximumLength: 5)
        #expect(refused == .listIsTooLong(length: 5))
        #expect(try await JobPush.push(more, queue.client, queue.keys, maximumLength: 6) == .pushed)
        for (ahead, state) in [(6, CampaignCursor.State.full), (7, .pushed)] {
            let cursor = CampaignCursor(
                ListedCampaign("spring", OneJob(), ahead: ahead), by: "ada", queue.client, queue.keys)
            #expect(try await cursor.push(more, after: 0).state == state)
        }
        #expect(try queue.jobs().count == 4)
    }

    private struct OneJob: TestJobs {
        let count = 1

        func jobs(after first: Int, atMost count: Int, bytes: Int) throws -> [ByteBuffer] { [] }
    }

    // MARK: Shares

    @Test("The overview has the five keys with the most waiting bytes, and ignores what no worker wrote.")
    func shares() async throws {
        func read() async throws -> QueueShares? { try await QueueOverview.read(queue.client, queue.keys).shares }
        #expect(try await read() == nil)
        try queue.redis.run(
            "HSET", queue.keys.shares, "number", "7", "time", "1000", "by:acme", "5000", "by:", "1300", "by:done",
            "900",
            "common:3", "1900", "by:a", "1100", "by:b", "1100", "by:c", "1001", "by:nan", "nan", "by:inf", "inf",
            "by:x", "x",
            "other", "9000", "by:\u{1B}[31m", "1200")
        // Without jobs, no key waits.
        #expect(try await read() == QueueShares(count: 0, waitingBytes: 0, largest: []))
        try put([Self.job("a")], in: .sorted)
        let shares = try #require(try await read())
        #expect(shares.count == 7 && shares.waitingBytes == 4000 + 900 + 300 + 200 + 100 + 100 + 1)
        #expect(shares.largest.map(\.key) == ["acme", nil, "", "[31m", "a"])
        #expect(shares.largest.map(\.waitingBytes) == [4000, 900, 300, 200, 100])
        #expect(shares.dominant?.key == "acme")
        try queue.redis.run("HDEL", queue.keys.shares, "by:acme")
        #expect(try await read()?.dominant == QueueShares.Share(key: nil, waitingBytes: 900))
        try queue.redis.run("HSET", queue.keys.shares, "time", "nan")
        #expect(try await read()?.waitingBytes == 1300 + 900 + 1900 + 1100 + 1100 + 1001 + 1200)
    }

    @Test("A queue is found by its sorted jobs.")
    func search() async throws {
        try await OperatorScene.with(configured: []) { scene in
            try scene.run("ZADD", "push:{sorted}:sorted", "1", Self.member(1, Self.job("a")))
            try scene.run("HSET", "push:{shares}:shares", "time", "1")
            #expect(try await scene.fleet.search().names == ["sorted"])
            let status = try await StatusReader(scene.fleet).read(scene.fleet.queues())
            #expect(status.queues.map(\.waiting) == [1] && status.problems.map(\.kind.name) == ["no_worker"])
        }
    }
}
