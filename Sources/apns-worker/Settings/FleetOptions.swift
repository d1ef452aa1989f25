import ArgumentParser
import Operations
import PushQueue
import Redis

/// The options that select queues for commands about the whole fleet.
struct FleetOptions: ParsableArguments {
    @OptionGroup var redis: RedisOptions

    @Option(help: ArgumentHelp("Queues, such as critical,default. (default: all queues in Redis)", valueName: "names"))
    var queue: String?

    /// Reads all settings of a command that has only these flags.
    func settings() throws -> Settings {
        try redis.settings(queue.map { [.queueNames: $0] } ?? [:])
    }

    /// Runs `body` with the fleet, using clients that are closed afterwards.
    /// - Throws: the errors of `body`; those of Redis as a ``CommandFailure``.
    func withFleet<Result>(_ body: (Fleet) async throws -> Result) async throws -> Result {
        try await Self.withFleet(settings(), searches: queue == nil, body)
    }

    /// - Parameter searches: true to search for queues that the settings do not name.
    static func withFleet<Result>(
        _ settings: Settings, searches: Bool, _ body: (Fleet) async throws -> Result
    ) async throws -> Result {
        let patience = settings.redisPatience
        let fleet = try CommandRedis(settings).fleet(searches: searches) { client in
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

extension Fleet {
    /// Returns the queues, and prints a note if there may be more.
    func notedQueues() async throws -> [QueueKeys] {
        let found = try await queues()
        if let note = found.note { Terminal.note("note: \(note)\n") }
        return found.keys
    }
}
