import APNS
import NIOCore
import PushJob
import Testing

@testable import PushQueue
@testable import PushWorker

@Suite("In a fleet with several configurations")
struct MixedFleetTests {
    private static let token = String(repeating: "ab", count: 32)
    /// A configuration with another app.
    private static let other = ConfigurationDigest(routing: ["other"], rules: [])

    /// Jobs that a worker with the apps a and b refuses because of its configuration or version.
    private static let refused: [(reason: String, job: String)] = [
        ("UnknownApp", #"{"app":"c","token":"\#(token)","alert":"x"}"#),
        ("UnknownApp", #"{"topic":"com.example.c","token":"\#(token)","alert":"x"}"#),
        ("NoApp", #"{"token":"\#(token)","alert":"x"}"#),
        ("InvalidMember", #"{"app":"a","token":"\#(token)","alert":"x","priority":"later"}"#),
        ("MissingPayload", #"{"app":"a","token":"\#(token)"}"#),
        ("MalformedJSON", #"{"app":"a","token":"\#(token)""#),
        ("BadPayload", #"{"app":"a","token":"\#(token)","push_type":"background","payload":{"aps":{"alert":"x"}}}"#),
    ]

    /// A worker with the apps a and b, and another one with another app.
    private static func scene(isStrict: Bool = false) throws -> EngineScene {
        let scene = try EngineScene(apps: ["a", "b"]) { configuration in
            for index in configuration.apps.indices { configuration.apps[index].strictPayloads = isStrict }
        }
        scene.queue.otherConfigurations = [other]
        return scene
    }

    private static func wrapped(_ job: String, _ reason: String, refusedBy refusals: String = other.text) -> String {
        let wait = #"{"reason":"\#(reason)","at":1}"#
        return #"{"apns_worker":1,"attempt":1,"wait":\#(wait),"refused":"\#(refusals)","job":\#(job)}"#
    }

    @Test(
        "a job that this worker refuses goes back until a worker of each configuration has refused it",
        arguments: refused)
    func goesBack(reason: String, job: String) throws {
        let scene = try Self.scene(isStrict: true)
        scene.push(job)
        #expect(scene.queue.dead.isEmpty && scene.stats["deferred"] == 1, "\(scene.queue.dead)")
        let own = try #require(scene.lane.consumers.first).queue.configuration
        let wrapped = ByteBuffer(string: try #require(scene.queue.postponed.first?.body))
        let envelope = Envelope.read(wrapped)
        #expect(envelope.deferral(in: wrapped)?.reason == reason && envelope.refusals(in: wrapped) == own.text)
        #expect(envelope.error == nil)
        // A worker with the same configuration claims the job again.
        scene.claimPostponed(after: .seconds(31))
        #expect(scene.queue.dead.isEmpty && scene.queue.postponed.count == 2)
        // No worker with another configuration is alive any more.
        scene.queue.otherConfigurations = []
        scene.claimPostponed(after: .seconds(31))
        #expect(scene.queue.dead.map(\.reason) == [reason] && scene.queue.held.isEmpty)
        #expect(scene.transport.sent.isEmpty)
    }

    @Test("a worker that gives a job back is not the first to claim it again")
    func givesWay() throws {
        let scene = try Self.scene()
        scene.queue.canWait = true
        scene.push(Self.refused[0].job)
        #expect(scene.queue.postponed.count == 1)
        let claims = scene.queue.claims
        scene.run(.seconds(8))
        #expect(scene.queue.claims == claims)
    }

    @Test("a verdict is final if all living configurations have refused the job", arguments: refused)
    func final(reason: String, job: String) throws {
        let scene = try Self.scene(isStrict: true)
        scene.push(Self.wrapped(job, reason))
        #expect(scene.queue.dead.map(\.reason) == [reason] && scene.queue.postponed.isEmpty)
    }

    @Test("a job with a topic that the only app lacks is sent under it only if all workers have the same apps")
    func onlyApp() throws {
        let scene = try EngineScene(apps: ["a"])
        let job = #"{"topic":"com.example.b","token":"\#(Self.token)","alert":"x"}"#
        scene.push(job)
        #expect(scene.transport.sent.count == 1)
        let own = try #require(scene.lane.consumers.first).queue.configuration
        let otherRules = try #require(ConfigurationDigest(own.text.prefix(8) + "00000000"))
        scene.queue.otherConfigurations = [otherRules]
        scene.push(job)
        #expect(scene.transport.sent.count == 2)
        scene.queue.otherConfigurations = [Self.other]
        scene.push(job)
        scene.run()
        #expect(scene.transport.sent.count == 2 && scene.stats["deferred"] == 1)
    }

    @Test("a job that the worker accepts is sent, whatever the others have")
    func accepted() throws {
        let scene = try Self.scene()
        scene.push(Self.wrapped(#"{"app":"a","token":"\#(Self.token)","alert":"x"}"#, "UnknownApp"))
        scene.answer(EngineScene.delivered)
        scene.run(.seconds(1))
        #expect(scene.stats == ["delivered": 1])
    }

    @Test(
        "nonsense in the list of refusals is ignored",
        arguments: ["", "x", "zz zz", "0", String(repeating: "a ", count: 9999)])
    func hostile(text: String) throws {
        let scene = try Self.scene()
        scene.push(Self.wrapped(#"{"token":"\#(Self.token)","alert":"x"}"#, "NoApp", refusedBy: text))
        #expect(scene.queue.dead.isEmpty && scene.stats["deferred"] == 1)
    }

    @Test("the remaining tokens of a job that goes back stay the same")
    func tokens() throws {
        let scene = try Self.scene()
        let tokens = #""tokens":["\#(Self.token)"]"#
        for job in [#"{"tokens":["aa","bb"],"alert":"x"}"#, #"{"tokens":["aa","bb"],"#] {
            scene.push(#"{"apns_worker":1,"attempt":3,\#(tokens),"job":\#(job)}"#)
        }
        #expect(scene.queue.postponed.count == 2)
        for (job, _) in scene.queue.postponed {
            #expect(job.contains(tokens) && job.contains(#""attempt":3,"#), "\(job)")
        }
    }

    // MARK: Changes

    @Test("Another topic is tried at once.")
    func otherTopic() throws {
        let scene = try EngineScene()
        scene.queue.jobs = (0..<200).map { EngineScene.job(String(100_000 + $0)) }
        scene.pass(.seconds(20)) { .answer(.topicDisallowed) }
        #expect(!scene.context.scopes.scopes.isQuiet && scene.queue.dead.isEmpty)
        var configuration = scene.context.configuration
        configuration.apps[0].topic += ".next"
        _ = scene.lane.reload(configuration, [try AppSender.Prepared(configuration.apps[0])])
        scene.run(.milliseconds(100))
        #expect(scene.context.scopes.scopes.isQuiet)
        let sent = scene.transport.sent.count
        scene.wake()
        scene.run(.seconds(1))
        #expect(scene.transport.sent.count - sent > 50 || scene.queue.jobs.isEmpty)
    }

    @Test("digests differ with each setting by which a job is refused, and not with the order of apps")
    func digests() throws {
        func digest(_ change: (inout WorkerConfiguration) -> Void) throws -> ConfigurationDigest {
            let scene = try EngineScene(apps: ["a", "b"], change: change)
            return try #require(scene.lane.consumers.first).queue.configuration
        }
        let base = try digest { _ in }
        #expect(try digest { $0.apps.reverse() } == base)
        #expect(try digest { $0.retry.base = 5 } == base)
        #expect(try digest { $0.apps[1].endpoint = .sandbox } == base)
        let routing: [(inout WorkerConfiguration) -> Void] = [
            { $0.apps.removeLast() }, { $0.apps[0].topic = "c" }, { $0.apps[0].otherTopics = ["c"] },
            { $0.apps[0].name = "c" },
        ]
        for change in routing { #expect(try digest(change).routing != base.routing) }
        let rules: [(inout WorkerConfiguration) -> Void] = [
            { $0.apps[1].strictPayloads = true },
            { $0.queues[0].format = .sidekiq(classes: []) }, { $0.queues[0].limits.maximumJobSize = 5 },
        ]
        for change in rules {
            let changed = try digest(change)
            #expect(changed.routing == base.routing && changed.rules != base.rules)
        }
        #expect(ConfigurationDigest(base.text) == base && base.text.utf8.count == 16)
        for other in ["", "0", "+123456789abcdef", "０123456789abcde", "0123456789abcdeg", "0123456789abcdef0"] {
            #expect(ConfigurationDigest(other) == nil, "\(other)")
        }
    }
}
