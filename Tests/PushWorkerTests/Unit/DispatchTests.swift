import APNS
import NIOCore
import PushQueue
import TestSupport
import Testing

@testable import PushWorker

/// Submits claimed jobs to a transport that answers in every way that its protocol permits.
@Suite("Submitting to a transport")
struct DispatchTests {
    private let scene: EngineScene

    init() throws { scene = try EngineScene() }

    static let jobs = [
        EngineScene.job("aa"), EngineScene.fanOut(["aa", "bb", "cc", "dd", "ee"]),
        EngineScene.fanOut(["zz", "aa", "zz", "bb"]),
    ]

    @Test("A transport without a connection is asked for one, and the job waits for it", arguments: jobs)
    func dormant(job: String) throws {
        scene.transport.goDormant()
        scene.push(job)
        #expect(scene.transport.sent.isEmpty && scene.transport.calls == ["requestCapacity"])
        #expect(scene.queue.held.count == 1 && scene.lane.observer.problems.isEmpty == false)
        scene.run()
        #expect(!scene.transport.sent.isEmpty)
        scene.deliverAll()
        #expect(scene.queue.held.isEmpty && scene.stats["delivered"] == scene.transport.sent.count)
        #expect(scene.counters.deferred == 0)
    }

    @Test("A lane claims one job for a transport without a connection, and the others once there is one")
    func claimsOne() throws {
        scene.transport.goDormant()
        scene.push(EngineScene.job("aa"), EngineScene.job("bb"), EngineScene.job("cc"))
        #expect(scene.queue.held.count == 1)
        scene.run()
        #expect(scene.transport.tokens == ["aa", "bb", "cc"])
    }

    @Test("A notification that is refused despite the capacity is submitted later, and in its order", arguments: jobs)
    func refused(job: String) throws {
        scene.transport.refusals = 1
        scene.push(job, EngineScene.job("ff"))
        scene.run()
        #expect(scene.transport.tokens.last == "ff" && scene.transport.tokens.first == "aa")
        scene.deliverAll()
        #expect(scene.queue.held.isEmpty && scene.stats["delivered"] == scene.transport.sent.count)
    }

    @Test("A notification that the app's new configuration refuses is a dead letter, and holds up no other job")
    func refusedAfterReload() throws {
        scene.transport.refusals = .max
        // Only a strict app refuses a background notification that has an alert.
        let background = #""payload":{"aps":{"alert":"x","content-available":1}},"push_type":"background""#
        scene.push(EngineScene.job("aa", background), EngineScene.job("bb"))
        #expect(scene.queue.held.count == 2 && scene.transport.sent.isEmpty)
        var app = try EngineScene.app("shop")
        app.strictPayloads = true
        var configuration = scene.context.configuration
        configuration.apps = [app]
        _ = scene.lane.reload(configuration, [try AppSender.Prepared(app)])
        scene.transport.refusals = 0
        scene.run()
        #expect(scene.transport.tokens == ["bb"] && scene.queue.dead.count == 1)
        scene.finish()
        #expect(scene.isDone)
    }

    // MARK: Expiration

    /// Jobs that end after 30 seconds: calls, and one with an expiration.
    static let calls = [
        #""alert":"x","push_type":"voip""#, #""alert":"x","push_type":"pushtotalk""#,
        #""alert":"x","expiration":"30s""#,
    ]

    @Test("A call that waits too long for a stream never rings, however many devices it is for", arguments: calls)
    func lateCall(members: String) throws {
        scene.transport.streams = 1
        scene.push(EngineScene.fanOut(["aa", "bb", "cc", "dd"], members))
        for _ in 0..<3 {
            scene.run(.seconds(11))
            scene.answer(EngineScene.delivered)
        }
        scene.run(.seconds(2))
        #expect(scene.transport.tokens == ["aa", "bb", "cc"])
        #expect(scene.stats["delivered"] == 3 && scene.stats["expired"] == 1)
        #expect(scene.queue.held.isEmpty && scene.context.jobs.count == 0)
    }

    @Test("A call that the transport refuses for too long never rings", arguments: calls)
    func lateSingleCall(members: String) throws {
        scene.transport.refusals = .max
        scene.push(EngineScene.job("aa", members))
        scene.run(.seconds(31))
        #expect(scene.queue.held.isEmpty && scene.stats == ["expired": 1] && scene.context.jobs.count == 0)
    }

