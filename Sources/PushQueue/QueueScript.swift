import NIOCore
import Redis

/// The Lua scripts that change or read the queue, each as one atomic step. A script's file begins with its keys,
/// arguments and reply.
///
/// Redis does not undo what a script did before it raised an error: popped jobs would be lost, pushed jobs doubled. So
/// a script reads and checks everything first, then computes, then writes. After its first write it calls only commands
/// that can't fail, or whose failure it catches (`redis.pcall`).
public enum QueueScript: Int, CaseIterable, Sendable {
    // The queue.
    case claim
    case reserve
    case settle
    case reclaim
    case release
    case gauges
    case overview
    // Jobs, for operators.
    case pageJobs
    case changeJobs
    case countRetries
    // Campaigns.
    case commandJobs
    case limitCampaign
    // Dead letters.
    case pageDeadLetters
    // Invalid tokens.
    case findInvalidTokens
    case addInvalidTokens
    case registerTokens
    // Apps.
    case pauseApp
    case probeApp
    case resumeApp
    case reserveRate
    case throttleToken
    case shareProviderToken
    // Commands of operators.
    case setKey
    case recordAction

    /// The source of the script, after the parts that it requires.
    public var source: [UInt8] { source(clock: .server) }

    /// The source of the script, after the parts that it requires.
    /// - Parameter clock: the clock that the script reads.
    package func source(clock: ClockSource) -> [UInt8] {
        switch clock {
        case .server: Self.sources[rawValue]
        case .key: Self.assemble(self, clock)
        }
    }

    /// The sources with the server's clock.
    private static let sources = allCases.map { assemble($0, .server) }

    private static func assemble(_ script: QueueScript, _ clock: ClockSource) -> [UInt8] {
        do {
            return try ScriptParts.embedded(clock).assemble(script.text)
        } catch {
            preconditionFailure("the script \(script): \(error)")
        }
    }

    /// The script's own file. SwiftPM names embedded files without their folder, so each name can occur only once.
    var text: [UInt8] {
        switch self {
        case .claim: PackageResources.claim_lua
        case .reserve: PackageResources.reserve_lua
        case .settle: PackageResources.settle_lua
        case .reclaim: PackageResources.reclaim_lua
        case .release: PackageResources.release_lua
        case .gauges: PackageResources.gauges_lua
        case .overview: PackageResources.overview_lua
        case .pageJobs: PackageResources.page_jobs_lua
        case .changeJobs: PackageResources.change_jobs_lua
        case .countRetries: PackageResources.count_retries_lua
        case .commandJobs: PackageResources.command_jobs_lua
        case .limitCampaign: PackageResources.limit_campaign_lua
        case .pageDeadLetters: PackageResources.page_lua
        case .findInvalidTokens: PackageResources.find_lua
        case .addInvalidTokens: PackageResources.add_lua
        case .registerTokens: PackageResources.register_lua
        case .pauseApp: PackageResources.pause_lua
        case .probeApp: PackageResources.probe_lua
        case .resumeApp: PackageResources.resume_lua
        case .reserveRate: PackageResources.reserve_rate_lua
        case .throttleToken: PackageResources.throttle_token_lua
        case .shareProviderToken: PackageResources.share_lua
        case .setKey: PackageResources.set_key_lua
        case .recordAction: PackageResources.record_action_lua
        }
    }
}

extension QueueScript {
    /// Returns an `EVAL` of the script, for callers that run it once.
    func command(_ keys: [String], arguments: (inout RedisCommand) -> Void) -> RedisCommand {
        let source = source
        var command = RedisCommand("EVAL", expecting: keys.count + 16, bytes: source.count + 1024)
        command.append(source)
        command.append(keys.count)
        for key in keys { command.append(key) }
        arguments(&command)
        return command
    }

    /// Sets a key for an operator. Works on a Redis whose memory is full.
    /// - Parameter life: the time until the key expires, in milliseconds; `nil` for never.
    /// - Throws: `RedisError`.
    static func set(
        _ key: String, to value: ByteBuffer, life: Int? = nil, _ client: RedisClient
    ) async throws {
        _ = try await client.call(
            QueueScript.setKey.command([key]) { command in
                command.append(value)
                command.append(life ?? 0)
            })
    }
}
