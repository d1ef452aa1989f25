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
    case describe
    case register
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
            case .describe: PackageResources.describe_lua
            case .register: PackageResources.register_lua
            case .gauges: PackageResources.gauges_lua
            case .overview: PackageResources.overview_lua
            }
        return PackageResources.common_lua + own
    }
}
