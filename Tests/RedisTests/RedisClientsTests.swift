import Logging
import NIOCore
import NIOPosix
import Synchronization
import TestSupport
import Testing

@testable import Redis

@Suite("The clients of an event loop", .timeLimit(.minutes(10)))
struct RedisClientsTests {
    private static let name = "the-clients"

    /// Clients under load, one per tag.
    private struct Load {
        let pipelines: [(tag: String, client: RedisClient, pipeline: Pipeline)]

        /// Waits until this many more commands of each client are answered.
        func advance(by count: Int) async throws {
            for (_, _, pipeline) in pipelines { try await pipeline.advance(by: count) }
        }
    }

    /// - Parameter pause: see ``Pipeline/init(_:tag:pause:)``.
    private func withLoad(
        _ cluster: RedisCluster, tags: [String], pause: TimeAmount = .zero, _ body: (Load) async throws -> Void
    ) async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        var configuration = RedisClientConfiguration()
        configuration.clientName = Self.name
        let clients = RedisClients(
            topology: try RedisTopology(url: cluster.url), eventLoop: group.next(), configuration: configuration,
            logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
        var pipelines: [(String, RedisClient, Pipeline)] = []
        for tag in tags {
            let client = try await clients.eventLoop.submit { clients.client(for: tag) }.get()
            pipelines.append((tag, client, Pipeline(client, tag: tag, pause: pause)))
        }
        let failure: (any Error)?
        do {
            for (_, client, pipeline) in pipelines {
                try await client.waitUntilReady(timeout: .minutes(3))
                pipeline.start()
            }
            try await body(Load(pipelines: pipelines))
            failure = nil
        } catch { failure = error }
        try await clients.eventLoop.flatSubmit { clients.close() }.get()
        try await group.shutdownGracefully()
        if let failure { throw failure }
    }

    /// Returns the number of the clients' connections to each running node.
    private func connections(_ cluster: RedisCluster) throws -> [Int] {
        try cluster.nodes.filter { $0.processIdentifier != nil }.map { node in
            try node.run("CLIENT", "LIST").text?.ranges(of: "name=\(Self.name) ").count ?? 0
        }
    }

    /// Ends the load, and expects no failures and exactly the values that each pipeline has appended, in order.
    private func finish(
        _ pipelines: [(tag: String, client: RedisClient, pipeline: Pipeline)], _ cluster: RedisCluster
    ) async throws {
        for (tag, _, pipeline) in pipelines {
            let acknowledged = try await pipeline.finish()
            let owner = try cluster.owner(ofSlot: cluster.slot(of: tag))
            let stored = try owner.run("LRANGE", "\(tag)list", "0", "-1").elements?.compactMap(\.number)
            #expect(stored == acknowledged, "\(tag)")
            #expect(acknowledged == Array(0..<acknowledged.count), "\(tag)")
            #expect(try owner.run("GET", "\(tag)count").number == acknowledged.count, "\(tag)")
            #expect(pipeline.failures.isEmpty, "\(pipeline.failures)")
        }
    }

    @Test("share one connection to each node of a Cluster, whatever the number of slots")
    func sharing() async throws {
        let cluster = try await RedisCluster()
        try await withLoad(cluster, tags: (0..<24).map { "{\($0)}" }) { load in
            try await load.advance(by: 100)
            // The connections that were opened to ask for the slots are closed.
            try await eventually { try connections(cluster) == [1, 1, 1] }
            try await finish(load.pipelines, cluster)
        }
        #expect(try connections(cluster) == [0, 0, 0])
    }

