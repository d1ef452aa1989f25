import APNS
import NIOCore
import TestSupport
import Testing

@testable import PushJob
@testable import PushQueue
@testable import PushWorker

/// A wrapper has the last failure in `error`, and the reason of the current deferral in `wait`. Four rules read `error`, so a deferral must
/// not change it.
@Suite("A deferral leaves the last failure as it was")
struct DeferralTests {
    /// A limit that makes jobs wait for their turn.
    enum Limit: CaseIterable {
        case campaign, fair

        var members: String {
            switch self {
            case .campaign: #""campaign":"spring","alert":"hi""#
            case .fair: #""fair":"t","fair_per_second":5,"alert":"hi""#
            }
        }

        var reason: String {
            switch self {
            case .campaign: "CampaignLimited"
            case .fair: "FairLimited"
            }
        }

        func scene() throws -> EngineScene {
            let scene = try EngineScene()
            if self == .campaign {
                scene.queue.commands = JobCommands(version: "1", [.campaign("spring"): .init { $0.perSecond = 10 }])
            }
            return scene
        }
    }

    /// Returns the failure and the deferral of the job that was postponed last.
    private func last(_ scene: EngineScene) throws -> (failure: Envelope.Cause?, deferral: Envelope.Cause?) {
        let body = ByteBuffer(string: try #require(scene.queue.postponed.last?.body))
        let envelope = Envelope.read(body)
        return (envelope.failure(in: body), envelope.deferral(in: body))
    }

    @Test("Held tokens that wait for their turn are still repeated ones.", arguments: Limit.allCases)
    func heldTokens(limit: Limit) throws {
        let scene = try limit.scene()
        for token in 1000..<1008 {
            scene.pushOne(token: String(token), limit.members)
            scene.answer(EngineScene.delivered)
        }
        // Reports of bad tokens are believed for as many tokens as were good.
        for token in 2000..<2018 {
            scene.pushOne(token: String(token), limit.members)
            scene.answer(.badDeviceToken)
        }
        #expect(scene.queue.postponed.count == 10 && scene.fleet.invalid.count == 8)
        // The jobs return together. All except the first wait for a turn.
        scene.fleet.turns = (0..<10).map { $0 * 1000 }
        scene.claimPostponed(after: .seconds(30))
        #expect(scene.queue.postponed.count == 19)
        let (failure, deferral) = try last(scene)
        #expect(failure?.reason == "BadDeviceToken" && failure?.status == 400 && deferral?.reason == limit.reason)
    }

    @Test("A notification that cuts connections is still sent alone.", arguments: Limit.allCases)
    func isolation(limit: Limit) throws {
        let scene = try limit.scene()
        scene.pushOne(token: "bb", limit.members)
        scene.transport.lose()
        scene.run()
        #expect(try last(scene).failure?.reason == "ConnectionLost")
        scene.fleet.turns = [5000]
        scene.claimPostponed(after: .seconds(60))
        #expect(scene.transport.submitted.isEmpty)
        #expect(try last(scene).failure?.reason == "ConnectionLost")
        #expect(try last(scene).deferral?.reason == limit.reason)
        scene.claimPostponed(after: .seconds(6))
        #expect(scene.transport.submitted.last?.isolation == .alone)
        // The next failure ends the deferral.
        scene.transport.lose(.alone)
        scene.run()
        #expect(try last(scene).failure?.reason == "ConnectionLost" && last(scene).deferral == nil)
    }

    @Test("Pauses after server errors still grow.", arguments: Limit.allCases)
    func pauses(limit: Limit) throws {
        let scene = try limit.scene()
        scene.pushOne(token: "bb", limit.members)
        scene.finish(.serviceUnavailable)
        scene.fleet.turns = [5000]
        scene.claimPostponed(after: .seconds(60))
        #expect(try last(scene).deferral?.reason == limit.reason)
        scene.claimPostponed(after: .seconds(6))
        scene.finish(.serviceUnavailable)
        let delay = try #require(scene.queue.postponed.last.flatMap { Int($0.due.dropFirst()) })
        // One to two times the 66 s since the failure.
        #expect(delay > 60_000 && delay < 140_000, "\(delay)")
    }

    @Test("The configurations that refused the job are still known, and so is the failure.")
    func refusals() throws {
        let scene = try EngineScene()
        let other = ConfigurationDigest(routing: ["x"], rules: ["y"])
        scene.queue.otherConfigurations = [other]
        scene.queue.commands = JobCommands(version: "1", [.campaign("spring"): .init { $0.state = .paused }])
        let job = #"{"app":"unknown","campaign":"spring","token":"ab","alert":"x"}"#
        scene.push(
            #"{"apns_worker":1,"attempt":2,"error":{"status":500,"reason":"InternalServerError","at":7},"#
                + #""refused":"\#(other.text)","job":\#(job)}"#)
        let (failure, deferral) = try last(scene)
        #expect(failure == Envelope.Cause(reason: "InternalServerError", status: 500, at: 7))
        #expect(deferral?.reason == "CampaignPaused")
        let body = ByteBuffer(string: try #require(scene.queue.postponed.last?.body))
        #expect(Envelope.read(body).refusals(in: body) == other.text)
        // The other configuration has refused the job, so this worker's refusal ends it.
        scene.queue.commands = JobCommands(version: "2", [:])
        scene.claimPostponed(after: .seconds(300))
        #expect(scene.queue.dead.map(\.reason) == ["UnknownApp"] && scene.queue.held.isEmpty)
    }

    @Test("The rest of a job keeps its turn and its failure.")
    func rest() throws {
        let limit = Limit.campaign
        let scene = try limit.scene()
        scene.fleet.turns = [5000]
        let job = EngineScene.fanOut(["aa", "bb"], limit.members)
        scene.push(#"{"apns_worker":1,"attempt":2,"error":{"reason":"NoAnswer","at":7},"job":\#(job)}"#)
        scene.claimPostponed(after: .seconds(6))
        #expect(scene.transport.submitted.count == 2)
        scene.answer(EngineScene.delivered)
        scene.run(.seconds(2))
        let rest = ByteBuffer(string: try #require(scene.queue.held.values.first))
        let envelope = Envelope.read(rest)
        #expect(envelope.tokens(in: rest).count == 1 && envelope.failure(in: rest)?.reason == "NoAnswer")
        #expect(envelope.deferral(in: rest)?.reason == limit.reason)
    }
}
