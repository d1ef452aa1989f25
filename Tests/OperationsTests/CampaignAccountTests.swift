import Foundation
import NIOCore
import PushQueue
import Synchronization
import TestSupport
import Testing

@testable import Operations

/// The sums of a campaign after changes by operators.
@Suite("The account of a campaign")
struct CampaignAccountTests {
    private var scene: OperatorScene { SceneScope.scene }

    private static let now = Moment.now

    private static func job(_ id: String, tokens: Int = 1) -> String {
        let list = (0..<tokens).map { "\"\(String(repeating: "ab", count: 31))\(10 + $0)\"" }.joined(separator: ",")
        return #"{"id":"\#(id)","campaign":"spring","tokens":[\#(list)],"alert":"x"}"#
    }

    private static func counts(_ scene: OperatorScene, _ queue: String = "default") async throws -> CampaignCounts {
        let keys = try QueueKeys(queue: queue)
        return try await CampaignCounts.read("spring", scene.fleet.client(for: keys.jobs), keys)
    }

    private static func finished(_ scene: OperatorScene, _ queue: String = "default") throws -> Int {
        let entries = try scene.run("XRANGE", "push:{\(queue)}:results", "-", "+").elements ?? []
        return entries.count { "\($0)".contains("campaign_finished") }
    }

