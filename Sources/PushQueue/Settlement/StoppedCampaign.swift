import PrintableText
import Redis

/// A campaign that its guard has paused.
public struct StoppedCampaign: Sendable, Equatable {
    /// The campaign's name.
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

    /// Adds the pause of a campaign by its guard.
    public func record(_ stopped: StoppedCampaign, completion: @escaping (Result<Void, QueueFailure>) -> Void) {
        scripts.run(
            .write, [key],
            arguments: { command in
                for text in ["XADD", "MAXLEN", "~", "\(SharedKeys.maximumAuditEntries)", "*"] { command.append(text) }
                for text in [
                    "action", "pause_campaign", "by", "guard", "subject", "campaign \(stopped.campaign.printable)",
                    "via", "worker", "detail", stopped.reason,
                ] {
                    command.append(text)
                }
            },
            completion: completion
        ) { reply in _ = reply.text() }
    }
}
