import APNS
import NIOCore
import PushJob
import Testing

@testable import PushQueue
@testable import PushWorker

/// The engine's real parts under operators' commands about campaigns and ids, without a server.
@Suite("Commands about jobs")
struct JobCommandTests {
    private let scene: EngineScene

    init() throws { scene = try EngineScene() }

    private let campaign = JobCommands.Target.campaign("spring")

    private func job(_ number: Int, _ campaign: String = "spring") -> String {
        #"{"id":"j\#(number)","token":"\#(100_000 + number)","alert":"hi","campaign":"\#(campaign)"}"#
    }

    private func command(_ change: (inout JobCommands.Command) -> Void) -> JobCommands.Command {
        .init {
            $0.since = EngineScene.time(.uptimeNanoseconds(0))
            change(&$0)
        }
    }

    private var cancelled: JobCommands.Command { command { $0.state = .cancelled } }

    @Test("of a cancelled campaign turn jobs that are claimed with the command into dead letters")
    func atDecode() throws {
        scene.queue.commands = JobCommands(version: "1", [campaign: cancelled])
        scene.push(job(1), job(2, "autumn"), EngineScene.job())
        #expect(scene.transport.tokens == ["100002", "ab"])
        for _ in 0..<2 { scene.answer(EngineScene.delivered) }
        scene.run()
        #expect(scene.stats == ["delivered": 2, "cancelled": 1])
        #expect(scene.queue.dead.map(\.reason) == ["Cancelled"])
        #expect(scene.queue.campaigns == ["spring": ["cancelled": 1], "autumn": ["delivered": 1]])
        #expect(scene.counters[.cancelled] == 1)
        #expect(scene.log.events.filter { $0 == "cancelled" }.count == 1)
    }

    @Test("of a guard are logged and recorded once, by the lane whose settlement has paused the campaign")
    func stopped() throws {
        let stopped = StoppedCampaign(campaign: "spring", reason: "dead is 2.0% of 1000, above 1%")
        scene.push(job(1), job(2))
        scene.queue.stops = [stopped]
        for _ in 0..<2 { scene.answer(EngineScene.delivered) }
        scene.run()
        #expect(scene.fleet.recordedCampaigns == [stopped])
        // The campaign is already paused in this queue.
        #expect(scene.queue.stoppedCampaigns.isEmpty)
        #expect(scene.log.events.filter { $0 == "campaign_stopped" }.count == 1)
    }

    @Test("cancel claimed jobs that are not submitted, within half a second and without claiming jobs")
    func inLine() throws {
        scene.transport.streams = 4
        scene.queue.jobs += [job(1), job(2), job(3), job(4, "autumn")]
        scene.wake()
        scene.run(.nanoseconds(1))
        // Fewer streams are free than when the jobs were claimed.
        scene.transport.streams = 2
        scene.run(.milliseconds(20))
        #expect(scene.transport.tokens == ["100001", "100002"] && scene.sender.line.unsubmitted == 2)
        let claims = scene.queue.claims
        scene.queue.commands = JobCommands(version: "1", [campaign: cancelled])
        scene.run(.milliseconds(700))
        #expect(scene.queue.claims > claims && scene.queue.jobs.isEmpty)
        #expect(scene.stats["cancelled"] == 1 && scene.sender.line.unsubmitted == 1)
        #expect(scene.lane.consumers[0].queue.cancelledInFlight == 2)
        // Notifications in flight end as APNs answers.
        for _ in 0..<3 { scene.answer(EngineScene.delivered) }
        scene.run()
        #expect(scene.transport.tokens == ["100001", "100002", "100004"])
        #expect(scene.stats == ["delivered": 3, "cancelled": 1])
        #expect(scene.queue.held.isEmpty && scene.sender.line.unsubmitted == 0)
    }

