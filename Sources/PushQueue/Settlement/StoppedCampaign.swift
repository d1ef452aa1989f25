import PrintableText
import Redis

/// A campaign that its guard has paused.
public struct StoppedCampaign: Sendable, Equatable {
    public var campaign: String
    /// The share that was above its limit, for people.
    public var reason: String

    public init(campaign: String, reason: String) { (self.campaign, self.reason) = (campaign, reason) }
}

/// The part of the audit log, which all queues share, that workers write: the pauses of campaigns by their guards.
///
/// Not thread-safe. Use it only on the client's event loop; completions are called there, too.
public struct GuardAudit {
    private let key: String
    private let scripts: ScriptRunner

    /// - Parameter client: a client for the slot of the shared keys.
    public init(client: any RedisSender, keys: SharedKeys, clock: ClockSource = .server) {
        key = keys.audit
        scripts = ScriptRunner(client: client, clock: clock)
    }

    public func record(_ stopped: StoppedCampaign, completion: @escaping Completion<Void>) {
        scripts.run(
            .write, [key],
            arguments: {
                $0.appendAuditEntry([
                    ("action", "pause_campaign"), ("by", "guard"),
                    ("subject", "campaign \(stopped.campaign.printable)"), ("via", "worker"),
                    ("detail", stopped.reason),
                ])
            },
            completion: completion
        ) { reply in _ = reply.text() }
    }
}

extension RedisCommand {
    /// The approximate number of entries of the audit log: Redis drops the oldest in blocks.
    private static let auditEntries = 10_000

    /// Appends the arguments of the script `write` that add an entry to the audit log.
    public mutating func appendAuditEntry(_ fields: [(name: String, value: String)]) {
        for text in ["XADD", "MAXLEN", "~", "\(Self.auditEntries)", "*"] { append(text) }
        for (name, value) in fields {
            append(name)
            append(value)
        }
    }
}
