import APNS
import NIOCore
import PushJob
import PushQueue
import Testing

@testable import PushWorker

/// Jobs with `replaces`, through a lane.
@Suite("Only the newest job of a key is sent")
struct NewestJobTests {
    private let scene: EngineScene

    init() throws { scene = try EngineScene { $0.queues[0].limits.results = .all } }

    private static func job(_ id: String, token: String = "ab", _ members: String = "") -> String {
        EngineScene.job(token, #""alert":"x","id":"\#(id)","replaces":"k"\#(members)"#)
    }

    private var dropped: Int { scene.stats["dropped"] ?? 0 }

    @Test("older jobs of a claim are dropped with the newer one's name, and all are asked for in one call")
    func claim() throws {
        scene.queue.newest = ["k": "c"]
        scene.push(
            Self.job("a"), Self.job("b", token: "cd"), Self.job("c", token: "ef"), EngineScene.job("aa"),
            EngineScene.job("bb", #""alert":"x","id":"x","replaces":"unknown""#))
        #expect(scene.transport.tokens == ["aa", "ef", "bb"] && scene.queue.newestQuestions == [4])
        scene.deliverAll()
        #expect(scene.stats == ["delivered": 3, "dropped": 2] && scene.queue.stats["dropped:Replaced"] == 2)
        let texts = scene.queue.resultTexts.joined()
        #expect(texts.contains(#""reason":"Replaced""#) && texts.matches(of: /"replaced_by":"c"/).count == 2)
    }

    /// Claims a job that finds no free stream after Redis has answered.
    private func claimWithoutStream() {
        scene.queue.newest = ["k": "a"]
        scene.add([Self.job("a")])
        scene.run(.milliseconds(1))
        scene.transport.streams = 0
        scene.run(.milliseconds(50))
        #expect(scene.transport.sent.isEmpty && scene.queue.newestQuestions == [1])
    }

    private func freeStream() {
        scene.transport.streams = 1
        scene.transport.delegate?.transportChanged(scene.transport)
        scene.run(.milliseconds(50))
    }

    @Test("a job that waits for a stream is asked for again, and others of the app go", arguments: [false, true])
    func waits(isReplaced: Bool) {
        claimWithoutStream()
        if isReplaced { scene.queue.newest = ["k": "b"] }
        freeStream()
        #expect(scene.queue.newestQuestions == [1, 1] && scene.transport.tokens == (isReplaced ? [] : ["ab"]))
        scene.push(EngineScene.job("aa"))
        scene.deliverAll()
        #expect(scene.transport.tokens.last == "aa" && dropped == (isReplaced ? 1 : 0) && scene.queue.held.isEmpty)
    }

    @Test("the stream of a job that is asked for is kept for it")
    func keepsStream() {
        claimWithoutStream()
        scene.add([EngineScene.job("bb")])
        freeStream()
        #expect(scene.transport.tokens == ["ab"])
        scene.deliverAll()
        #expect(scene.stats == ["delivered": 2])
    }

    @Test("of a job with many tokens, those that were not sent are dropped when a newer one comes")
    func manyTokens() throws {
        scene.transport.streams = 2
        let tokens = ["aa", "bb", "cc", "dd", "ee"]
        scene.push(EngineScene.fanOut(tokens, #""alert":"x","replaces":"k""#))
        #expect(scene.transport.sent.count == 2)
        scene.run(.milliseconds(50))
        scene.queue.newest = ["k": "other"]
        scene.deliverAll()
        #expect(scene.stats == ["mixed": 1, "delivered": 2, "dropped": 3])
        #expect(scene.queue.stats["dropped:Replaced"] == 3)
    }

    @Test("a retry is asked for again, and ends as replaced although the newer job was delivered long ago")
    func retries() throws {
        scene.push(Self.job("a"))
        scene.answer(.internalServerError)
        let retry = try #require(scene.queue.postponed.first)
        scene.queue.newest = ["k": "b"]
        scene.push(retry.body)
        scene.deliverAll()
        #expect(scene.transport.sent.count == 1 && dropped == 1 && scene.queue.stats["dropped:Replaced"] == 1)
    }

    @Test("what APNs may have accepted ends with the failure that left that open, and is not sent again")
    func uncertain() throws {
        scene.push(Self.job("a"))
        scene.answer(.uncertain(.timedOut))
        let retry = try #require(scene.queue.postponed.first)
        scene.queue.newest = ["k": "b"]
        scene.push(retry.body)
        scene.deliverAll()
        #expect(scene.transport.sent.count == 1 && scene.queue.stats["dropped:NoAnswer"] == 1)
        #expect(scene.queue.stats["dropped:Replaced"] == nil)
    }

    @Test("a resend at once is asked for, too", arguments: [false, true])
    func resends(isUncertain: Bool) throws {
        scene.push(Self.job("a"), Self.job("a", token: "cd"))
        #expect(scene.transport.sent.count == 2)
        scene.run(.milliseconds(50))
        scene.queue.newest = ["k": "b"]
        if isUncertain {
            scene.transport.lose()
        } else {
            scene.transport.answer(.notProcessed(.goingAway(reason: nil)))
            scene.transport.answer(.notProcessed(.goingAway(reason: nil)))
        }
        scene.deliverAll()
        #expect(scene.transport.sent.count == 2 && dropped == 2)
        #expect((scene.queue.stats["dropped:Replaced"] ?? 0) == (isUncertain ? 0 : 2))
    }

    @Test("a scheduled job becomes the newest when it is due, and only once")
    func scheduled() throws {
        scene.queue.newest = ["k": "before"]
        let due = EngineScene.time(scene.loop.now) / 1000 + 2
        scene.push(Self.job("later", #","send_at":\#(due)"#))
        let waiting = try #require(scene.queue.postponed.first)
        #expect(scene.queue.newestQuestions.isEmpty && scene.queue.newest == ["k": "before"])
        scene.run(.seconds(3))
        scene.push(waiting.body)
        #expect(scene.transport.sent.count == 1 && scene.queue.newest == ["k": "later"])
        scene.answer(.internalServerError)
        scene.queue.newest = ["k": "after"]
        scene.push(try #require(scene.queue.postponed.last).body)
        scene.deliverAll()
        #expect(scene.transport.sent.count == 1 && dropped == 1)
    }

    @Test("the jobs of a campaign are the newest while the key has its name")
    func campaign() {
        scene.queue.newest = ["k": "spring"]
        scene.push(Self.job("a", #","campaign":"spring""#), Self.job("b", token: "cd", #","campaign":"winter""#))
        #expect(scene.transport.tokens == ["ab"])
        scene.deliverAll()
        #expect(scene.stats == ["delivered": 1, "dropped": 1])
    }

    @Test("jobs wait while Redis does not answer, end by a command, and return with a drain", arguments: 0..<3)
    func waitsForRedis(end: Int) throws {
        claimWithoutStream()
        scene.queue.refusal = .redis(.server(.init(text: "LOADING")))
        freeStream()
        scene.run(.seconds(1))
        #expect(scene.transport.sent.isEmpty && scene.lane.consumers[0].problem != nil)
        scene.queue.refusal = nil
        switch end {
        case 0:
            scene.run(.seconds(1))
            scene.deliverAll()
            #expect(scene.stats == ["delivered": 1])
        case 1:
            scene.queue.commands = JobCommands(version: "1", [.id("a"): .init { $0.state = .cancelled }])
            scene.transport.streams = 0
            scene.wake()
            scene.run(.seconds(3))
            #expect(scene.stats == ["cancelled": 1])
        default:
            _ = scene.lane.drain(within: .seconds(5))
            scene.run(.seconds(1))
            #expect(scene.queue.released && scene.queue.jobs.count == 1)
        }
    }
}
