import Foundation
import Logging
import NIOCore
import NIOPosix
import Redis
import TestSupport
import Testing

@Suite("A client of a master under Sentinels", .timeLimit(.minutes(10)))
struct RedisSentinelTests {
    @Test("follows the master when it is killed, and after a failover by command")
    func failover() async throws {
        let set = try await RedisSentinelSet()
        let states = States()
        try await withClient(set.url, prepare: states.record) { client in
            var acknowledged = try await write(0..<100, by: client)
            let first = try set.master()
            first.kill()
            acknowledged += try await write(100..<300, by: client)
            // The client may know of the new master before all Sentinels do, because they are asked one after the other.
            try await set.waitForNewMaster(after: first)
            let second = try set.master()
            #expect(try second.run("LLEN", "list").number ?? 0 >= 200)

            // The old master returns, and becomes a replica.
            try first.start()
            try await set.failOver()
            acknowledged += try await write(300..<500, by: client)
            // The old master would continue to accept writes for ten seconds, until a Sentinel makes it a replica.
            try await eventually { try await place(of: client) == .host("127.0.0.1", port: set.master().port) }
            #expect(acknowledged == Array(0..<500))
        }
        #expect(states.failures.count >= 2)
    }

    @Test("stays with the new master while a Sentinel still names the killed one")
    func staleAfterKill() async throws {
        let set = try await RedisSentinelSet()
        var configuration = RedisClientConfiguration()
        configuration.refreshInterval = .milliseconds(50)
        try await withClient(set.url, configuration) { client in
            let first = try set.master()
            var acknowledged = try await write(0..<100, by: client)
            first.kill()
            acknowledged += try await write(100..<200, by: client)
            let second = try #require(try await place(of: client))
            #expect(second != .host("127.0.0.1", port: first.port))
            // Simulates a Sentinel that does not know of the failover yet. The client asks it first.
            try set.sentinels[0].run("SENTINEL", "REMOVE", set.name)
            try set.sentinels[0].run("SENTINEL", "MONITOR", set.name, "127.0.0.1", "\(first.port)", "2")
            #expect(try set.master() === first)
            acknowledged += try await write(200..<1000, by: client)
            #expect(acknowledged == Array(0..<1000))
            try await eventually { try await place(of: client) == second }
        }
    }

    @Test("disconnects from a replaced master, although the Sentinel that it follows hangs")
    func hangingSentinel() async throws {
        let servers = [try RedisServer(), try RedisServer()]
        let sentinels = try (0..<2).map { _ in
            try RedisServer(arguments: ["--sentinel"], file: ["sentinel monitor m 127.0.0.1 \(servers[0].port) 2"])
        }
        // Sentinels that did not know each other would seem to be different deployments.
        try await eventually("they find each other") {
            try sentinels.allSatisfy { try $0.run("SENTINEL", "SENTINELS", "m").elements?.count == 1 }
        }
        let places = sentinels.map { "127.0.0.1:\($0.port)" }.joined(separator: ",")
        var configuration = RedisClientConfiguration()
        configuration.askTimeout = .milliseconds(500)
        try await withClient("redis+sentinel://\(places)?master=m", configuration) { client in
            try await eventually { try listeners(to: sentinels[0]) == 1 }
            sentinels[0].pause()
            defer { sentinels[0].resume() }
            try sentinels[1].run("SENTINEL", "REMOVE", "m")
            try sentinels[1].run("SENTINEL", "MONITOR", "m", "127.0.0.1", "\(servers[1].port)", "2")
            try await eventually { try await place(of: client) == .host("127.0.0.1", port: servers[1].port) }
        }
    }

