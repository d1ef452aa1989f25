import PushQueue

extension FleetStatus.Problem {
    /// A thing that has problems.
    package enum Object: Sendable, Equatable {
        case server(String)
        case queue(String)
        case app(String)
        case worker(String)
        case campaign(String)
        case key(String)
        /// The state that all queues share, by its prefix.
        case shared(String)

        package var name: String {
            switch self {
            case .server(let name), .queue(let name), .app(let name), .worker(let name), .campaign(let name),
                .key(let name), .shared(let name):
                name
            }
        }
    }

    /// A command that helps with a problem. The words of `status` and the buttons of the dashboard are made of it.
    package enum Remedy: Sendable, Equatable {
        case resumeApp(String)
        case resumeQueue(String)
        case resumeCampaign(String)
        case cancelCampaign(String)
        case showCampaign(String)
        case listDeadLetters(queue: String)
        /// Sends dead letters again: those with a reason, or all of the queue.
        case requeue(queue: String, reason: String?)
        /// Lets all quiet workers claim jobs again.
        case unquiet
        /// Starts another process, which only a host can do.
        case startWorker(queues: [String])
        /// Tests each step to Redis and APNs.
        case check

        /// The command for a shell.
        package var command: String {
            switch self {
            case .resumeApp(let app): Self.command(["resume"] + Self.option("--app", app))
            case .resumeQueue(let queue): Self.command(["resume"] + Self.option("--queue", queue))
            case .resumeCampaign(let name): Self.command(["campaign", "resume"], name)
            case .cancelCampaign(let name): Self.command(["campaign", "cancel"], name)
            case .showCampaign(let name): Self.command(["campaign", "show"], name)
            case .listDeadLetters(let queue): Self.command(["dead", "list"] + Self.option("--queue", queue))
            case .requeue(let queue, let reason):
                Self.command(
                    ["requeue"] + Self.option("--queue", queue)
                        + (reason.map { Self.option("--reason", $0) } ?? ["--all"]))
            case .unquiet: Self.command(["quiet", "--all", "--undo"])
            case .startWorker(let queues):
                Self.command(
                    ["run"] + (queues.isEmpty ? [] : Self.option("--queue", queues.joined(separator: ","))))
            case .check: Self.command(["check"])
            }
        }

        /// Returns a command of `apns-worker` for a shell.
        /// - Parameter name: the name of a thing, as the last word.
        package static func command(_ words: [String], _ name: String? = nil) -> String {
            (["apns-worker"] + words + (name.map(argument) ?? [])).map(quoted).joined(separator: " ")
        }

        /// The command and its effect, as a clause; `nil` if the hint says it.
        package var words: String? {
            switch self {
            case .resumeApp: "`\(command)` probes at once"
            case .resumeQueue: "`\(command)` ends its pause"
            case .resumeCampaign: "`\(command)` continues"
            case .cancelCampaign: "`\(command)` ends it"
            case .showCampaign: "`\(command)` has the numbers"
            case .listDeadLetters: "`\(command)` shows them"
            case .requeue: "once the cause is fixed, `\(command)` sends them"
            case .unquiet: "`\(command)` does the former"
            case .startWorker: nil
            case .check: "`\(command)` tests each step"
            }
        }

        /// Keeps a name that begins with a dash from being read as an option.
        private static func argument(_ name: String) -> [String] { name.hasPrefix("-") ? ["--", name] : [name] }

        private static func option(_ option: String, _ value: String) -> [String] {
            value.hasPrefix("-") ? ["\(option)=\(value)"] : [option, value]
        }

        /// Returns a word for a shell. Producers choose names, so that one can contain anything.
        package static func quoted(_ word: String) -> String {
            let isPlain =
                !word.isEmpty
                && word.utf8.allSatisfy {
                    (0x30...0x39).contains($0) || (0x41...0x5A).contains($0) || (0x61...0x7A).contains($0)
                        || "-_.,:/@%+=".utf8.contains($0)
                }
            return isPlain
                ? word
                : "'" + word.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''") + "'"
        }
    }
}
