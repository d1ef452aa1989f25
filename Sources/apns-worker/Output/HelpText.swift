import ArgumentParser
import FoundationEssentials
import Glibc
import Operations
import PrintableText
import PushJob
import PushQueue

enum CommandNames {
    /// Returns the name of a command, which its configuration must have.
    ///
    /// The parser would derive a missing name from the type, at each start and for each command: its casts search all
    /// conformances of the program, which took a third of the time of a start.
    static func name(_ command: any ParsableCommand.Type) -> String {
        guard let name = command.configuration.commandName else { preconditionFailure("a command has no name") }
        return name
    }

    /// Returns the command that the arguments name.
    /// - Throws: a usage error that suggests a command, if a name is unknown.
    static func find(
        _ arguments: [String], in program: any ParsableCommand.Type
    ) throws -> any ParsableCommand.Type {
        var command = program
        var path = [name(program)]
        for argument in arguments {
            let children = command.configuration.subcommands
            guard !children.isEmpty, !argument.hasPrefix("-") else { break }
            guard let child = children.first(where: { name($0) == argument }) else {
                // The word is an argument of the default subcommand.
                if command.configuration.defaultSubcommand != nil { break }
                let names =
                    children.filter { $0.configuration.shouldDisplay }.map { name($0) }
                    + (path.count == 1 ? ["help"] : [])
                throw unknown(argument, path, names)
            }
            command = child
            path.append(argument)
        }
        return command
    }

    private static func unknown(_ name: String, _ path: [String], _ names: [String]) -> CommandFailure {
        let meant = name.nearest(of: names).map { "; did you mean `\($0)`?" } ?? "."
        return CommandFailure(
            .usage,
            "unknown command `\(name.printable)`\(meant) `\(path.joined(separator: " ")) --help` lists the commands")
    }
}

enum HelpText {
    /// The width without a terminal.
    static let columns = 100

    /// Prints the help requested by `help …` and returns true; returns false for other arguments.
    static func answers(_ arguments: [String], of program: any ParsableCommand.Type) throws -> Bool {
        guard arguments.first == "help" else { return false }
        let names = arguments.dropFirst().filter { !$0.hasPrefix("-") }
        if let topic = names.first.flatMap(HelpTopic.init(rawValue:)) {
            Terminal.print(topic.text)
            return true
        }
        let command: any ParsableCommand.Type
        do {
            command = try CommandNames.find(Array(names), in: program)
        } catch let error as CommandFailure {
            guard let topic = names.first?.nearest(of: HelpTopic.allCases.map(\.rawValue)), names.count == 1 else {
                throw error
            }
            throw CommandFailure(.usage, "no help on `\(names[0].printable)`; did you mean `help \(topic)`?")
        }
        print(program.helpMessage(for: command, columns: isatty(STDOUT_FILENO) == 1 ? nil : columns))
        return true
    }
}

/// A subject of `apns-worker help`.
enum HelpTopic: String, CaseIterable {
    case settings, jobs, json
    case exitCodes = "exit-codes"
    case environment

    static var names: String { allCases.map(\.rawValue).joined(separator: ", ") }

    var text: String {
        switch self {
        case .settings: settings
        case .jobs: jobs
        case .json: json
        case .exitCodes: exitCodes
        case .environment: environment
        }
    }

    private var settings: String {
        var text = """
            A setting is a flag, an environment variable, or a key of the YAML file that --config (APNS_WORKER_CONFIG) names. A flag
            overrides a variable, and a variable overrides the file. `apns-worker config` prints the effective settings.

            """
        for section in Setting.Section.allCases {
            text += "\n\(section.rawValue.uppercased()):\n"
            for setting in Setting.all where setting.section == section {
                text +=
                    "  \(setting.flag.map { "\($0) <\(setting.valueName ?? $0.dropFirst(2).description)>" } ?? setting.variable)\n"
                text += Self.wrapped(setting.help + (setting.shownDefault.map { " (default: \($0))" } ?? ""))
            }
        }
        return text
    }

