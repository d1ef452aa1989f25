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

    @Option(help: ArgumentHelp("Tokens that became invalid since \(TimeOption.form).", valueName: "time"))
    var since: String?

    @Option(help: ArgumentHelp("Tokens that became invalid until \(TimeOption.form).", valueName: "time"))
    var until: String?

    // The former name of --since for durations.
    @Option(help: .hidden) var newerThan: String?

    func filter(now: Int64) throws -> InvalidTokenFilter {
        if let wrong = source.first(where: { InvalidToken.Source(rawValue: $0) == nil }) {
            throw ValidationError("--source must be apns, gateway, feedback or import, not \(wrong)")
        }
        var earliest: Int64?
        if let age = try DeadLetterOptions.age(newerThan, "--newer-than") { earliest = now - age * 1000 }
        if let time = try TimeOption.milliseconds(since, "--since", now: now) {
            earliest = max(earliest ?? time, time)
        }
        return InvalidTokenFilter(
            topics: topic, reasons: reason, sources: source, environments: environment, earliest: earliest,
            latest: try TimeOption.milliseconds(until, "--until", now: now))
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
    var latest: Int64?

    var isEmpty: Bool { self == InvalidTokenFilter() }

    /// Returns true if the details match; unknown ones match nothing.
    func fits(_ details: InvalidTokenDetails) -> Bool {
        func fits(_ value: ByteBuffer?, _ wanted: [String]) -> Bool {
            wanted.isEmpty || value.map { value in wanted.contains { value == ByteBuffer(string: $0) } } == true
        }
        return fits(details.topic, topics) && fits(details.reason, reasons) && fits(details.source, sources)
            && fits(details.environment, environments)
            && (earliest.map { earliest in details.at.map { $0 >= earliest } == true } ?? true)
            && (latest.map { latest in details.at.map { $0 <= latest } == true } ?? true)
    }
}

extension RedisOptions {
    /// Runs `body` with the set of invalid tokens, over a client that is closed afterwards.
    /// - Throws: the errors of `body`; those of Redis as a ``CommandFailure``.
    func withInvalidTokens(_ body: (InvalidTokenClient) async throws -> Void) async throws {
        let settings = try settings()
        let redis = try CommandRedis(settings)
        let inspector = InvalidTokenClient.start(
            topology: redis.topology, keys: settings.sharedKeys, maximumAge: settings.invalidTokenAge,
            configuration: redis.configuration, logger: redis.logger)
        try await CommandFailure.mapping {
            try await settings.redisPatience.wait { try await inspector.waitUntilReady(timeout: $0) }
            try await body(inspector)
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
