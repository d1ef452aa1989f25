import ArgumentParser
import Logging
import NIOCore
import NIOPosix
import Operations
import PushQueue
import Redis

/// Which queues a command is about that looks at all of the fleet.
struct FleetOptions: ParsableArguments {
    @OptionGroup var redis: RedisOptions

    @Option(help: ArgumentHelp("Queues, such as critical,default. (default: all queues in Redis)", valueName: "names"))
    var queue: String?

    /// All settings of a command that has these flags only.
    func settings() throws -> Settings {
        try redis.settings(queue.map { [.queueNames: $0] } ?? [:])
    }

    /// Runs `body` with the fleet, over clients that are closed afterwards.
    /// - Throws: the errors of `body`; those of Redis as a ``CommandFailure``.
    func withFleet<Result>(_ body: (Fleet) async throws -> Result) async throws -> Result {
        try await Self.withFleet(settings(), searches: queue == nil, body)
    }

    /// - Parameter searches: whether queues are looked for beyond those that the settings name.
    static func withFleet<Result>(
        _ settings: Settings, searches: Bool, _ body: (Fleet) async throws -> Result
    ) async throws -> Result {
        let patience = settings.redisPatience
        let fleet = try settings.fleet(CommandRedis(settings), searches: searches) { client in
            try await patience.wait { try await client.waitUntilReady(timeout: $0) }
        }
        do {
            let result = try await CommandFailure.mapping { try await body(fleet) }
            await fleet.close()
            return result
        } catch {
            await fleet.close()
            throw error
        }
    }
}

extension Settings {
    /// The fleet, over clients that connect when they are needed.
    func fleet(
        _ redis: CommandRedis, searches: Bool,
        on eventLoop: any EventLoop = MultiThreadedEventLoopGroup.singleton.next(),
        waitUntilReady: @escaping @Sendable (RedisClient) async throws -> Void
    ) throws -> Fleet {
        let clients = RedisClients(
            topology: redis.topology, eventLoop: eventLoop, configuration: redis.configuration, logger: redis.logger)
        return Fleet(
            clients: clients, prefix: keyPrefix, named: try queues().map(\.keys), isNamed: namesQueues,
            searches: searches, waitUntilReady: waitUntilReady)
    }
}
