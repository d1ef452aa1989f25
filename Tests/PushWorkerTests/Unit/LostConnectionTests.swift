import APNS
import NIOCore
import TestSupport
import Testing

@testable import PushQueue
@testable import PushWorker

/// One of these notifications may be the cause of the loss.
@Suite("Notifications in flight when a connection was lost")
struct LostConnectionTests {
    private let scene: EngineScene

    init() throws { scene = try EngineScene() }

    /// Sends 18 notifications. One of them cuts each connection that it is sent on.
    private func scene(poison: String, _ change: (inout WorkerConfiguration) -> Void = { _ in }) throws -> EngineScene {
        let scene = try EngineScene(change: change)
        scene.push(EngineScene.fanOut((10..<26).map(String.init)), EngineScene.job("aa"), EngineScene.job(poison))
        #expect(scene.transport.submitted.count == 18)
        return scene
    }

    private func answerAll(_ scene: EngineScene, poison: String) {
        while let next = scene.transport.submitted.first {
            if let cut = scene.transport.submitted.first(where: {
                String(buffer: $0.notification.deviceToken.hex) == poison
            }) {
                scene.transport.lose(cut.isolation)
            } else if next.isolation == .alone {
                scene.transport.answer(EngineScene.delivered)
            } else {
                scene.answer(EngineScene.delivered)
            }
            scene.run(.milliseconds(100))
        }
    }

    @Test("are sent again at once apart from others, and only the one that cuts connections spends attempts")
    func onlyTheCauseSpendsAttempts() throws {
        let scene = try scene(poison: "bb") { $0.retry.maximumAttempts = 3 }
        answerAll(scene, poison: "bb")
        scene.run()
        #expect(scene.stats["delivered"] == 17 && scene.stats["retried"] == 1 && scene.stats["dead"] == nil)
        // All 18 are sent once, then in groups of 4. One group is lost, and its 4 are sent alone.
        #expect(scene.transport.sent.count == 18 + 18 + 4)
        #expect(scene.counters.possibleDuplicates == 18 + 4 + 1)
        // A notification that was lost alone is always sent alone from then on. It spends attempts while others are delivered.
        for number in 0..<6 where scene.queue.dead.isEmpty {
            scene.claimPostponed(after: .seconds(60))
            let last = try #require(scene.transport.submitted.last)
            #expect(last.isolation == .alone && String(buffer: last.notification.deviceToken.hex) == "bb")
            scene.push(EngineScene.job("c\(number)"))
            scene.transport.answer(EngineScene.delivered, at: scene.transport.submitted.count - 1)
            scene.transport.lose(.alone)
            scene.run()
        }
        #expect(scene.stats["dead"] == 1)
        #expect(scene.queue.dead.map(\.reason) == ["AttemptsExhausted"])
        #expect(scene.isDone)
        let lines = scene.log.lines.filter { $0.metadata["event"] == "notification_cuts_connection" }
        // The log has at most one line per minute.
        #expect(lines.count >= 3)
    }

    @Test("are sent again at once with all others if the connection was stale, without an attempt")
    func stale() throws {
        scene.pushOne()
        scene.answer(.uncertain(.stale("no PING")))
        let again = try #require(scene.transport.submitted.first)
        #expect(again.isolation == .shared && scene.counters.possibleDuplicates == 1)
        scene.finish()
        #expect(scene.stats["delivered"] == 1 && scene.stats["retried"] == nil && scene.queue.held.isEmpty)
    }

