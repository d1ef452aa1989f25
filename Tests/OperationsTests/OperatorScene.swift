import Foundation
import Logging
import NIOCore
import NIOPosix
import Operations
import PushQueue
import Redis
import TestSupport
import Testing

/// A Redis with the fleet and the invalid tokens that an operator uses.
struct OperatorScene {
    let redis: RedisServer
    let fleet: Fleet
    let tokens: InvalidTokenClient
    let connection: RedisTestConnection

    /// - Parameters:
    ///   - sidekiq: the queues that the settings name with Sidekiq's format.
    ///   - configured: the queues that the settings name.
    static func with(
        sidekiq: Set<String> = [], configured: [String] = ["default"], _ body: (OperatorScene) async throws -> Void
    ) async throws {
        let redis = try RedisServer()
        let topology = try RedisTopology(url: redis.url)
        let logger = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let fleet = Fleet(
            clients: RedisClients(topology: topology, eventLoop: loop, logger: logger), prefix: "push",
            named: try configured.map { try QueueKeys(queue: $0) }, isNamed: true, searches: true,
            configured: { name in
                let isSidekiq = sidekiq.contains(name)
                let keys = try QueueKeys(
                    queue: name, list: isSidekiq ? "queue:\(name)" : nil, head: isSidekiq ? .right : .left)
                return (QueueSource(keys: keys, format: isSidekiq ? .sidekiq(classes: []) : .native), isSidekiq)
            }, waitUntilReady: { try await $0.waitUntilReady(timeout: .minutes(3)) })
        try await withInvalidTokens(topology, fleet.sharedKeys) { tokens in
            do {
                try await body(
                    OperatorScene(redis: redis, fleet: fleet, tokens: tokens, connection: try redis.connect()))
            } catch {
                await fleet.close()
                throw error
            }
            await fleet.close()
        }
    }

    /// Reads a campaign in some queues, which must all be readable.
    func campaign(_ name: String, in desk: Desk) async throws -> [CampaignStatus] {
        var unread = UnreadParts()
        let found = try await CampaignStatus.read(name, in: desk.queues, fleet, &unread)
        try unread.throwFirst()
        return found
    }

    func desk(_ queues: String..., by person: String = "ada") throws -> Desk {
        let names = queues.isEmpty ? ["default"] : queues
        return Desk(
            fleet, invalidTokens: tokens, person: person, via: .cli, queues: try names.map { try QueueKeys(queue: $0) }
        ) { Issue.record("not recorded: \($0)") }
    }

    @discardableResult
    func run(_ command: String...) throws -> RedisValue { try connection.run(command.map { Array($0.utf8) }) }

    func texts(_ command: String...) throws -> [String] {
        try connection.run(command.map { Array($0.utf8) }).elements?.compactMap(\.text) ?? []
    }

    func push(_ jobs: String..., to list: String = "push:{default}:jobs", _ command: String = "RPUSH") throws {
        for job in jobs { try run(command, list, job) }
    }

    func bury(_ id: String, _ reason: String = "X", at: Int64? = nil, job: String? = nil, queue: String = "default")
        throws
    {
        let at = at ?? Moment.now
        let head = #"{"v":1,"reason":"\#(reason)","at":\#(at),"claim":"w:\#(id)","attempts":2,"id":"\#(id)"}"#
        try run("ZADD", "push:{\(queue)}:dead", "\(at)", head + "\n" + (job ?? Self.job(id)))
    }

    static let token = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"

    static func job(_ id: String, _ more: String = "") -> String {
        #"{"id":"\#(id)","token":"\#(token)","alert":"x"\#(more)}"#
    }

    /// Writes the source of a Sidekiq queue, as its workers do when they join it.
    func joinSidekiq(_ queue: String) throws {
        try run(
            "SET", "push:{\(queue)}:source",
            #"{"list":"queue:\#(queue)","head":"RIGHT","format":"sidekiq","max_dead_letters":7,"max_dead_letter_age_ms":8000000,"max_dead_letter_bytes":9000000,"results":"off","max_results":0}"#
        )
    }

    /// The ids of the dead letters, the oldest first.
    func dead(_ queue: String = "default") throws -> [String] {
        try texts("ZRANGE", "push:{\(queue)}:dead", "0", "-1").map { member in
            String(member.components(separatedBy: #""id":""#).dropFirst().first?.prefix { $0 != "\"" } ?? "?")
        }
    }

    /// The entries of the audit log, the newest first, such as `cancel_jobs refused 2`.
    func audit() async throws -> [String] {
        let keys = fleet.sharedKeys
        return try await AuditLog.latest(10, fleet.client(for: keys.audit), keys).map { entry in
            "\(entry.actionName) \(entry.ending?.rawValue ?? "?")" + (entry.count.map { " \($0)" } ?? "")
        }
    }
}

/// Connects a client to a set of invalid tokens, and closes it after `body`.
func withInvalidTokens(
    _ topology: RedisTopology, _ keys: SharedKeys, _ body: (InvalidTokenClient) async throws -> Void
) async throws {
    let client = InvalidTokenClient.start(
        topology: topology, keys: keys, maximumAge: 0, configuration: RedisClientConfiguration(),
        logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
    do {
        try await client.waitUntilReady(timeout: .minutes(3))
        try await body(client)
    } catch {
        await client.close()
        throw error
    }
    await client.close()
}

/// Provides each test with its own scene.
struct SceneScope: SuiteTrait, TestTrait, TestScoping {
    private struct Current: @unchecked Sendable { let scene: OperatorScene }

    @TaskLocal private static var current: Current?

    static var scene: OperatorScene {
        guard let current else { preconditionFailure("the test lacks the trait `.scene`") }
        return current.scene
    }

    var sidekiq: Set<String> = []
    var configured = ["default"]
    let isRecursive = true

    func provideScope(
        for test: Test, testCase: Test.Case?, performing function: @Sendable () async throws -> Void
    ) async throws {
        try await OperatorScene.with(sidekiq: sidekiq, configured: configured) { scene in
            try await Self.$current.withValue(Current(scene: scene)) { try await function() }
        }
    }
}

extension Trait where Self == SceneScope {
    static var scene: Self { Self() }

    static func scene(sidekiq: Set<String> = [], configured: [String] = ["default"]) -> Self {
        Self(sidekiq: sidekiq, configured: configured)
    }
}

/// Jobs of a list without a canary.
protocol TestJobs: CampaignJobs {}

extension TestJobs {
    var listDigest: String { "list" }
    var jobDigest: String { "job" }
    var canary: Int? { nil }
    var isScheduled: Bool { false }
    var newest: NewestJob? { nil }
    var repeated: Int { 0 }
    var refused: Int { 0 }
    func notifications(ofFirst jobs: Int) -> Int { jobs }
}

/// Fields as flags of a command: an empty value is a mistake.
extension Fields: ExpressibleByDictionaryLiteral {
    package init(dictionaryLiteral fields: (String, String)...) {
        self.init(fields.map { (name: $0.0, value: $0.1) }, refusesEmpty: true)
    }
}

/// Asserts that a change is refused with a text.
func expectRefusal(
    _ words: String, _ body: () async throws -> Void, sourceLocation: SourceLocation = #_sourceLocation
) async {
    do {
        try await body()
        Issue.record("it was not refused", sourceLocation: sourceLocation)
    } catch let refusal as ChangeRefusal {
        #expect(refusal.message.contains(words), "\(refusal.message)", sourceLocation: sourceLocation)
    } catch { Issue.record("\(error)", sourceLocation: sourceLocation) }
}
