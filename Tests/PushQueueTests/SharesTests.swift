import Foundation
import NIOCore
import PushJob
import PushQueue
import QueueTestSupport
import TestSupport
import Testing

/// Most tests claim one job at a time, because the order matters only if a claim leaves jobs; see `claim.lua`.
@Suite("The order of jobs with fair and urgent", .queue)
struct SharesTests {
    private let queue = QueueScope.queue

    private static func job(_ id: String, _ fair: String? = nil, _ members: String = "") -> String {
        #"{"id":"\#(id)"\#(fair.map { #","fair":"\#($0)""# } ?? "")\#(members),"token":"ab","payload":{}}"#
    }

    private static func id(_ body: String) throws -> String {
        String(try #require(body.firstMatch(of: /"id":"(\w+)"/)).1)
    }

    /// Claims jobs one after the other until none waits.
    private func claimAll(by name: String = "w", of queue: TestQueue? = nil) async throws -> [String] {
        let worker = (queue ?? self.queue).worker(name)
        var bodies: [String] = []
        while case let claimed = try await worker.claim(1, first: bodies.count + 1, sort: true),
            let body = claimed.texts.first
        {
            bodies.append(body)
        }
        return bodies
    }

    private func ids() async throws -> [String] { try await claimAll().map(Self.id) }

    private func sorted() throws -> [String] {
        let members = try queue.redis.run("ZRANGE", queue.keys.sorted, "0", "-1").elements ?? []
        return members.map { String(decoding: $0.bytes, as: UTF8.self) }
    }

    private func shares() throws -> [String: String] {
        let flat = try queue.redis.run("HGETALL", queue.keys.shares).elements?.compactMap(\.text) ?? []
        return stride(from: 0, to: flat.count, by: 2).reduce(into: [:]) { $0[flat[$1]] = flat[$1 + 1] }
    }

    @Test("each key gets an equal share, and jobs without a key are one line together")
    func order() async throws {
        try queue.push((1...6).map { Self.job("a\($0)", "a") } + [Self.job("b1", "b"), Self.job("b2", "b")])
        try queue.push([Self.job("n1"), Self.job("n2"), Self.job("c1", "c")])
        #expect(try await ids() == ["a1", "b1", "n1", "c1", "n2", "a2", "b2", "a3", "a4", "a5", "a6"])
    }

    @Test("a share is measured in bytes, so that a key with large jobs sends fewer")
    func bytes() async throws {
        let tokens = #","other":"\#(String(repeating: "x", count: 280))""#
        try queue.push((1...3).map { Self.job("a\($0)", "a", tokens) } + (1...9).map { Self.job("b\($0)", "b") })
        let order = try await ids().joined(separator: " ")
        #expect(order == "a1 b1 b2 b3 b4 b5 b6 b7 b8 a2 b9 a3")
    }

    @Test("a key that comes late does not wait for the others, and gets no share for the time before")
    func late() async throws {
        let worker = queue.worker("w")
        try queue.push((1...9).map { Self.job("a\($0)", "a") })
        #expect(try await worker.claim(4, sort: true).texts.map(Self.id) == ["a1", "a2", "a3", "a4"])
        try queue.push((1...4).map { Self.job("b\($0)", "b") })
        let order = try await claimAll(by: "v").map(Self.id)
        #expect(order == ["b1", "a5", "b2", "a6", "b3", "a7", "b4", "a8", "a9"])
    }

    @Test("urgent jobs are first, in their order, and do not count against the share of their key")
    func urgent() async throws {
        let urgent = #","urgent":true"#
        try queue.push((1...3).map { Self.job("a\($0)", "a") })
        try queue.push([Self.job("u1", "a", urgent), Self.job("b1", "b"), Self.job("u2", nil, urgent)])
        #expect(try await ids() == ["u1", "u2", "a1", "b1", "a2", "a3"])
    }

    @Test("a claim returns the bytes of the list, whatever they are, and identical jobs all survive")
    func bytesOfTheList() async throws {
        let odd = [
            "", "garbage \u{0}\n", "{", "[]", "é", #"{"fair"#, #"{"fair":"#, #""fair":"x""#,
            #"{"apns_worker":1,"job":{}}"#,
            #"{"apns_worker":1,"claim":"sorted:0000000000000001","job":{}}"#, #"{"apns_worker":1,"#, " {} ",
        ]
        let jobs = odd + Array(repeating: Self.job("a", "a"), count: 5) + Array(repeating: "{}", count: 5) + odd
        try queue.push(jobs)
        #expect(try await claimAll().sorted() == jobs.sorted())
        #expect(try queue.redis.run("EXISTS", queue.keys.jobs, queue.keys.sorted).number == 0)
    }

    @Test(
        "fair and urgent are read only from the job's own object",
        arguments: [
            (#"{"fair":"x"}"#, "x", false), (#"{"fair" : "x" , "urgent" : true }"#, "x", true),
            (#"{"payload":{"fair":"no","urgent":true},"alert":{"title":"x"}}"#, "", false),
            (#"{"payload":{"a":{"fair":"no"},"b":["fair",{"fair":"no"}]},"fair":"yes","custom":{}}"#, "yes", false),
            (#"{"alert":"say \"fair\":\"no\"","custom":{},"fair":"caf\u00e9 \"q\"","x":{}}"#, "café \"q\"", false),
            (#"{"alert":"ends with \\","x":{},"fair":"y","z":{}}"#, "y", false),
            (#"{"alert":"}}]] {[ \"fair\"","x":[1,[2,{"a":3}]],"fair":"y","z":[]}"#, "y", false),
            (#"{"a":{},"b":"fair","c":["fair"],"fair":"y","d":{}}"#, "y", false),
            (#"{"a":{},"tokens":["aa","bb"],"fair":"y","d":{}}"#, "y", false),
            (#"{"a":{},"tokens": [ "aa", "bb" ], "fair" : "y","d":{}}"#, "y", false),
            // The search may skip only the job's own `tokens`, and only if they are an array.
            (#"{"tokens":{"b":[1],"fair":"no","urgent":true},"a":[{"x":"y"}]}"#, "", false),
            (#"{"a":{"tokens":["x]",{"b":{"fair":"no"}}]},"fair":"y","z":{}}"#, "y", false),
            (#"{"a":{},"unfair":"no","b":[1,[2],{"c":3}],"fair":"y","z":{}}"#, "y", false),
            (#"{"fair":5}"#, "", false), (#"{"fair":null,"urgent":1}"#, "", false), (#"{"fair":""}"#, "", false),
            (#"{"fair":"a\nb"}"#, "", false), (#"{"fair":"a\u0085b"}"#, "", false), (#"{"fair":"\ud800"}"#, "", false),
            (#"{"fair":"\#(String(repeating: "f", count: 100))"}"#, String(repeating: "f", count: 100), false),
            (#"{"fair":"\#(String(repeating: "f", count: 101))"}"#, "", false), (#"{"urgent":"true"}"#, "", false),
            (
                #"{"fair":"\#(String(repeating: #"\u0066"#, count: 100))"}"#, String(repeating: "f", count: 100), false
            ),
            (#"{"class":"P","args":[{"x":{},"fair":"s","urgent":true}],"jid":"1"}"#, "s", true),
            (
                #"{"class":"P","args":[{"job_class":"P","arguments":[{"custom":{"fair":"no"},"fair":"s"}]}]}"#, "s",
                false
            ),
            (
                #"{"args":[{"arguments":[{"custom":{},"fair":{"_aj_serialized":"A::Symbol","value":"s"},"x":{}}]}]}"#,
                "s", false
            ),
        ])
    func members(body: String, key: String, isUrgent: Bool) async throws {
        try queue.push([body, body])
        #expect(try await queue.worker("w").claim(1, sort: true).texts == [body])
        let keys = try shares().keys.filter { $0.hasPrefix("by:") }
        #expect(keys == (isUrgent ? [] : ["by:" + key]))
    }

    @Test("released and reclaimed jobs are next, in their order, and do not count twice")
    func returned() async throws {
        try queue.push((1...9).map { Self.job("a\($0)", "a") } + [Self.job("b1", "b")])
        let worker = queue.worker("w")
        #expect(try await worker.claim(5, sort: true).texts.map(Self.id) == ["a1", "b1", "a2", "a3", "a4"])
        let ends = try shares()
        #expect(try await worker.release() == 5)
        try queue.push([Self.job("c1", "c")])
        #expect(
            try await queue.worker("v").claim(6).texts.map(Self.id) == ["a1", "b1", "a2", "a3", "a4", "c1"])
        #expect(try shares().filter { $0.key == "by:a" || $0.key == "by:b" } == ends.filter { $0.key.hasPrefix("by:") })
        try queue.endLease("v")
        #expect(try await queue.worker("x").reclaim("v") == [6, 0])
        let again = try await claimAll(by: "y")
        #expect(try again.map(Self.id) == ["a1", "b1", "a2", "a3", "a4", "c1", "a5", "a6", "a7", "a8", "a9"])
        #expect(again[0].hasPrefix(#"{"apns_worker":1,"reclaims":1,"origin":"v:"#))
    }

    @Test("requeued jobs get a share like new ones")
    func requeued() async throws {
        let requeued = (1...4).map { #"{"apns_worker":1,"requeues":1,"requeued":5,"job":\#(Self.job("r\($0)", "r"))}"# }
        try queue.push(requeued + [Self.job("a1", "a"), Self.job("a2", "a")])
        #expect(try await claimAll().map(Self.id).prefix(4).sorted() == ["a1", "a2", "r1", "r2"])
    }

    @Test("requeued jobs that a lane gives back are next, too")
    func requeuedReturned() async throws {
        try queue.push(
            (1...6).map { #"{"apns_worker":1,"requeues":1,"requeued":5,"job":\#(Self.job("r\($0)", "r"))}"# })
        let worker = queue.worker("w")
        #expect(try await worker.claim(2, sort: true).texts.map(Self.id) == ["r1", "r2"])
        #expect(try await worker.release() == 2)
        let again = try await claimAll(by: "v")
        #expect(try again.map(Self.id) == (1...6).map { "r\($0)" })
        let envelope = Envelope.read(ByteBuffer(string: again[0]))
        #expect(envelope.isWrapped && envelope.reclaims == 0 && envelope.requeues == 1)
    }

    @Test("the key of a requeued job is found behind any wrapper, and a reclaimed one keeps its turn")
    func wrappers() async throws {
        let (tokens, job) = (String(repeating: #","ab""#, count: 5000), Self.job("r1", "r"))
        let heads = [
            #""attempt":1,"reserved":true,"requeues":1,"requeued":5,"id":"\"reclaims\":","tokens":["ab"\#(tokens)]"#,
            #""reclaims":1,"requeued":5"#, #""id":"\"requeued\":""#, #""x":7"#,
        ]
        for (head, isCounted) in zip(heads, [true, false, false, false]) {
            try await withQueue { queue in
                try queue.push((1...2).map { _ in #"{"apns_worker":1,\#(head),"job":\#(job)}"# })
                try await queue.worker("w").claim(1, sort: true)
                let end = try queue.redis.run("HGET", queue.keys.shares, "by:r").text
                #expect((end != nil) == isCounted, "\(head)")
            }
        }
    }

    @Test("a repeated claim returns the same jobs, and sorts none")
    func repeated() async throws {
        try queue.push((1...5).map { Self.job("a\($0)", "a") })
        let worker = queue.worker("w")
        let first = try await worker.claim(2, sort: true)
        try queue.push([Self.job("b1", "b")])
        let before = try queue.everything()
        let again = try await worker.claim(2, sort: true)
        #expect(again.texts == first.texts && again.stamp == first.stamp && again.nextDue == 0)
        #expect(try queue.everything() == before)
    }

    @Test("the reply says that jobs wait while some are sorted, also to a lane that only renews")
    func due() async throws {
        try queue.push((1...3).map { Self.job("a\($0)", "a") })
        let worker = queue.worker("w")
        #expect(try await worker.claim(1, sort: true).nextDue == 0)
        #expect(try queue.jobs().isEmpty && sorted().count == 2)
        #expect(try await queue.worker("v").claim(0).nextDue == 0)
        #expect(try await worker.claim(2, first: 2).nextDue == nil)
        #expect(try await worker.claim(2, first: 4).nextDue == nil)
        #expect(try await queue.worker("v").claim(0).nextDue == nil)
    }

    private static func postponed(_ id: String, _ fair: String?, _ members: String = "", failed: Bool = false) -> String
    {
        let error = failed ? #""error":{"reason":"Shutdown","at":1},"# : ""
        return #"{"apns_worker":1,"attempt":1,"id":"\#(id)",\#(error)"claim":"w:1.a","job":\#(job(id, fair, members))}"#
    }

    @Test("due jobs have the place of their key, and jobs of the inbox are first")
    func others() async throws {
        try queue.push((1...4).map { Self.job("a\($0)", "a") } + [Self.job("n1")])
        for number in 1...4 { try queue.push(retry: Self.postponed("d\(number)", "a"), at: Int64(number)) }
        for number in 1...2 { try queue.push(retry: Self.postponed("b\(number)", "b"), at: Int64(number + 4)) }
        try queue.push(retry: Self.postponed("m1", nil), at: 7)
        try queue.push(retry: Self.postponed("u1", "a", #","urgent":true"#), at: 8)
        try queue.push(retry: Self.postponed("later", "a"), at: 9_000_000_000_000)
        try queue.redis.run("RPUSH", queue.keys.inbox, Self.job("i1"))
        // Jobs that were pushed later come after the due jobs of their key.
        #expect(
            try await ids() == ["i1", "u1", "d1", "b1", "m1", "n1", "d2", "b2", "d3", "d4", "a1", "a2", "a3", "a4"])
        #expect(try queue.retries().count == 1)
    }

    @Test("a failed job counts against the share of its key, and waits for no other")
    func failed() async throws {
        try queue.push((1...3).map { Self.job("a\($0)", "a") })
        for number in 1...40 {
            try queue.push(retry: Self.postponed("f\(number)", "a", failed: true), at: Int64(number))
        }
        let worker = queue.worker("w")
        #expect(try await worker.claim(16, sort: true).bodies.count == 16)
        let time = try #require(try Int(shares()["time"] ?? ""))
        let end = try #require(try Int(shares()["by:a"] ?? ""))
        // The bytes of thirteen failed jobs, with their wrappers.
        #expect(end - time > 13 * 100)
        // So jobs of another key come first now.
        try queue.push((1...3).map { Self.job("c\($0)", "a") } + (1...3).map { Self.job("b\($0)", "b") })
        let next = try await queue.worker("v").claim(7, sort: true).texts.filter { !$0.contains("Shutdown") }
        #expect(try next.map(Self.id).prefix(3) == ["b1", "b2", "b3"])
    }

    @Test("a job that is split takes the share of its key, however many tokens it has")
    func split() async throws {
        let tokens = (0..<20_000).map { #""\#(String(format: "%064x", $0))""# }.joined(separator: ",")
        let large = #"{"id":"large","fair":"a","tokens":[\#(tokens)],"payload":{}}"#
        try queue.push([large])
        let keys = (1...4).map { "k\($0)" }
        // As large as a piece with a hundred tokens.
        let filling = #","other":"\#(String(repeating: "x", count: 6700))""#
        for number in 1...200 { try queue.push(keys.map { Self.job("\($0)n\(number)", $0, filling) }) }
        let worker = queue.worker("w")
        var (first, claimed, pieces, ofKeys) = (1, [String](), 0, 0)
        while ofKeys < 400 {
            claimed = try await worker.claim(8, first: first, sort: true).texts
            try #require(!claimed.isEmpty)
            try await worker.settle { settlement in
                for (index, body) in claimed.enumerated() {
                    let number = first + index
                    guard body.contains(#""id":"large""#) else {
                        settlement.end(number, .delivered)
                        ofKeys += 1
                        continue
                    }
                    guard let job = try? JobDecoder.decode(ByteBuffer(string: body)), job.tokenCount > 100 else {
                        settlement.end(number, .delivered)
                        pieces += 1
                        continue
                    }
                    settlement.split(
                        worker.id(number), prefix: EnvelopeWriter(attempt: 1).prefix(),
                        fair: ByteBuffer(string: "a"), pieces: job.tokenPieces(of: 100), cut: job.tokensMember,
                        original: job.original)
                }
            }
            first += 8
        }
        // Key `a` gets a fifth of the bytes: about a hundred pieces beside 400 jobs of the four other keys.
        #expect(pieces > 80 && pieces < 120, "\(pieces)")
    }

    @Test("a queue sorts its jobs once a lane has met one, and for 30 days after the last one")
    func time() async throws {
        let worker = queue.worker("w")
        try queue.push((1...12).map { Self.job("a\($0)", "a") })
        try await worker.claim(2)
        #expect(try queue.redis.run("EXISTS", queue.keys.sorted, queue.keys.shares).number == 0)
        // The time begins even if there is nothing to sort.
        try await queue.worker("v").claim(20, sort: true)
        func left() throws -> Int { try queue.redis.run("PTTL", queue.keys.shares).number ?? 0 }
        let month = 30 * 86_400_000
        #expect(try (month - 60_000...month).contains(left()))
        try queue.redis.run("PEXPIRE", queue.keys.shares, "1000000")
        try queue.push((1...12).map { Self.job("a\($0)", "a") })
        try await worker.claim(2, first: 3)
        #expect(try sorted().count == 10 && left() <= 1_000_000)
        try await worker.claim(2, first: 5, sort: true)
        #expect(try left() > 1_000_000)
        // Jobs that are sorted are claimed even if the shares have expired; later ones get a share as before.
        try queue.redis.run("DEL", queue.keys.shares)
        try queue.push([Self.job("late")])
        #expect(try await claimAll(by: "u").map(Self.id) == ["a5", "late"] + (6...12).map { "a\($0)" })
        #expect(try (1...month).contains(left()))
    }

    @Test("a claim of all jobs that wait sorts none of them")
    func everything() async throws {
        try queue.push((1...3).map { Self.job("a\($0)", "a") } + [Self.job("b1", "b")])
        let worker = queue.worker("w")
        // From this claim on, the size of jobs is known.
        try await worker.claim(1, sort: true)
        try await worker.claim(9, first: 2)
        let ends = try shares()
        try queue.push((4...9).map { Self.job("a\($0)", "a") })
        #expect(try await worker.claim(9, first: 5).texts == (4...9).map { Self.job("a\($0)", "a") })
        #expect(try shares() == ends)
    }

    @Test("at most 1,000 keys have a share of their own; keys whose jobs were claimed give up theirs")
    func manyKeys() async throws {
        let worker = queue.worker("w")
        try queue.push((1...3000).map { Self.job("j\($0)", "key \($0 % 1500)") })
        try await worker.claim(1, sort: true)
        for first in 2...4 { try await worker.claim(1, first: first) }
        let fields = try shares()
        #expect(fields.keys.count { $0.hasPrefix("by:") } == 1000)
        let common = fields.keys.count { $0.hasPrefix("common:") }
        #expect((32...64).contains(common), "\(common)")
        var bodies = 4
        while case let claimed = try await worker.claim(256, first: bodies + 1), !claimed.bodies.isEmpty {
            bodies += claimed.bodies.count
        }
        #expect(bodies == 3000)
        try queue.push((1...3).flatMap { [Self.job("x\($0)", "new \($0)"), Self.job("y\($0)", "new \($0)")] })
        try await worker.claim(1, first: bodies + 1)
        #expect(try Set(["by:new 1", "by:new 2", "by:new 3"]).isSubset(of: shares().keys) && shares().count < 1070)
    }

    @Test("a claim sorts up to 1,000 jobs or 512 KB, and claims about a quarter of these bytes while more wait")
    func bounds() async throws {
        try queue.push((1...2500).map { Self.job("a\($0)", "a") })
        let worker = queue.worker("w")
        #expect(try await worker.claim(10, sort: true).bodies.count == 10)
        #expect(try sorted().count == 990 && queue.jobs().count == 1500)
        #expect(try await worker.claim(10, first: 11).bodies.count == 10)
        #expect(try sorted().count == 1980)
        try queue.redis.run("DEL", queue.keys.jobs, queue.keys.sorted)
        let filling = #","other":"\#(String(repeating: "x", count: 100_000))""#
        try queue.push((1...30).map { Self.job("a\($0)", "a", filling) })
        let claimed = try await queue.worker("v").claim(10)
        #expect(claimed.bodies.count == 2)
        #expect(try queue.jobs().count == 24)
    }

    @Test("a job in which the search for its members takes long is sorted without them")
    func longSearch() async throws {
        let strings = (0..<20_000).map { "\($0)" }.joined(separator: #"","#)
        let long = #"{"id":"long","x":["\#(strings)"],"fair":"a","payload":{}}"#
        try queue.push([Self.job("b1", "b"), long, Self.job("b2", "b"), Self.job("b3", "b"), Self.job("b4", "b")])
        #expect(try await ids() == ["b1", "long", "b2", "b3", "b4"])
        #expect(try shares()["by:a"] == nil)
    }

    @Test("payloads with many strings hold up the sorting of other jobs only a little")
    func manyStrings() async throws {
        let strings = Array(repeating: #""a""#, count: 1000).joined(separator: ",")
        let jobs = (1...60).map { #"{"id":"a\#($0)","payload":{"x":[\#(strings)]},"fair":"a","labels":{"x":"y"}}"# }
        try queue.push(jobs + [Self.job("b1", "b")])
        let worker = queue.worker("w")
        for first in 1...4 { try await worker.claim(1, first: first, sort: true) }
        #expect(try queue.jobs().isEmpty)
        #expect(try shares().keys.filter { $0.hasPrefix("by:") }.sorted() == ["by:a", "by:b"])
    }

    @Test("the head of a list can be its right end")
    func right() async throws {
        let keys = try QueueKeys(prefix: "r\(UInt64.random(in: 0...UInt64.max))", queue: "q", head: .right)
        for number in 1...4 { try queue.redis.run("LPUSH", keys.jobs, Self.job("a\(number)", "a")) }
        try queue.redis.run("LPUSH", keys.jobs, Self.job("b1", "b"))
        let worker = TestWorker("w", client: queue.client, keys: keys, limits: QueueLimits())
        var order = try await worker.claim(1, sort: true).texts
        order += try await worker.claim(1, first: 2).texts
        #expect(try await worker.release() == 2)
        let rest = TestWorker("v", client: queue.client, keys: keys, limits: QueueLimits())
        for first in 1...5 { order += try await rest.claim(1, first: first).texts }
        #expect(try order.map(Self.id) == ["a1", "b1", "a1", "b1", "a2", "a3", "a4"])
    }

    @Test(
        "damaged shares change only the order",
        arguments: [
            ["number", "x", "time", "y", "by:a", "z"], ["number", "nan", "time", "nan", "by:a", "nan"],
            ["number", "inf", "time", "-inf", "by:a", "inf"], ["number", "1e300", "time", "1e300", "by:a", "1e300"],
            ["number", "-5", "time", "-5", "by:a", "-5"], ["number", "0", "time", "0", "by:a", "8e15"],
            ["number", "0.5", "time", "0.5", "by:a", "0.5"], ["number", "", "time", "", "by:a", ""],
        ])
    func damaged(fields: [String]) async throws {
        let same = Self.job("same", "a")
        try queue.push(Array(repeating: same, count: 4))
        let worker = queue.worker("w")
        try await worker.claim(1, sort: true)
        try queue.redis.run((["HSET", queue.keys.shares] + fields).map { Array($0.utf8) })
        for (score, member) in [("-inf", "low"), ("+inf", "high"), ("1e300", "")] {
            try queue.redis.run("ZADD", queue.keys.sorted, score, member)
        }
        try queue.push(Array(repeating: same, count: 4))
        let rest = try await claimAll(by: "v")
        #expect(rest.sorted() == (["low", "high", ""] + Array(repeating: same, count: 7)).sorted())
        #expect(rest.first == "low")
        // The next job is sorted as if nothing had happened.
        try queue.push([Self.job("a1", "a"), Self.job("b1", "b"), Self.job("b2", "b")])
        #expect(try await claimAll(by: "u").count == 3)
    }

    @Test("a claim names a key of the wrong type, and leaves all jobs")
    func wrongTypes() async throws {
        try queue.push([Self.job("a1", "a"), Self.job("a2", "a")])
        for key in [queue.keys.sorted, queue.keys.shares] {
            try queue.redis.run("SET", key, "x")
            let failure = await #expect(throws: QueueFailure.self) {
                try await queue.worker("w").claim(1, sort: true)
            }
            #expect("\(try #require(failure))".contains("WRONGTYPE \(key) holds a string"))
            try queue.redis.run("DEL", key)
        }
        #expect(try queue.jobs().count == 2)
    }

    @Test("on a server whose memory is full, jobs are sorted and claimed")
    func fullMemory() async throws {
        let server = try RedisServer()
        try await withQueue(on: server) { queue in
            try queue.push((1...20).map { Self.job("a\($0)", "a") })
            try await queue.worker("w").claim(1, sort: true)
            try queue.push([Self.job("b1", "b")])
            try queue.redis.run("CONFIG", "SET", "maxmemory", "1")
            #expect(try await claimAll(by: "v", of: queue).count == 20)
        }
    }
}
