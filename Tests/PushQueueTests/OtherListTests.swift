import NIOCore
import PushJob
import PushQueue
import QueueTestSupport
import TestSupport
import Testing

@Suite("A list of jobs with a configured name")
struct OtherListTests {
    @Test("is claimed from its own head: jobs returned at the right end are claimed next")
    func right() async throws {
        try await withQueue { queue in
            let list = "queue:\(UInt64.random(in: 0...UInt64.max))"
            let keys = try QueueKeys(prefix: list, queue: "q", list: list, head: .right)
            func worker(_ name: String, _ limits: QueueLimits = QueueLimits()) -> TestWorker {
                TestWorker(name, client: queue.client, keys: keys, limits: limits)
            }
            func oldestFirst() throws -> [String] {
                let all = try #require(queue.redis.run("LRANGE", list, "0", "-1").elements)
                return all.reversed().compactMap(\.text)
            }
            // Pushed as Sidekiq does.
            for number in 1...120 { try queue.redis.run("LPUSH", list, "job \(number)") }
            let jobs = (1...120).map { "job \($0)" }

            let limits = QueueLimits { $0.maximumClaimSize = 10 }
            let first = try await worker("w", limits).claim(50)
            #expect(first.bodies.map { String(buffer: $0) } == ["job 1", "job 2"])
            #expect(try oldestFirst() == Array(jobs.dropFirst(2)))

            let second = try await worker("w").claim(30, first: 51, join: false)
            #expect(second.bodies.map { String(buffer: $0) } == Array(jobs[2..<32]))
            #expect(try await worker("w").release() == 32)
            #expect(try oldestFirst() == jobs)

            let v = worker("v")
            _ = try await v.claim(3)
            try queue.redis.run("RPUSH", keys.inbox, "waited")
            try queue.redis.run("ZADD", keys.workers, "XX", "1", "v")
            let claims = (1...3).map(v.id)
            #expect(try await worker("x").reclaim("v") == [3, 0])
            let reclaimed = (1...3).map {
                #"{"apns_worker":1,"reclaims":1,"origin":"v:\#(claims[$0 - 1])","job":job \#($0)}"#
            }
            #expect(try oldestFirst() == reclaimed + Array(jobs.dropFirst(3)))
            #expect(try await worker("x").claim(1).bodies.first.map { String(buffer: $0) } == "waited")
            #expect(try queue.redis.run("EXISTS", "\(list):{q}:jobs") == .integer(0))
        }
    }

    @Test("must be in the queue's slot of a Cluster")
    func slot() throws {
        #expect(try QueueKeys().listIsInSlot)
        #expect(try !QueueKeys(queue: "push", list: "queue:push").listIsInSlot)
        #expect(try QueueKeys(queue: "push", list: "queue:{push}").listIsInSlot)
    }

    @Test("must have a valid name", arguments: ["", " ", "a b", "a\n", String(repeating: "x", count: 256)])
    func names(name: String) {
        let error = #expect(throws: QueueKeys.Invalid.self) { try QueueKeys(list: name) }
        #expect(error?.description.contains("the list must be") == true)
    }

    @Test("a job whose tokens are read from a text is split, and loses only its tokens")
    func splitText() async throws {
        try await withQueue { queue in
            let job = #"{"class":"P","args":["{\"alert\":\"\u00e9\",\"tokens\":[\"aa\",\"bb\",\"cc\"]}"]}"#
            let worker = queue.worker("w")
            try queue.push([job])
            let body = try #require(await worker.claim(1).bodies.first)
            let read = try JobDecoder.decode(body, as: .sidekiq(classes: []))
            try await worker.settle { settlement in
                settlement.split(
                    1, prefix: EnvelopeWriter().prefix(), pieces: read.tokenPieces(of: 2), cut: read.tokensMember,
                    original: read.original, text: read.body)
            }
            let rest = #"{"class":"P","args":["{\"alert\":\"\u00e9\"}"]}"#
            #expect(
                try queue.retries() == [
                    #"{"apns_worker":1,"attempt":1,"claim":"w:\#(worker.id(1))/1","tokens":["aa","bb"],"job":\#(rest)}"#,
                    #"{"apns_worker":1,"attempt":1,"claim":"w:\#(worker.id(1))/2","tokens":["cc"],"job":\#(rest)}"#,
                ])
        }
    }
}