    private var environment: String {
        var text = """
            Each setting has a variable. An app's or a queue's own value has its name in it: APNS_WORKER_APPS_SHOP_TOPIC,
            APNS_WORKER_QUEUES_BULK_RESULTS. A secret can be in a file: APNS_WORKER_REDIS_URL_FILE. An empty variable counts as
            not set, and an unknown one is an error.

              APNS_WORKER_CONFIG
                  YAML file with settings; flags and variables override it.

            """
        for setting in Setting.all where setting.canBeCommon {
            text += "  \(setting.variable)\n" + Self.wrapped(setting.help)
        }
        return text + """

            Others: NO_COLOR (no colors), HTTPS_PROXY and NO_PROXY (see --proxy), STATE_DIRECTORY (see `feedback --spill`),
            NOTIFY_SOCKET and JOURNAL_STREAM (systemd).

            """
    }

    private var jobs: String {
        let schema = JobSchemaText(JobSchema.text)
        var text = """
            A job is a JSON object on a list in Redis:

              RPUSH push:{default}:jobs '{"token":"…","alert":"Hello","enqueued_at":1795279247}'

            It has one of token, tokens and channel, and a payload or the short forms of one. `apns-worker schema` prints the JSON
            Schema, `apns-worker check --job FILE` checks jobs.


            """
        for (name, description) in schema.members { text += "  \(name)\n" + Self.wrapped(description) }
        return text
    }

    /// The things that commands print as JSON.
    static let things = ShownMembers.withParts(of: [
        FleetStatus.columns.members, JobRow.columns.members, DeadLetterRow.columns.members, ResultLine.columns.members,
        InvalidTokenSet.Listed.columns.members, CampaignStatus.columns.members, CampaignSummary.columns.members,
        DeviceFindings.columns.members, DeviceExport.columns.members,
    ])

    private var json: String {
        var text = """
            Commands with --json print one object per line. Times are milliseconds since 1970, durations are milliseconds (…_ms),
            sizes are bytes (…_bytes). Unknown values are omitted. Commands that change something print the result, whose members
            are in docs/commands.md.

            """
        for thing in Self.things {
            text += "\n\(thing.title)\n"
            for member in thing.all {
                text += Self.wrapped(member.explanation, after: "  \(member.name.padded(to: 22)) ")
            }
        }
        return text
    }

    private var exitCodes: String {
        let statuses = ExitStatus.reference.map { Self.wrapped($0.meaning, after: $0.status.padded(to: 10)) }
        let ofCheck = NagiosStatus.allCases.map { status in
            Self.wrapped(status.meaning, after: "\(status.rawValue)  \(status.word)".padded(to: 13))
        }
        return """
            \(statuses.joined())
            `status --check` has the statuses of Nagios' plugins, and always prints one line on standard output:

            \(ofCheck.joined())
            """
    }

    /// Wraps a text. The first line follows a prefix. Further lines are indented by the width of the prefix.
    private static func wrapped(_ text: String, after prefix: String = "      ") -> String {
        var lines: [String] = []
        var line = ""
        for word in text.split(separator: " ") {
            if !line.isEmpty, line.count + word.count + 1 > HelpText.columns - prefix.count {
                lines.append(line)
                line = ""
            }
            line += (line.isEmpty ? "" : " ") + word
        }
        lines.append(line)
        let indentation = String(repeating: " ", count: prefix.count)
        return lines.enumerated().map { "\($0 == 0 ? prefix : indentation)\($1)\n" }.joined()
    }
}

/// The members of a job with their descriptions, from its JSON Schema and in its order.
private struct JobSchemaText {
    private struct Document: Decodable {
        struct Member: Decodable { let description: String? }
        let properties: [String: Member]
    }

    let members: [(name: String, description: String)]

    init(_ text: String) {
        let schema: Document
        do {
            schema = try JSONDecoder().decode(Document.self, from: Data(text.utf8))
        } catch {
            preconditionFailure("the schema of jobs that is built in cannot be read: \(error)")
        }
        // A dictionary has no order, so the order is taken from the text.
        let places = schema.properties.compactMap { name, member -> (String.Index, String, String)? in
            text.firstRange(of: "\n    \"\(name)\": {").map { ($0.lowerBound, name, member.description ?? "") }
        }
        members = places.sorted { $0.0 < $1.0 }.map { ($0.1, $0.2) }
    }
}