    @Test("shares one connection to a Sentinel with all clients of its process, and all are notified of a failover")
    func sharedWatch() async throws {
        let set = try await RedisSentinelSet(replicas: 1)
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 3)
        let topology = try RedisTopology(url: set.url)
        var configuration = RedisClientConfiguration()
        // Without announcements, the clients would not learn of the failover.
        configuration.refreshInterval = .hours(1)
        let watch = MasterWatch(topology, eventLoop: group.next(), configuration: configuration)
        let clients = (0..<20).map { _ in
            RedisClient(
                topology: topology, key: "", eventLoop: group.next(), configuration: configuration,
                masterWatch: watch, logger: Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }))
        }
        func listeners() throws -> Int { try set.sentinels.reduce(0) { try $0 + self.listeners(to: $1) } }
        for client in clients { client.start() }
        for client in clients { try await client.waitUntilReady(timeout: .minutes(3)) }
        try await eventually { try listeners() == 1 }
        let old = try set.master()
        try await set.failOver()
        let new = try set.master()
        #expect(new !== old)
        for client in clients {
            try await eventually { try await place(of: client) == .host("127.0.0.1", port: new.port) }
        }
        // The clients left the old master; it did not close the connections itself.
        #expect(try listeners() == 1)
        for client in clients { try await client.close().get() }
        try await eventually { try listeners() == 0 }
        try await group.shutdownGracefully()
    }

    @Test("reports a command that was blocked at the failover, and sends the next one to the new master")
    func blocked() async throws {
        let set = try await RedisSentinelSet(replicas: 1)
        var configuration = RedisClientConfiguration()
        configuration.commandTimeout = nil
        try await withClient(set.url, configuration) { client in
            let blocked = Task {
                try await client.call(
                    RedisCommand("BLMOVE", "jobs", "inbox", "LEFT", "RIGHT", "30"), deadline: .seconds(40))
            }
            let old = try set.master()
            try await eventually { try old.run("INFO", "clients").text?.contains("blocked_clients:1") == true }
            try await set.failOver()
            await #expect(throws: RedisError.self) { _ = try await blocked.value }
            try await client.waitUntilReady(timeout: .minutes(3))
            async let moved = client.call(
                RedisCommand("BLMOVE", "jobs", "inbox", "LEFT", "RIGHT", "20"), deadline: .seconds(30))
            try set.master().run("RPUSH", "jobs", "job")
            #expect(try await moved.root.string == "job")
        }
    }

    /// Returns two masters, and a Sentinel that monitors the first under the name `m`.
    private static func sentinel() throws -> (servers: [RedisServer], sentinel: RedisServer) {
        let servers = [try RedisServer(), try RedisServer()]
        let file = ["sentinel monitor m 127.0.0.1 \(servers[0].port) 1"]
        return (servers, try RedisServer(arguments: ["--sentinel"], file: file))
    }

    @Test("disconnects from a master that its Sentinels no longer name, although it still answers")
    func refresh() async throws {
        let (servers, sentinel) = try Self.sentinel()
        var configuration = RedisClientConfiguration()
        configuration.refreshInterval = .milliseconds(100)
        try await withClient("redis+sentinel://127.0.0.1:\(sentinel.port)?master=m", configuration) { client in
            _ = try await client.call(RedisCommand("SET", "a", "1"))
            try sentinel.run("SENTINEL", "REMOVE", "m")
            try sentinel.run("SENTINEL", "MONITOR", "m", "127.0.0.1", "\(servers[1].port)", "1")
            try await eventually { try await place(of: client) == .host("127.0.0.1", port: servers[1].port) }
            _ = try await client.call(RedisCommand("SET", "b", "2"))
        }
        #expect(try servers[0].run("GET", "a") == "1")
        #expect(try servers[1].run("GET", "b") == "2")
    }

    @Test("finds another master automatically when its own becomes read-only")
    func readOnly() async throws {
        let (servers, sentinel) = try Self.sentinel()
        try await withClient("redis+sentinel://127.0.0.1:\(sentinel.port)?master=m") { client in
            _ = try await client.call(RedisCommand("SET", "a", "1"))
            // Redis closes only the connections of blocked clients, so this client learns of the change from the answer.
            try sentinel.run("SENTINEL", "REMOVE", "m")
            try servers[0].run("REPLICAOF", "127.0.0.1", "\(servers[1].port)")
            let error = await #expect(throws: RedisError.self) {
                _ = try await client.call(RedisCommand("SET", "b", "2"))
            }
            guard case .server(let answer) = error else { throw ChildProcess.Failure(description: "\(error as Any)") }
            #expect(answer.prefix == "READONLY")
            let none = await #expect(throws: RedisError.self) {
                try await client.waitUntilReady(timeout: .milliseconds(300))
            }
            #expect(none?.description.contains("no master named \"m\"; check ?master=") == true)
            try sentinel.run("SENTINEL", "MONITOR", "m", "127.0.0.1", "\(servers[1].port)", "1")
            try await client.waitUntilReady(timeout: .minutes(3))
            _ = try await client.call(RedisCommand("SET", "c", "3"))
        }
        #expect(try servers[1].run("GET", "c") == "3")
    }

    @Test("waits for its own Sentinels rather than use others that the URL names, too")
    func otherDeployment() async throws {
        let own = try await RedisSentinelSet(replicas: 0)
        let other = try await RedisSentinelSet(replicas: 0)
        let addresses = [own.sentinels[0], other.sentinels[0]].map { "127.0.0.1:\($0.port)" }.joined(separator: ",")
        let states = States()
        let url = "redis+sentinel://\(addresses)/?master=\(own.name)"
        try await withClient(url, prepare: states.record) { client in
            #expect(try await place(of: client) == .host("127.0.0.1", port: own.servers[0].port))
            for server in own.sentinels + own.servers { server.stop() }
            try await eventually("it refuses the others") {
                states.failures.contains { "\($0)".contains("another deployment of Redis") }
            }
            for server in own.servers + own.sentinels { try server.start() }
            try await client.waitUntilReady(timeout: .minutes(3))
            #expect(try await place(of: client) == .host("127.0.0.1", port: own.servers[0].port))
        }
    }

    @Test("reports Sentinels that refuse to announce failovers, asks more often instead, and tries again less often")
    func blind() async throws {
        let set = try await RedisSentinelSet(replicas: 1)
        for sentinel in set.sentinels { try sentinel.run("ACL", "SETUSER", "default", "-subscribe") }
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        var configuration = RedisClientConfiguration()
        configuration.refreshInterval = .hours(1)
        let watch = try #require(
            MasterWatch(RedisTopology(url: set.url), eventLoop: group.next(), configuration: configuration))
        try await withClient(set.url, configuration, masterWatch: watch) { client in
            try await eventually("it reports that") { watch.failure != nil }
            #expect(watch.failure?.contains("NOPERM") == true, "\(watch.failure ?? "")")
            func refusals() throws -> Int {
                try set.sentinels.reduce(0) { sum, sentinel in
                    let entries = try sentinel.run("ACL", "LOG").elements ?? []
                    return sum + entries.reduce(0) { $0 + ($1.elements?[1].number ?? 0) }
                }
            }
            let refused = try refusals()
            #expect(refused > 0)
            _ = try set.sentinels[0].run("SENTINEL", "FAILOVER", set.name)
            try await eventually("it follows the failover") {
                try await place(of: client) == .host("127.0.0.1", port: set.servers[1].port)
            }
            #expect(try refusals() <= refused + 6)
            for sentinel in set.sentinels { try sentinel.run("ACL", "SETUSER", "default", "+subscribe") }
            try await eventually("a Sentinel announces failovers again") { watch.failure == nil }
        }
        try await group.shutdownGracefully()
    }

    @Test("does not accept a replica as the master, and continues when it becomes one")
    func staleSentinel() async throws {
        let master = try RedisServer()
        let replica = try RedisServer()
        try replica.run("REPLICAOF", "127.0.0.1", "\(master.port)")
        // The Sentinel monitors the replica as if it were the master, and corrects this only later.
        let sentinel = try RedisServer(
            arguments: ["--sentinel"],
            file: ["sentinel monitor m 127.0.0.1 \(replica.port) 1", "sentinel down-after-milliseconds m 60000"])
        try await withClient("redis+sentinel://127.0.0.1:\(sentinel.port)?master=m", waiting: false) { client in
            let error = await #expect(throws: RedisError.self) {
                try await client.waitUntilReady(timeout: .milliseconds(500))
            }
            // Sentinel eventually follows from a monitored replica to its master.
            if let error { #expect(error.description.contains("it is a replica")) }
            try replica.run("REPLICAOF", "NO", "ONE")
            try await client.waitUntilReady(timeout: .minutes(3))
        }
    }

    @Test("logs in to both, by passwords and by files read again for each connection, and names the place of a bad one")
    func passwords() async throws {
        let set = try await RedisSentinelSet(
            replicas: 0, sentinels: 1, password: "server", sentinelPassword: "sentinel")
        try await withClient(set.url) { _ = try await $0.call(RedisCommand("SET", "a", "1")) }
        let file = set.servers[0].directory.appendingPathComponent("password")
        try "wrong\n".write(to: file, atomically: true, encoding: .utf8)
        let place = "127.0.0.1:\(set.sentinels[0].port)"
        let url = "redis+sentinel://\(place)?master=mymaster&sentinel_password=sentinel&password_file=\(file.path)"
        try await withClient(url, waiting: false) { client in
            let error = await #expect(throws: RedisError.self) {
                try await client.waitUntilReady(timeout: .minutes(3))
            }
            guard case .authentication = error else { throw ChildProcess.Failure(description: "\(error as Any)") }
            try "server\n".write(to: file, atomically: true, encoding: .utf8)
            try await eventually { try await client.eventLoop.submit { client.isReady }.get() }
            _ = try await client.call(RedisCommand("SET", "a", "2"))
        }
        try "wrong\n".write(to: file, atomically: true, encoding: .utf8)
        for (url, source) in [
            ("\(place)?master=mymaster", "`sentinel_password` in the Redis URL"),
            (":server@\(place)/?master=mymaster", "`sentinel_password` in the Redis URL"),
            (":server@\(place)/?master=mymaster&sentinel_password=x", "`sentinel_password` in the Redis URL"),
            (":server@\(place)/?master=mymaster&sentinel_password_file=\(file.path)", file.path),
            (":x@\(place)/?master=mymaster&sentinel_password=sentinel", "the user and the password in the Redis URL"),
            ("\(place)/?master=mymaster&sentinel_password=sentinel&password_file=\(file.path)", file.path),
        ] {
            let error = try await failure(of: "redis+sentinel://\(url)")
            #expect(error.description.contains(source), "\(url): \(error)")
        }
    }

    @Test("asks the next Sentinel when one is dead, does not answer, or is not a Sentinel")
    func badSentinels() async throws {
        let set = try await RedisSentinelSet(replicas: 0, sentinels: 1)
        let stopped = try RedisServer(arguments: ["--sentinel"], file: ["sentinel monitor x 127.0.0.1 1 1"])
        let dead = try RedisServer.refusedPort()
        stopped.pause()
        defer { stopped.resume() }
        var configuration = RedisClientConfiguration()
        configuration.askTimeout = .milliseconds(300)
        let others = "127.0.0.1:\(dead),127.0.0.1:\(stopped.port),127.0.0.1:\(set.servers[0].port)"
        try await withClient(
            "redis+sentinel://\(others),127.0.0.1:\(set.sentinels[0].port)?master=mymaster", configuration
        ) { _ = try await $0.call(RedisCommand("SET", "a", "1")) }
        let error = try await failure(of: "redis+sentinel://\(others)?master=mymaster", configuration)
        for reason in ["Connection refused", "no answer within 300 ms", "check that a Sentinel listens there"] {
            #expect(error.description.contains(reason), "\(error)")
        }
    }

    /// Counts the clients that subscribe at a Sentinel. Sentinels subscribe at each other's servers, not at each other.
    private func listeners(to sentinel: RedisServer) throws -> Int {
        try sentinel.run("CLIENT", "LIST").text?.ranges(of: " sub=1 ").count ?? 0
    }

    private func write(_ numbers: Range<Int>, by client: RedisClient) async throws -> [Int] {
        try await writeAll(numbers, to: "list", by: client)
    }
}

/// Returns the server for the client's commands.
func place(of client: RedisClient) async throws -> RedisLocation? {
    try await client.eventLoop.submit { client.server }.get()
}

/// Appends numbers to a list; like a worker, repeats each until it is acknowledged.
func writeAll(_ numbers: Range<Int>, to key: String, by client: RedisClient) async throws -> [Int] {
    var acknowledged: [Int] = []
    for number in numbers {
        let deadline = ContinuousClock.now + .seconds(180)
        while true {
            do {
                _ = try await client.call(RedisCommand("RPUSH", key, "\(number)"))
                break
            } catch let error as RedisError {
                guard ContinuousClock.now < deadline else { throw error }
                if case .server = error { try await Task.sleep(for: .milliseconds(20)) }
                try await client.waitUntilReady(timeout: .minutes(3))
            }
        }
        acknowledged.append(number)
    }
    return acknowledged
}