    @Test("cancel the rest of a job with many tokens, which becomes one dead letter with those tokens")
    func fanOut() throws {
        scene.transport.streams = 3
        let tokens = (0..<10).map { "AB\(100_000 + $0)" }
        scene.push(EngineScene.fanOut(tokens, #""alert":"hi","campaign":"spring""#))
        scene.transport.streams = 0
        #expect(scene.transport.sent.count == 3)
        scene.queue.commands = JobCommands(version: "1", [campaign: cancelled])
        scene.run(.milliseconds(700))
        scene.transport.streams = 0
        for _ in 0..<3 { scene.answer(EngineScene.delivered) }
        scene.run()
        #expect(scene.transport.sent.count == 3)
        #expect(scene.stats["delivered"] == 3 && scene.stats["cancelled"] == 7)
        #expect(scene.queue.dead.count == 1 && scene.queue.dead[0].members.contains(#""ab100009""#))
        #expect(!scene.queue.dead[0].members.contains(#""ab100001""#))
        // The results have the tokens in lower case, like all results.
        let results = scene.queue.resultTexts.joined()
        #expect(results.contains("ab100009") && !results.contains("AB100009"), "\(results)")
        #expect(
            scene.queue.campaigns["spring"]?["cancelled"] == 7 && scene.queue.campaigns["spring"]?["delivered"] == 3)
        #expect(scene.queue.held.isEmpty)
    }

    @Test("record the time to each delivery of a campaign, and no times of other jobs")
    func times() throws {
        scene.push(job(1), job(2, "autumn"), #"{"token":"ab","alert":"hi"}"#)
        scene.push(EngineScene.fanOut((0..<5).map { "\(200_000 + $0)" }, #""alert":"hi","campaign":"spring""#))
        for _ in 0..<7 { scene.answer(EngineScene.delivered) }
        scene.answer(.unregistered)
        scene.run(.seconds(2))
        #expect(scene.stats["delivered"] == 7 && scene.stats["invalid_token"] == 1)
        #expect(scene.queue.times == ["spring": 5, "autumn": 1])
    }

    @Test("cancel a job by its ID, and discard it only if the operator requests that")
    func byID() throws {
        let discarded = command { ($0.state, $0.discards) = (.cancelled, true) }
        scene.queue.commands = JobCommands(version: "1", [.id("j1"): cancelled, .id("j2"): discarded])
        scene.push(job(1, "a"), job(2, "a"), job(3, "a"))
        scene.run()
        #expect(scene.transport.tokens == ["100003"])
        #expect(scene.stats == ["cancelled": 2] && scene.queue.dead.count == 1)
    }

    @Test("keep a job that was requeued after the cancellation, but not one requeued before it")
    func requeued() throws {
        let since = cancelled.since
        scene.queue.commands = JobCommands(version: "1", [campaign: cancelled])
        func requeued(_ at: Int64, _ number: Int) -> String {
            #"{"apns_worker":1,"attempt":1,"requeues":1,"requeued":\#(at),"job":\#(job(number))}"#
        }
        scene.push(requeued(since + 1, 1), requeued(since - 1, 2))
        #expect(scene.transport.tokens == ["100001"])
        scene.finish(.uncertain(.timedOut))
        // The job is still exempt from the cancellation when it is retried.
        #expect(
            scene.queue.postponed.count == 1 && scene.queue.postponed[0].body.contains(#""requeued":\#(since + 1)"#))
        #expect(scene.stats["cancelled"] == 1)
    }

    @Test("end a notification that was about to be resent")
    func resend() throws {
        scene.pushOne(token: "cd", #""alert":"hi","campaign":"spring""#)
        scene.queue.commands = JobCommands(version: "1", [campaign: cancelled])
        scene.run(.milliseconds(700))
        #expect(scene.lane.consumers[0].queue.cancelledInFlight == 1)
        scene.answer(.notProcessed(.goingAway(reason: nil)))
        scene.run()
        #expect(scene.transport.sent.count == 1 && scene.stats == ["cancelled": 1])
        #expect(scene.lane.intake.inFlight == 0 && scene.queue.held.isEmpty)
    }

    @Test("defer the jobs of a paused campaign, claimed or not, and spend no attempt")
    func paused() throws {
        scene.transport.streams = 1
        scene.push(job(1), job(2))
        scene.transport.streams = 0
        scene.queue.commands = JobCommands(version: "1", [campaign: command { $0.state = .paused }])
        scene.run(.milliseconds(700))
        scene.transport.streams = 1
        scene.push(job(3))
        scene.finish()
        #expect(scene.transport.tokens == ["100001"])
        #expect(scene.stats["deferred"] == 2 && scene.stats["delivered"] == 1)
        for postponed in scene.queue.postponed {
            #expect(postponed.body.contains(#""attempt":1,"#) && postponed.body.contains(#""reason":"CampaignPaused""#))
        }
    }

    @Test("schedule each job of a limited campaign, and send it at its time")
    func limited() throws {
        let limit = command { ($0.perSecond, $0.limitedAt) = (100, $0.since) }
        scene.queue.commands = JobCommands(version: "1", [campaign: limit])
        scene.fleet.turns = [0, 10, 20]
        scene.push(job(1), job(2), job(3), job(4, "autumn"))
        scene.run()
        #expect(scene.transport.tokens == ["100004", "100001"])
        #expect(scene.queue.postponed.map(\.due) == ["+10", "+20"])
        #expect(scene.stats == ["deferred": 2])
        // Returned jobs have had their turn, unless the limit has changed.
        let returned = scene.queue.postponed.map(\.body)
        scene.push(returned[0])
        scene.run()
        #expect(scene.transport.tokens == ["100004", "100001", "100002"])
        let later = EngineScene.time(scene.loop.now) + 1
        scene.queue.commands = JobCommands(
            version: "2", [campaign: command { ($0.perSecond, $0.limitedAt) = (1, later) }])
        scene.fleet.turns = [5000]
        scene.push(returned[1])
        scene.run()
        #expect(scene.transport.sent.count == 3 && scene.queue.postponed.last?.due == "+5000")
    }

    @Test("split a large job of a limited campaign into pieces of a second's worth")
    func limitedFanOut() throws {
        scene.queue.commands = JobCommands(version: "1", [campaign: command { $0.perSecond = 20 }])
        scene.push(EngineScene.fanOut((0..<100).map { "\(100_000 + $0)" }, #""alert":"hi","campaign":"spring""#))
        scene.run()
        #expect(scene.queue.splits == 1 && scene.transport.sent.isEmpty)
    }

    @Test("cost a lane without jobs no further command to Redis")
    func idle() throws {
        scene.run(.seconds(1))
        let claims = scene.queue.claims
        scene.run(.seconds(10))
        // The lane polls once per second without a blocking wait.
        #expect(scene.queue.claims - claims <= 10)
    }

    @Test("a pause with --now also returns jobs whose tokens were being looked up")
    func pauseDuringLookUp() throws {
        scene.fleet.invalid = [EngineScene.invalid("ffff", topic: "other")]
        scene.push(EngineScene.job("aa"))
        scene.answer(EngineScene.delivered)
        scene.run(.seconds(2))
        scene.fleet.lookUpTime = .seconds(3)
        scene.push(EngineScene.job("bb"))
        #expect(scene.transport.tokens == ["aa"])
        (scene.queue.isPaused, scene.queue.handsBack) = (true, true)
        scene.run(.seconds(4))
        #expect(scene.transport.tokens == ["aa"])
        #expect(scene.queue.postponed.map(\.body).contains { $0.contains("\"bb\"") }, "\(scene.queue.postponed)")
    }
}