    @Test("follow their slots from node to node under load: every command is executed, once, and in order")
    func migration() async throws {
        // No node is considered failed here, however slow the machine is.
        let cluster = try await RedisCluster(nodeTimeout: 15_000)
        let tags = (0..<8).map { "{\($0)}" }
        try await withLoad(cluster, tags: tags) { load in
            // Moves one slot after the other, while the other clients continue over the same connections.
            for (turn, tag) in (tags + tags.prefix(4)).enumerated() {
                let slot = try cluster.slot(of: tag)
                let old = try cluster.owner(ofSlot: slot)
                let new = cluster.nodes.filter { $0 !== old }[turn % 2]
                try cluster.beginMigration(ofSlot: slot, from: old, to: new)
                try await load.advance(by: 100)
                try cluster.migrateKeys(ofSlot: slot, from: old, to: new)
                try await load.advance(by: 50)
                try cluster.finishMigration(ofSlot: slot, from: old, to: new)
                try await load.advance(by: 50)
                let client = load.pipelines.first { $0.tag == tag }?.client
                try await eventually { try await place(of: #require(client)) == .host("127.0.0.1", port: new.port) }
            }
            try await finish(load.pipelines, cluster)
            #expect(try connections(cluster).allSatisfy { $0 <= 1 })
        }
    }

    @Test("lose a killed node, find its replica, and use the other nodes undisturbed")
    func failover() async throws {
        let cluster = try await RedisCluster(replicas: 1, arguments: ["--cluster-require-full-coverage", "no"])
        let tags = (0..<12).map { "{\($0)}" }
        let owner = try cluster.owner(ofSlot: cluster.slot(of: "{0}"))
        // The failover takes seconds. A load without pauses would occupy both cores until then.
        try await withLoad(cluster, tags: tags, pause: .milliseconds(20)) { load in
            try await load.advance(by: 100)
            let away = try load.pipelines.filter { try cluster.owner(ofSlot: cluster.slot(of: $0.tag)) === owner }
            let others = try load.pipelines.filter { try cluster.owner(ofSlot: cluster.slot(of: $0.tag)) !== owner }
            #expect(away.count > 1 && others.count > 1)
            owner.kill()
            try await eventually {
                for (_, client, _) in away {
                    let place = try await place(of: client)
                    if place == nil || place == .host("127.0.0.1", port: owner.port) { return false }
                }
                return true
            }
            for (_, client, _) in away { _ = try await client.call(RedisCommand("PING")) }
            try await finish(others, cluster)
            #expect(try connections(cluster).allSatisfy { $0 <= 1 })
        }
    }

    @Test("all reconnect after the whole Cluster was down")
    func clusterDown() async throws {
        let cluster = try await RedisCluster(replicas: 1)
        let owner = try cluster.owner(ofSlot: cluster.slot(of: "{0}"))
        try await withLoad(cluster, tags: (0..<12).map { "{\($0)}" }) { load in
            try await load.advance(by: 100)
            owner.kill()
            // Every node refuses everything until the replica has taken over.
            try await eventually { load.pipelines.allSatisfy { !$0.pipeline.failures.isEmpty } }
            for (tag, client, _) in load.pipelines {
                try await eventually {
                    do {
                        _ = try await client.call(RedisCommand("SET", "\(tag)last", "1"))
                        return true
                    } catch is RedisError {
                        return false
                    }
                }
            }
            try await eventually { try connections(cluster).allSatisfy { $0 <= 1 } }
        }
    }

    @Test("close a connection that none of them uses, and open another when it is needed")
    func idle() async throws {
        let cluster = try await RedisCluster()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let topology = try RedisTopology(url: cluster.url)
        var configuration = RedisClientConfiguration()
        configuration.clientName = Self.name
        let nodes = NodeConnections(topology: topology, eventLoop: group.next(), configuration: configuration)
        let location = RedisLocation.host("127.0.0.1", port: cluster.nodes[0].port)
        func use() async throws -> ServerLink {
            try await withCheckedThrowingContinuation { continuation in
                nodes.eventLoop.execute { nodes.use(location) { continuation.resume(with: $0) } }
            }
        }
        try await nodes.eventLoop.submit { nodes.idleTime = .milliseconds(50) }.get()
        let first = try await use()
        let second = try await use()
        #expect(first.connection === second.connection)
        try await nodes.eventLoop.submit { first.release() }.get()
        #expect(try connections(cluster) == [1, 0, 0])
        try await nodes.eventLoop.submit {
            second.release()
            second.release()
        }.get()
        try await eventually { try connections(cluster) == [0, 0, 0] }

        // A user is notified of the end of the connection, and the next user gets another one.
        let third = try await use()
        #expect(third.connection !== first.connection)
        let ended = Atomic(false)
        try await nodes.eventLoop.submit { third.onClose = { _ in ended.store(true, ordering: .relaxed) } }.get()
        try cluster.nodes[0].run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        try await eventually { ended.load(ordering: .relaxed) }
        let fourth = try await use()
        #expect(fourth.connection !== third.connection)

        try await nodes.eventLoop.flatSubmit { nodes.close() }.get()
        #expect(try connections(cluster) == [0, 0, 0])
        await #expect(throws: RedisError.self) { try await use() }
        try await group.shutdownGracefully()
    }
}