    @Test("A call that waits too long for the app's rate never rings", arguments: calls)
    func lateCallAtRate(members: String) throws {
        let scene = try EngineScene { $0.apps[0].maximumPerSecond = 1 }
        scene.fleet.rateWait = 1000
        scene.push(EngineScene.fanOut((0..<45).map { String(1000 + $0) }, members))
        for _ in 0..<500 {
            scene.run(.milliseconds(100))
            while !scene.transport.submitted.isEmpty { scene.answer(EngineScene.delivered) }
            scene.returnDue()
        }
        let sent = scene.transport.sent.count
        #expect(sent > 20 && sent <= 31 && scene.stats["expired"] == 45 - sent, "\(sent) \(scene.stats)")
        #expect(scene.queue.held.isEmpty && scene.context.jobs.count == 0)
    }

    @Test("A call that waits too long for a connection never rings", arguments: calls)
    func lateCallUnconnected(members: String) throws {
        scene.transport.goDormant()
        scene.transport.connectTime = .seconds(31)
        scene.push(EngineScene.job("aa", members))
        for _ in 0..<400 {
            scene.run(.milliseconds(100))
            scene.returnDue()
        }
        #expect(scene.transport.sent.isEmpty && scene.stats["expired"] == 1 && scene.queue.held.isEmpty)
    }

    @Test("A call that should be sent again, but too late, never rings")
    func lateResend() throws {
        scene.pushOne(token: "aa", #""alert":"x","push_type":"voip""#)
        // The answer frees a stream, so that none is free after it.
        scene.transport.streams = -1
        scene.answer(.notProcessed(.goingAway(reason: nil)))
        scene.run(.seconds(29))
        #expect(scene.lane.intake.inFlight == 1 && scene.stats.isEmpty)
        scene.run(.seconds(2))
        #expect(scene.transport.sent.count == 1 && scene.stats == ["expired": 1] && scene.queue.held.isEmpty)
    }

    @Test(
        "Each notification is delivered once, whatever the transport answers", arguments: 1...20 as ClosedRange<UInt64>)
    func anyTransport(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        let scene = try EngineScene { $0.retry.cap = 1000 }
        var (delivered, expected): ([String: Int], Set<String>) = ([:], [])
        func answer() {
            guard let index = scene.transport.submitted.indices.randomElement(using: &random) else { return }
            let token = String(buffer: scene.transport.submitted[index].notification.deviceToken.hex)
            switch Int.random(in: 0..<40, using: &random) {
            case 0: scene.transport.lose(scene.transport.submitted[index].isolation)
            case 1...5: scene.transport.answer(.notProcessed(.goingAway(reason: nil)), at: index)
            case 6...10: scene.transport.answer(.notProcessed(.noOtherConnection), at: index)
            default:
                delivered[token, default: 0] += 1
                scene.transport.answer(EngineScene.delivered, at: index)
            }
        }
        for number in 0..<400 {
            switch Int.random(in: 0..<10, using: &random) {
            case 0 where scene.transport.submitted.isEmpty: scene.transport.goDormant()
            case 1: scene.transport.refusals = Int.random(in: 1...5, using: &random)
            case 2: scene.transport.streams = Int.random(in: -2...40, using: &random)
            case 3: scene.transport.connectTime = .milliseconds(.random(in: 0...3000, using: &random))
            case 4, 5:
                let tokens = (0..<Int.random(in: 1...60, using: &random)).map { String(100_000 + number * 100 + $0) }
                expected.formUnion(tokens)
                scene.push(tokens.count == 1 ? EngineScene.job(tokens[0]) : EngineScene.fanOut(tokens + ["zz"]))
            default: for _ in 0..<Int.random(in: 1...30, using: &random) { answer() }
            }
            scene.run(.milliseconds(.random(in: 0...300, using: &random)))
            scene.returnDue()
        }
        scene.transport.refusals = 0
        scene.transport.streams = 1000
        for _ in 0..<600 where !scene.queue.held.isEmpty || !scene.queue.jobs.isEmpty || scene.queue.hasWaiting {
            scene.run(.milliseconds(300))
            scene.returnDue()
            while !scene.transport.submitted.isEmpty { answer() }
        }
        let twice = delivered.filter { $0.value > 1 }
        #expect(Set(delivered.keys) == expected && twice.isEmpty, "\(twice) \(scene.queue.stats) \(scene.counters)")
        #expect(scene.isDone)
        #expect(scene.sender.line.unsubmitted == 0)
    }
}
