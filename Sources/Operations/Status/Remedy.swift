/// A command that helps with a problem. The words of `status` and the buttons of the dashboard are made of it.
package enum Remedy: Sendable, Equatable {
    case resumeApp(String)
    case resumeQueue(String)
    case resumeCampaign(String)
    case cancelCampaign(String)
    case showCampaign(String)
    case showJobs([String])
    case listDeadLetters(queue: String)
    /// Counts the jobs of a queue by campaign and `fair`.
    case countJobs(queue: String)
    /// Counts the invalid tokens by reason, topic and environment.
    case listInvalidTokens
    /// Sends dead letters again: all dead letters of the queue, or only those with a reason.
    case requeue(queue: String, reason: String?)
    /// Lets all quiet workers claim jobs again.
    case unquiet
    /// Starts another process. The dashboard has no button for that.
    case startWorker(queues: [String])
    /// Completes an interrupted change of the number of shards of the invalid tokens.
    case reshard(to: Int)
    /// Tests each step to Redis and APNs.
    case check

    /// Returns the command for a shell.
    package func command(_ access: FleetAccess) -> String {
        func option(_ option: String, _ value: String) -> [String] { FleetAccess.option(option, value) }
        switch self {
        case .resumeApp(let app): return access.command(["resume"] + option("--app", app))
        case .resumeQueue(let queue): return access.command(["resume"] + option("--queue", queue))
        case .resumeCampaign(let name): return access.command(["campaign", "resume"], name)
        case .cancelCampaign(let name): return access.command(["campaign", "cancel"], name)
        case .showCampaign(let name): return access.command(["campaign", "show"], name)
        case .showJobs(let ids): return access.command(["jobs", "show"] + ids.flatMap { option("--id", $0) })
        case .listDeadLetters(let queue): return access.command(["dead", "list"] + option("--queue", queue))
        case .countJobs(let queue):
            return access.command(["jobs", "list", "--count", "--by", "campaign,fair"] + option("--queue", queue))
        case .listInvalidTokens: return access.command(["invalid", "list", "--by", "reason,topic,environment"])
        case .requeue(let queue, let reason):
            return access.command(
                ["requeue"] + option("--queue", queue) + (reason.map { option("--reason", $0) } ?? ["--all"]))
        case .unquiet: return access.command(["quiet", "--all", "--undo"])
        case .startWorker(let queues):
            return access.command(
                ["run"] + (queues.isEmpty ? [] : option("--queue", queues.joined(separator: ","))))
        case .reshard(let shards): return access.command(["invalid", "reshard", "--to", "\(shards)"])
        case .check: return access.command(["check"])
        }
    }

    /// Returns the command and its effect, as a clause; `nil` if the hint already names the step.
    func words(_ access: FleetAccess) -> String? {
        let command = command(access)
        return switch self {
        case .resumeApp: "`\(command)` probes at once"
        case .resumeQueue: "`\(command)` ends its pause"
        case .resumeCampaign: "`\(command)` continues"
        case .cancelCampaign: "`\(command)` ends it"
        case .showCampaign: "`\(command)` has the numbers"
        case .showJobs(let ids): "`\(command)` shows \(ids.count == 1 ? "it" : "them")"
        case .listDeadLetters: "`\(command)` shows them"
        case .countJobs: "`\(command)` counts the jobs"
        case .listInvalidTokens: "`\(command)` counts them"
        case .requeue: "once the cause is fixed, `\(command)` sends them"
        case .unquiet: "`\(command)` does the former"
        case .startWorker: nil
        case .reshard(let shards): "`\(command)` leaves \(shards == 1 ? "one set" : "\(shards) shards")"
        case .check: "`\(command)` tests each step"
        }
    }
}
