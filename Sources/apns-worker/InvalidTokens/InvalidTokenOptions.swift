import ArgumentParser
import Logging
import NIOCore
import PushJob
import PushQueue
import Redis

/// Which invalid tokens a command is about: the same flags for each.
struct InvalidTokenOptions: ParsableArguments {
    @Option(help: "Tokens that are invalid for this topic. Repeatable.") var topic: [String] = []

    @Option(help: "Tokens that are invalid for this reason, such as BadDeviceToken. Repeatable.")
    var reason: [String] = []

    @Option(help: "Tokens reported by this source: apns, gateway, feedback or import. Repeatable.") var source:
        [String] = []

    @Option(help: "Tokens of this environment: production, sandbox, or the name of another server. Repeatable.")
    var environment: [String] = []

    @Option(help: "Tokens that became invalid in this period, such as 45m, 2h or 7d.")
    var newerThan: String?

    @Option(help: "Tokens that became invalid at this time or later: ISO 8601, or seconds since 1970.")
    var since: String?

    func filter(now: Int64) throws -> InvalidTokenFilter {
        if let wrong = source.first(where: { InvalidToken.Source(rawValue: $0) == nil }) {
            throw ValidationError("--source must be apns, gateway, feedback or import, not \(wrong)")
        }
        var earliest: Int64?
        if let age = try DeadLetterOptions.age(newerThan, "--newer-than") { earliest = now - age * 1000 }
        if let since {
            guard let time = JobTime.milliseconds(since) else {
                throw ValidationError("--since must be a time such as 2026-11-21T08:00:00Z, or seconds since 1970")
            }
            earliest = max(earliest ?? time, time)
        }
        return InvalidTokenFilter(
            topics: topic, reasons: reason, sources: source, environments: environment, earliest: earliest)
    }
}

/// Chooses invalid tokens by what is known of them.
struct InvalidTokenFilter: Equatable {
    var topics: [String] = []
    var reasons: [String] = []
    var sources: [String] = []
    var environments: [String] = []
    /// In milliseconds since 1970.
    var earliest: Int64?

    var isEmpty: Bool { self == InvalidTokenFilter() }

    /// Returns true if the details match; unknown ones match nothing.
    func fits(_ details: InvalidTokenDetails) -> Bool {
        func fits(_ value: ByteBuffer?, _ wanted: [String]) -> Bool {
            wanted.isEmpty || value.map { value in wanted.contains { value == ByteBuffer(string: $0) } } == true
        }
        return fits(details.topic, topics) && fits(details.reason, reasons) && fits(details.source, sources)
            && fits(details.environment, environments)
            && (earliest.map { earliest in details.at.map { $0 >= earliest } == true } ?? true)
    }
}

extension RedisOptions {
    /// Does something with the set of invalid tokens over a client that is ready, and is closed then.
    /// - Throws: what `body` throws; an error of Redis as one that is told as a mistake of usage is.
    func withInvalidTokens(_ body: (InvalidTokenClient) async throws -> Void) async throws {
        let settings = try settings()
        let redis = try CommandRedis(settings)
        let inspector = InvalidTokenClient.start(
            topology: redis.topology, keys: settings.sharedKeys, maximumAge: settings.invalidTokenAge,
            configuration: redis.configuration, logger: redis.logger)
        do {
            try await inspector.waitUntilReady(timeout: .seconds(10))
            try await body(inspector)
        } catch let error as RedisError {
            throw ValidationError("\(error)")
        } catch let error as QueueConnection.Failure {
            throw ValidationError("\(error)")
        }
        await inspector.close()
    }
}

extension InvalidTokenClient {
    /// Goes through all tokens that fit.
    /// - Parameter page: gets those of each part; `false` ends it.
    func sweep(
        _ filter: InvalidTokenFilter, withDetails: Bool = true,
        _ page: ([InvalidTokenSet.Listed]) async throws -> Bool
    ) async throws {
        var cursor: String?
        repeat {
            let found = try await scan(after: cursor, withDetails: withDetails || !filter.isEmpty)
            let fitting = filter.isEmpty ? found.tokens : found.tokens.filter { filter.fits($0.details) }
            guard try await page(fitting) else { return }
            cursor = found.cursor
        } while cursor != nil
    }
}
