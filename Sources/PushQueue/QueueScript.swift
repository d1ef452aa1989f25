import NIOCore
import Redis

/// The Lua scripts that are the queue's transitions. Each script's file starts with its keys, arguments and reply.
public enum QueueScript: Int, CaseIterable, Sendable {
    case claim
    case reserve
    case settle
    case reclaim
    case release
    case depth
    case letters
    case trip
    case probe
    case close
    case rate
    case token
    case find
    case mark
    case register
    case throttle
    case put
    case gauges
    case overview

    /// The script with what all of them share before it.
    public var source: [UInt8] {
        let own =
            switch self {
            case .claim: PackageResources.claim_lua
            case .reserve: PackageResources.reserve_lua
            case .settle: PackageResources.settle_lua
            case .reclaim: PackageResources.reclaim_lua
            case .release: PackageResources.release_lua
            case .depth: PackageResources.depth_lua
            case .letters: PackageResources.letters_lua
            case .trip: PackageResources.trip_lua
            case .probe: PackageResources.probe_lua
            case .close: PackageResources.close_lua
            case .rate: PackageResources.rate_lua
            case .token: PackageResources.token_lua
            case .find: PackageResources.find_lua
            case .mark: PackageResources.mark_lua
            case .register: PackageResources.register_lua
            case .throttle: PackageResources.throttle_lua
            case .put: PackageResources.put_lua
            case .gauges: PackageResources.gauges_lua
            case .overview: PackageResources.overview_lua
            }
        return PackageResources.common_lua + own
    }
}

extension QueueScript {
    /// The script as one command, for those that run it once.
    func command(_ keys: [String], arguments: (inout RedisCommand) -> Void) -> RedisCommand {
        let source = source
        var command = RedisCommand("EVAL", expecting: keys.count + 16, bytes: source.count + 1024)
        command.append(source)
        command.append(keys.count)
        for key in keys { command.append(key) }
        arguments(&command)
        return command
    }

    /// Sets a key for an operator's command, also on a server whose memory is full.
    /// - Parameter life: how long it exists, in milliseconds; `nil` until it is deleted.
    /// - Throws: `RedisError`.
    static func put(
        _ value: ByteBuffer, into key: String, life: Int? = nil, _ client: RedisClient
    ) async throws {
        _ = try await client.call(
            QueueScript.put.command([key]) { command in
                command.append(value)
                command.append(life ?? 0)
            })
    }
}