    @Test("may be lost again and again, and no other job waits for them")
    func othersContinue() throws {
        let scene = try scene(poison: "bb")
        scene.transport.lose()
        scene.push(EngineScene.job("cc"), EngineScene.job("dd"))
        #expect(
            Set(
                scene.transport.submitted.filter { $0.isolation == .shared }.map {
                    String(buffer: $0.notification.deviceToken.hex)
                }) == ["cc", "dd"])
        scene.run()
        #expect(scene.transport.submitted.filter { $0.isolation == .withFew }.count == 4)
        #expect(scene.stats.isEmpty)
    }

    @Test("are given back if no other connection can be made, without an attempt, and stay apart")
    func noOtherConnection() throws {
        scene.transport.isolatedLimits = [:]
        scene.push(EngineScene.job("aa"), EngineScene.job("bb"))
        scene.transport.lose()
        scene.run(.seconds(1))
        #expect(scene.lane.intake.inFlight == 2 && scene.stats.isEmpty)
        scene.run(.seconds(2))
        #expect(scene.lane.intake.inFlight == 0 && scene.stats["retried"] == 2)
        #expect(
            scene.queue.postponed.allSatisfy { $0.body.contains(#""attempt":1"#) && $0.body.contains("LostWithOthers") }
        )
        scene.transport.isolatedLimits = [.withFew: 4]
        scene.claimPostponed(after: .seconds(10))
        #expect(scene.transport.submitted.map(\.isolation) == [.withFew, .withFew])
        scene.deliverAll()
        #expect(scene.stats["delivered"] == 2 && scene.queue.held.isEmpty)
    }

    @Test("that must not be sent twice are dropped")
    func dropped() throws {
        scene.push(EngineScene.job("aa", #""alert":"x","on_uncertain":"drop""#), EngineScene.job("bb"))
        scene.transport.lose()
        scene.run()
        #expect(scene.transport.tokens == ["aa", "bb", "bb"] && scene.stats["dropped"] == 1)
    }

    @Test(
        "go back with their identity and their count, processed or not, if the lane ends before they are sent again",
        arguments: [true, false])
    func drainedWhileWaiting(mayBeProcessed: Bool) throws {
        if mayBeProcessed {
            scene.transport.isolatedLimits = [:]
            scene.push(EngineScene.job("aa"), EngineScene.job("bb"))
            scene.transport.lose()
            scene.run()
        } else {
            scene.push(EngineScene.job("aa"))
            scene.transport.streams = -1
            scene.answer(.notProcessed(.refusedStream))
        }
        let ids = scene.transport.sent.map(\.apnsID)
        _ = scene.lane.drain(within: .seconds(5))
        scene.run(.seconds(6))
        #expect(scene.stats == (mayBeProcessed ? ["retried": 2, "possible_duplicates": 2] : ["deferred": 1]))
        #expect(scene.queue.held.isEmpty)
        let next = try EngineScene()
        for (body, _) in scene.queue.postponed { next.push(body) }
        next.run(.milliseconds(200))
        #expect(next.transport.sent.map(\.apnsID) == ids && ids.count == (mayBeProcessed ? 2 : 1))
    }

    @Test("are given back without an attempt by a lane that ends")
    func draining() throws {
        scene.push(EngineScene.job("aa"), EngineScene.job("bb"), EngineScene.job("cc"))
        _ = scene.lane.drain(within: .seconds(5))
        scene.run()
        scene.transport.lose()
        scene.run()
        #expect(scene.queue.postponed.count + scene.queue.jobs.count == 3 && scene.stats["dead"] == nil)
        #expect(scene.spentNoAttempt)
    }

    @Test("wait with the others while their app is paused")
    func paused() throws {
        let scene = try scene(poison: "bb")
        scene.transport.isolatedLimits = [:]
        scene.transport.lose()
        scene.fleet.pauses["shop"] = PauseRecord(reason: "a new key")
        scene.run(.seconds(3))
        #expect(scene.lane.intake.inFlight == 0 && scene.stats["retried"] == 18)
        #expect(scene.spentNoAttempt)
    }

    @Test("are cancelled by operators")
    func cancelled() throws {
        scene.transport.isolatedLimits = [:]
        scene.push(EngineScene.job("aa", #""alert":"x","campaign":"c""#), EngineScene.job("bb"))
        scene.transport.lose()
        let command = JobCommands.Command {
            ($0.since, $0.state) = (EngineScene.time(.uptimeNanoseconds(0)), .cancelled)
        }
        scene.queue.commands = JobCommands(version: "1", [.campaign("c"): command])
        scene.run(.milliseconds(700))
        #expect(scene.stats["cancelled"] == 1 && scene.lane.intake.inFlight == 1)
    }
}
