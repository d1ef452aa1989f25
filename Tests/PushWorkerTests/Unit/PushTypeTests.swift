import APNS
import NIOCore
import Testing

@testable import PushQueue
@testable import PushWorker

@Suite("A push type whose topic APNs refuses")
struct PushTypeTests {
    private static let location = #""alert":"hi","id":"loc-1","push_type":"location""#

    @Test("ends as a dead letter that names topic and push type, once the app's own topic was accepted")
    func dead() throws {
        let scene = try EngineScene()
        scene.pushOne()
        scene.answer(EngineScene.delivered)
        scene.pushOne(Self.location)
        scene.answer(.topicDisallowed)
        scene.pushOne()
        #expect(scene.transport.submitted.count == 1, "the app is not paused")
        scene.finish()
        #expect(scene.stats["delivered"] == 2 && scene.stats["dead"] == 1)
        let letter = try #require(scene.queue.dead.first)
        #expect(letter.reason == "TopicDisallowed")
        let line = try #require(scene.log.lines.first { $0.metadata["event"] == "push_type_refused" })
        let topic = scene.sender.configuration.topic + ".location-query"
        #expect(line.metadata["topic"] == "\(topic)" && line.metadata["push_type"] == "location")
        #expect("\(line)".contains("loc-1"), "\(line)")
    }

    @Test("waits without an attempt while nothing shows whether the app or the job is at fault")
    func undecided() throws {
        let scene = try EngineScene()
        scene.pushOne(Self.location)
        scene.pushOne()
        scene.answer(.topicDisallowed)
        #expect(scene.transport.submitted.count == 1)
        scene.finish()
        #expect(scene.stats["delivered"] == 1 && scene.stats["retried"] == 1)
        scene.claimPostponed(after: .seconds(20))
        scene.finish(.topicDisallowed)
        #expect(scene.stats["dead"] == 1)
    }

    @Test("makes no dead letter while nothing shows that the app's own topic is accepted")
    func appAtFault() throws {
        let refused = try EngineScene()
        refused.pushOne(Self.location)
        refused.pushOne()
        refused.answer(.topicDisallowed)
        refused.finish(.topicDisallowed)
        for _ in 0..<3 {
            refused.claimPostponed(after: .minutes(40))
            while !refused.transport.submitted.isEmpty { refused.finish(.topicDisallowed) }
        }
        #expect(refused.stats["dead"] == nil && refused.stats["delivered"] == nil)
        #expect(refused.queue.postponed.allSatisfy { $0.body.contains(#""attempt":1"#) })
    }
}