    @Test("A requeued dead letter is taken out of the sums, and a deleted one and others' stay", .scene)
    func requeued() async throws {
        try scene.run(
            "HSET", "push:{default}:campaign:spring", "total", "9", "delivered", "3", "dead", "5", "dead:X", "4",
            "dead:Y", "1")
        try scene.run("HSET", "push:{default}:campaign:other", "total", "1", "dead", "1", "dead:X", "1")
        try scene.bury("a", job: Self.job("a", tokens: 3))
        try scene.bury("b", "Y", job: Self.job("b"))
        try scene.bury("c", job: OperatorScene.job("c", #","campaign":"other""#))
        let requeue = try DeadLettersChange(.requeue, ["id": "a"], now: Self.now)
        _ = try await scene.desk().perform(requeue)
        var counts = try await Self.counts(scene)
        #expect(counts.counters == ["delivered": 3, "dead": 2, "dead:X": 1, "dead:Y": 1] && counts.left == 4)
        let delete = try DeadLettersChange(.delete, ["all": "1"], now: Self.now)
        #expect(try await scene.desk().perform(delete).count == 2)
        counts = try await Self.counts(scene)
        #expect(counts.ended == 5)
        #expect(try scene.run("HGET", "push:{default}:campaign:other", "dead").number == 1)
    }

    @Test(
        "After a requeue a guard counts from no more than what has ended, and from the same if that was later", .scene,
        arguments: [
            (#"{"ended":8,"dead":5,"dead:X":4}"#, ["ended": 5, "dead": 2, "dead:X": 1]),
            (#"{"ended":3,"dead":0,"dead:X":0}"#, ["ended": 3, "dead": 0, "dead:X": 0]),
        ] as [(String, [String: Double])])
    func guardBase(base: String, after: [String: Double]) async throws {
        try scene.run(
            "HSET", "push:{default}:campaign:spring", "total", "9", "delivered", "3", "dead", "5", "dead:X",
            "4",
            "guard", #"{"rules":[["dead",20]],"min":2,"base":\#(base)}"#)
        try scene.bury("a", job: Self.job("a", tokens: 3))
        _ = try await scene.desk().perform(
            DeadLettersChange(.requeue, ["id": "a"], now: Self.now))
        let text = try #require(scene.run("HGET", "push:{default}:campaign:spring", "guard").text)
        let read = try #require(JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any])
        #expect(read["base"] as? [String: Double] == after && read["min"] as? Int == 2, "\(text)")
        #expect("\(read["rules"] ?? "")".contains("dead"))
    }

    @Test("After a cancellation that was undone a campaign ends when nothing is left, and is reported once", .scene)
    func undone() async throws {
        try scene.run("HSET", "push:{default}:campaign:spring", "total", "4", "delivered", "1")
        try scene.push(Self.job("a", tokens: 2))
        let cancel = try JobsChange(.cancel, ["campaign": "spring"], now: Self.now)
        _ = try await scene.desk().perform(cancel)
        #expect(try await Self.counts(scene)[.cancelled] == 2)
        let undo = try DeadLettersChange(.requeue, ["reason": "Cancelled"], now: Self.now)
        _ = try await scene.desk().perform(undo)
        #expect(try await Self.counts(scene).ended == 1)
        #expect(try Self.finished(scene) == 0)
        // The rest of the list arrives, and all jobs are cancelled, so no notification is left.
        try scene.push(Self.job("b"))
        _ = try await scene.desk().perform(cancel)
        #expect(try await Self.counts(scene).finishedAt != nil)
        #expect(try Self.finished(scene) == 1)
        // After another requeue the campaign is unfinished, and its second end is not reported.
        _ = try await scene.desk().perform(undo)
        let counts = try await Self.counts(scene)
        #expect(counts.finishedAt == nil && counts.left == 3)
        _ = try await scene.desk().perform(cancel)
        #expect(try await Self.counts(scene).finishedAt != nil)
        #expect(try Self.finished(scene) == 1)
    }

    @Test(
        "Moved jobs take their part of the total with them, and the rest of the campaign ends",
        .scene(configured: ["default", "bulk"]))
    func moved() async throws {
        try scene.run("HSET", "push:{default}:campaign:spring", "total", "10", "delivered", "4")
        try scene.push(OperatorScene.job("x"), to: "push:{bulk}:jobs")
        try scene.push(Self.job("a", tokens: 4), Self.job("b", tokens: 2), OperatorScene.job("c"))
        let fields: Fields = ["campaign": "spring", "to_queue": "bulk"]
        let move = try JobsChange(.move, fields, now: Self.now)
        #expect(try await scene.desk().perform(move).count == 2)
        let (left, bulk) = (try await Self.counts(scene), try await Self.counts(scene, "bulk"))
        #expect(left.total == 4 && left.left == 0 && left.finishedAt != nil)
        #expect(bulk.total == 6 && bulk.left == 6 && !bulk.isOpen && bulk.finishedAt == nil)
        #expect(try Self.finished(scene) == 1 && Self.finished(scene, "bulk") == 0)
        // A campaign without a total gets none.
        try scene.push(OperatorScene.job("d", #","campaign":"plain""#))
        let plain: Fields = ["campaign": "plain", "to_queue": "bulk"]
        _ = try await scene.desk().perform(JobsChange(.move, plain, now: Self.now))
        #expect(try scene.run("EXISTS", "push:{bulk}:campaign:plain").number == 0)
    }

    /// Jobs with the time of their creation.
    private struct TimedJobs: TestJobs {
        let count = 2

        func jobs(after first: Int, atMost count: Int, bytes: Int) throws -> [ByteBuffer] {
            (first..<min(self.count, first + count)).map { number in
                let made = Int(Moment.now)
                return ByteBuffer(
                    string: OperatorScene.job("\(number)", #","campaign":"spring","enqueued_at_ms":\#(made)"#))
            }
        }
    }

    @Test(
        "A send continues when its jobs were moved, and makes a job when there is room for it",
        .scene(configured: ["default", "bulk"]))
    func sendAfterMove() async throws {
        try scene.push(OperatorScene.job("x"), to: "push:{bulk}:jobs")
        let change = try SendCampaign(ListedCampaign("spring", TimedJobs(), ahead: 1))
        let desk = try scene.desk()
        let sending = Task { try await desk.perform(change) }
        try await eventually("the first waits") { try scene.run("LLEN", "push:{default}:jobs").number == 1 }
        // The command asks again and again, because the queue is full.
        let calls = try scene.redis.scriptCalls()
        try await eventually("the command waits") { try scene.redis.scriptCalls() >= calls + 3 }
        let moved = Int(Moment.now)
        let fields: Fields = ["campaign": "spring", "to_queue": "bulk"]
        _ = try await scene.desk().perform(JobsChange(.move, fields, now: Self.now))
        #expect(try await sending.value.count == 2)
        let last = try #require(try scene.texts("LRANGE", "push:{default}:jobs", "0", "-1").last)
        let made = try #require(last.firstMatch(of: /"enqueued_at_ms":(\d+)/).flatMap { Int($0.1) })
        #expect(made >= moved)
    }

    @Test("A refused send does not limit the campaign, and one that begins does", .scene)
    func refusedSend() async throws {
        let limit = try CampaignChange(
            .limit(perSecond: nil), ["campaign": "spring", "per_second": "1"], now: 0)
        _ = try await scene.desk().perform(
            SendCampaign(ListedCampaign("spring", TimedJobs(), ahead: 100), limit: limit))
        let field = ["push:{default}:job-commands", "campaign:spring"]
        #expect(try scene.run("HGET", field[0], field[1]).text?.contains(#""per_second":1"#) == true)
        try scene.run("DEL", field[0])
        try scene.run("HSET", "push:{default}:campaign-list:spring", "list", "other")
        await expectRefusal("was sent to other tokens") {
            _ = try await scene.desk().perform(
                SendCampaign(ListedCampaign("spring", TimedJobs(), ahead: 100), limit: limit))
        }
        #expect(try scene.run("EXISTS", field[0]).number == 0)
    }

    @Test("The number of tokens that were removed before an error is reported and recorded", .scene)
    func partly() async throws {
        let tokens = (0..<3000).map {
            InvalidToken(
                token: ByteBuffer(string: String(format: "%064x", $0)), at: 5, reason: "X", topic: nil,
                source: .imported)
        }
        _ = try await scene.tokens.mark(tokens)
        let change = try RemoveInvalidTokens(["all": "1"], now: Self.now)
        let (desk, redis) = (try scene.desk(), scene.redis)
        let plan = try await desk.plan(change)
        var control = ChangeControl()
        control.progress = { _ in _ = try? redis.run("SET", "push:{shared}:invalid-tokens", "x") }
        let result = try await desk.apply(change, plan, control)
        #expect(result.count > 0 && result.error?.contains("WRONGTYPE") == true, "\(result)")
        #expect(try await scene.audit().first == "remove_invalid_tokens failed \(result.count)")
    }

    @Test("A limit is one of all queues together", .scene)
    func limit() async throws {
        for queue in ["a", "b", "c"] {
            for id in ["1", "2"] { try scene.push(OperatorScene.job(id), to: "push:{\(queue)}:jobs") }
        }
        let desk = try scene.desk("a", "b", "c")
        let change = try JobsChange(.cancel, ["all": "1", "limit": "3"], now: Self.now)
        #expect(try await desk.plan(change).parts.map(\.count) == [2, 1, 0])
        #expect(try await desk.perform(change).count == 3)
    }

    @Test(
        "A campaign that can't be closed in the other queue is named, and its jobs are moved",
        .scene(configured: ["default", "bulk"]))
    func unclosed() async throws {
        try scene.run("HSET", "push:{default}:campaign:spring", "total", "2")
        try scene.push(Self.job("a"), Self.job("b"), OperatorScene.job("c"))
        try scene.push(OperatorScene.job("x"), to: "push:{bulk}:jobs")
        let fields: Fields = ["campaign": "spring", "to_queue": "bulk"]
        let (desk, redis) = (try scene.desk(), scene.redis)
        let move = try JobsChange(.move, fields, now: Self.now)
        var control = ChangeControl()
        control.progress = { _ in _ = try? redis.run("SET", "push:{bulk}:campaign:spring", "x") }
        let result = try await desk.apply(move, desk.plan(move), control)
        #expect(result.count == 2 && result.error != nil, "\(result)")
        #expect(result.notes.contains { $0.hasPrefix("campaign spring stays open in queue bulk") }, "\(result)")
        #expect(try scene.run("LLEN", "push:{bulk}:jobs").number == 3)
        #expect(try scene.run("LLEN", "push:{default}:jobs").number == 1)
        #expect(try await scene.audit().first == "move_jobs failed 2")
    }

    private final class Counter: Sendable { let value = Mutex(0) }

    @Test(
        "A count ends at once when it is cancelled", .scene,
        arguments: ["jobs", "dead letters", "invalid tokens", "devices"])
    func cancelledCount(things: String) async throws {
        for page in 0..<40 {
            let places = (0..<1000).map { page * 1000 + $0 }
            switch things {
            case "jobs", "devices":
                let jobs = places.map { _ in OperatorScene.job("x") }
                try scene.connection.run((["RPUSH", "push:{default}:jobs"] + jobs).map { Array($0.utf8) })
            case "dead letters":
                let letters = places.flatMap { place in
                    let head =
                        #"{"v":1,"reason":"X","at":\#(Self.now),"claim":"w:\#(place)","attempts":2,"id":"x"}"#
                    return ["\(Self.now)", head + "\n" + OperatorScene.job("x")]
                }
                try scene.connection.run((["ZADD", "push:{default}:dead"] + letters).map { Array($0.utf8) })
            default:
                let tokens = places.map { String(repeating: "ab", count: 28) + String($0 + 0x1000_0000, radix: 16) }
                try scene.connection.run(
                    (["SADD", "push:{shared}:invalid-tokens"] + tokens).map { Array($0.utf8) })
            }
        }
        let desk = try scene.desk()
        let found = Counter()
        let change: any Change =
            switch things {
            case "jobs": try JobsChange(.cancel, ["fair": "none"], now: Self.now)
            case "dead letters": try DeadLettersChange(.delete, ["error": "none"], now: Self.now)
            case "invalid tokens": try RemoveInvalidTokens(["all": "1"], now: Self.now)
            default: try ForgetDevices(["tokens": OperatorScene.token]) { $0 }
            }
        let count = Task { try await desk.plan(change) { _ in found.value.withLock { $0 += 1 } } }
        try await eventually("it counts") { found.value.withLock { $0 } > 0 }
        count.cancel()
        await #expect(throws: CancellationError.self) { try await count.value }
        #expect(found.value.withLock { $0 } < 80)
    }
}
