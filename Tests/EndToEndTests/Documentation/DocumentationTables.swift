import APNS
import Foundation
import LegacyAPNS
import Operations
import PushJob
import PushQueue
import Telemetry
import TestSupport

@testable import PushWorker
@testable import apns_worker

/// The tables of the documentation that are made from the code.
///
/// A page has each table between `<!-- generated: NAME -->` and `<!-- end -->`. ``DocumentationReferenceTests`` compares the tables, and
/// writes them if the variable `UPDATE_DOCS` is 1.
enum DocumentationTables {
    static func table(_ name: String) async throws -> String {
        switch name {
        case "settings": settings
        case "metrics": metrics
        case "reasons-apns": apnsReasons
        case "reasons-worker": workerReasons
        case "reasons-jobs": jobReasons
        case "reasons-gateway": gatewayReasons
        case "reasons-requests": requestReasons
        case "queue-keys": try queueKeys()
        case "shared-keys": try sharedKeys()
        case "members": try members(shortForms: false)
        case "push-types": pushTypes
        case "short-forms": try members(shortForms: true)
        case "payload-members":
            table(
                ["Member", "Value", "Apple's page"],
                PayloadMember.allCases.map { member in
                    let place = PayloadMember.inAPS.contains(member) ? "aps." : ""
                    let value = member.value.expectation(in: .payload).replacing(/\{.*\}|"[^"]*"/) { "`\($0.0)`" }
                    return ["`\(place)\(member.name)`", value, member.source]
                })
        case "exit-statuses": table(["Status", "Meaning"], ExitStatus.reference.map { [$0.status, $0.meaning] })
        case "check-statuses":
            table(
                ["Status", "Line", "When"],
                NagiosStatus.allCases.map { ["\($0.rawValue)", "`\($0.word): …`", $0.meaning] })
        case "problems": problems
        case "json":
            table(
                ["Thing", "Members"],
                HelpTopic.things.filter { $0.name != "Result" }.map { thing in
                    let members = thing.all.map { "`\($0.name)`: \($0.explanation)" }
                    return [thing.title, members.joined(separator: "<br>")]
                })
        case "result": members(of: ResultLine.columns.members)
        case "apns-worker": try await DocumentedCommand.read("apns-worker").markdown
        case "apns-simulator": try await DocumentedCommand.read("apns-simulator").markdown
        default: throw DocumentationError(description: "there is no table \(name)")
        }
    }

    static func table(_ columns: [String], _ rows: [[String]]) -> String {
        let lines = [columns, columns.map { _ in "---" }] + rows.map { $0.map { $0.replacing("|", with: "\\|") } }
        return lines.map { "| " + $0.joined(separator: " | ") + " |\n" }.joined()
    }

    // MARK: Problems

    private static var pushTypes: String {
        func names(_ members: PayloadFacts.Members) -> String {
            PayloadMember.allCases.filter { members.contains(.init($0)) }.map { "`\($0.name)`" }.joined(separator: ", ")
        }
        return table(
            [
                "Push type", "Suffix of the topic", "Needs", "Must not have", "Maximum", "Credential",
                "Source (Apple)",
            ],
            PushType.allCases.map { type in
                let row = type.row
                let needs = [
                    row.required.isEmpty ? "" : "needs \(names(row.required))",
                    row.requiredUnlessEnded.isEmpty ? "" : "\(names(row.requiredUnlessEnded)) until it ends",
                    row.requiredToStart.isEmpty ? "" : "\(names(row.requiredToStart)) to start",
                ].filter { !$0.isEmpty }.joined(separator: "; ")
                let excluded = row.excludesAPS ? "`aps`" : names(row.excluded)
                return [
                    "`\(row.name)`", type.hasTopicSuffix ? "`\(row.topicSuffix)`" : "", needs,
                    excluded.isEmpty ? "" : "must not have \(excluded)", "\(row.maximumPayloadSize) bytes",
                    row.needsKey ? "key" : "key or certificate",
                    "\(row.source)",
                ]
            })
    }

    private static var problems: String {
        Problem.Kind.Part.allCases.map { part in
            let rows = Problem.table.filter { $0.part == part }.map { kind in
                let severity = kind.isInStatus ? kind.severity.rawValue : ""
                let alert = kind.alert.map { "`\($0.name)`" } ?? ""
                return ["`\(kind.name)`", severity, kind.condition.capitalizedFirst, kind.action, alert]
            }
            let title = part.title.capitalizedFirst
            return "**\(title)**\n\n" + table(["Kind", "Severity", "Condition", "First step", "Alert"], rows)
        }.joined(separator: "\n")
    }

    // MARK: JSON

    private static func members(of thing: ShownMembers) -> String {
        table(["Member", "Meaning"], thing.all.map { ["`\($0.name)`", $0.explanation] })
    }

    // MARK: Settings

    private static var settings: String {
        Setting.Section.allCases.map { section in
            let scope =
                switch section.scope {
                case .worker: ""
                case .app: "These settings apply to all apps, or to one app under `apps.<name>`.\n\n"
                case .queue: "These settings apply to all queues, or to one queue under `queues.<name>`.\n\n"
                }
            let rows = Setting.all.filter { $0.section == section }.map { setting in
                let initial = setting.initial.map { "`\(setting.kind.text($0))`" } ?? setting.otherwise ?? ""
                let names = [setting.flag, setting.variable].compactMap { $0 }.map { "`\($0)`" }
                let reload = setting.isReloadable ? "reloaded" : ""
                let help = setting.help.replacing(/`[^`]*`|</) { $0.0 == "<" ? "\\<" : String($0.0) }
                return [
                    "`\(setting.name)`", values(setting.kind), initial, names.joined(separator: "<br>"), reload, help,
                ]
            }
            let columns = ["Setting", "Values", "Default", "Flag and variable", "Reload", "Description"]
            return "### \(section.rawValue)\n\n\(scope)\(table(columns, rows))"
        }.joined(separator: "\n")
    }

    private static func values(_ kind: SettingKind) -> String {
        switch kind {
        case .text: return "text"
        case .file: return "path"
        case .list: return "list"
        case .number(let range): return "\(range.lowerBound) to \(range.upperBound)"
        case .choice(let known): return known.map { "`\($0)`" }.joined(separator: ", ")
        case .size(let range): return "\(SizeText.text(range.lowerBound)) to \(SizeText.text(range.upperBound))"
        case .duration(let bare, let range):
            let ends = [range.lowerBound, range.upperBound].map { DurationText.text($0 * bare.milliseconds) }
            return ends.joined(separator: " to ") + ", or a number of \(bare.name)"
        }
    }

    // MARK: Metrics

    private static var metrics: String {
        table(
            ["Metric", "Type", "Labels", "Description"],
            WorkerMetric.all.map { metric in
                let labels = metric.labels.map { "`\($0)`" }.joined(separator: ", ")
                return ["`\(metric.name)`", metric.kind.rawValue, labels, metric.help]
            })
    }

    // MARK: Reasons

    private static var apnsReasons: String {
        table(
            ["Reason", "Status", "Outcome"],
            APNSReason.allCases.map { reason in
                let answer = RequestResult.response(Response(status: reason.status, reason: reason))
                let configured = text(Verdict(answer, topic: .app))
                let own = text(Verdict(answer, topic: .job))
                let derived = text(Verdict(answer, topic: .pushType))
                let suffixed = derived == configured ? "" : " If the topic has the push type's suffix: \(derived)."
                let both =
                    "If the topic is the app's own: \(configured).\(suffixed) If the job named the topic: \(own)."
                return ["`\(reason.rawValue)`", "\(reason.status)", configured == own ? configured : both]
            })
    }

    private static var gatewayReasons: String {
        table(
            ["Reason", "Status", "Outcome"],
            GatewayStatus.documented.map { code, status, name in
                ["`\(name)`", "\(code)", text(Verdict(.refused(status), topic: .app))]
            })
    }

    private static var requestReasons: String {
        table(["Reason", "Description"], RequestFailure.Kind.allCases.map { ["`\($0.rawValue)`", text($0)] })
    }

    private static var jobReasons: String {
        table(["Reason", "Description"], JobError.Code.allCases.map { ["`\($0.rawValue)`", text($0)] })
    }

    private static var workerReasons: String {
        table(["Reason", "Outcome", "Description"], Reason.Own.allCases.map { ["`\($0.rawValue)`"] + text($0) })
    }

    private static func text(_ verdict: Verdict) -> String {
        switch verdict {
        case .delivered: "`delivered`"
        case .tokenInvalid: "`invalid_token`"
        case .tokenSuspect:
            "the notification ends as `invalid_token` while APNs accepts at least half of the other tokens of its group; otherwise it is "
                + "retried, without a mark"
        case .retry:
            "the notification is retried, and spends an attempt if APNs accepted other notifications of its group"
        case .serverError: "the notification is retried, and spends no attempt in the first hour"
        case .throttled: "the notification is retried; until then nothing else is sent to the device"
        case .resend: "sent again at once on another connection"
        case .resendApart: "sent again at once, apart from most others"
        case .resendUncertain: "sent again at once on another connection"
        case .retireConnection:
            "the notification is sent again on a new connection; after the second such answer within a minute, it is retried later"
        case .refused:
            "the notification is retried at once on a separate connection, at most once per minute and app; otherwise it is retried later"
        case .misconfigured: "the notification is retried, and spends no attempt in the first hour"
        case .pushTypeRefused:
            "`dead` once APNs has accepted the app's topic without the suffix; until then the notification is retried"
        case .unexplained, .unknown:
            "retried minutes apart; `dead` after three attempts if APNs accepted other notifications of the group"
        case .deferred: "the notification is deferred, and spends no attempt"
        case .dead: "`dead`"
        }
    }

    private static func text(_ kind: RequestFailure.Kind) -> String {
        switch kind {
        case .refusedStream:
            "APNs refused the stream before processing it. The request is sent again on another connection."
        case .goingAway:
            "APNs closed the connection and did not process this request, which is sent again on another connection."
        case .reset:
            "APNs reset the stream. The notification is uncertain: it is sent again or dropped, as `on_uncertain` says."
        case .malformed:
            "The answer breaks HTTP (RFC 9113, section 8.1.1), so it is ignored. The notification is uncertain."
        case .timedOut: "No answer arrived within `request_timeout`. The notification is uncertain."
        case .connectionLost:
            "The connection was lost before the answer, and no other request was in flight on it. The notification is uncertain if the "
                + "request had been written. It is then sent alone on a connection."
        case .lostWithOthers:
            "The connection was lost before the answer, while other requests were in flight on it. The request is sent again at once on "
                + "a connection with few requests, then alone on a connection, which spends no attempt."
        case .unresponsive:
            "The connection was retired as unresponsive before the request was written. The request is sent again."
        case .noOtherConnection:
            "The request waits for a new connection, because the open connections did not answer it."
        case .discarded:
            "The gateway discarded the notification because of an earlier, bad notification. It is sent again."
        case .hungUp:
            "The gateway drops each connection at the first notification. The app or its credential may be at fault."
        }
    }

    private static func text(_ code: JobError.Code) -> String {
        switch code {
        case .tooDeep: "The JSON has more than 64 levels."
        case .malformedJSON: "The job is not valid JSON."
        case .notAnObject: "The job is JSON, but not an object."
        case .missingToken: "The job has neither `token`, `tokens` nor `channel`."
        case .tokenAndTokens: "The job has both `token` and `tokens`."
        case .channelAndToken: "The job has a `channel` and device tokens."
        case .missingPayload: "The job has neither a `payload` nor a short form of one."
        case .payloadAndShortForm: "The job has a `payload` and a short form, such as `alert`."
        case .payloadTooLong: "The payload is larger than APNs accepts for its push type, and cannot be shortened."
        case .missingID: "The job has `unique_for` or `replaces`, and no `id`."
        case .replacesAndUniqueFor: "The job has both `replaces` and `unique_for`."
        case .missingFair: "The job has `fair_per_second` and no `fair`."
        case .invalidMember: "A member has the wrong type or is out of its range."
        case .duplicateMember: "A member occurs twice."
        case .tooLarge: "The job has 2 GiB or more."
        case .notSidekiq: "The queue's format is `sidekiq` or `resque`, and the job is not in that form."
        case .newerWrapper:
            "A newer version of apns-worker put the job back in a form that this version cannot read. Requeue it when the newer one runs."
        case .otherClass: "The job's class is not one of `job_class`."
        }
    }

    private static func text(_ own: Reason.Own) -> [String] {
        let refused = "`dead`; deferred while a worker with other settings may accept the job"
        return switch own {
        case .appPaused: ["deferred", "An operator has paused the app."]
        case .attemptsExhausted: ["`dead`", "All attempts are used up. The dead letter has the last error."]
        case .badPayload:
            ["`dead`", "The payload breaks a rule that Apple documents as an error. The detail names the rule."]
        case .campaignLimited:
            ["deferred", "The job waits for its turn within the rate of its campaign."]
        case .campaignPaused: ["deferred", "The job's campaign is paused."]
        case .cancelled: ["`cancelled`", "An operator cancelled the job or its campaign."]
        case .certificateNotForTopic:
            [
                "`dead`; for an app with a gateway, nothing is sent at all",
                "The certificate is not for the topic of the job, of its push type, or of an app with a gateway.",
            ]
        case .queuePaused: ["deferred", "The queue was paused with `--now`. The notification is back in the queue."]
        case .drained:
            ["deferred", "The worker ended before the notification was sent. The notification is back in the queue."]
        case .duplicate: ["`dropped`", "Another job with the same `id` was sent within `unique_for`."]
        case .endpointUnavailable: ["deferred", "The app's endpoint does not answer, or only with server errors."]
        case .expired: ["`expired`", "The expiration passed before the notification could be sent."]
        case .fairLimited:
            ["deferred", "The job waits for its turn within `fair_per_second` of its `fair`."]
        case .jobTooLarge: [refused, "The job has more than 16 MiB."]
        case .malformedToken:
            ["`dead`", "The device token is neither hexadecimal nor base64, or has an impossible length."]
        case .noApp: [refused, "The job names no app or topic, and the workers have several apps."]
        case .noAnswer:
            [
                "-",
                "Requests wait for long, and none is answered. This reason is recorded for the endpoint, not for a notification.",
            ]
        case .noConnection: ["deferred", "There was no connection to APNs."]
        case .poison:
            ["`dead`", "The job was reclaimed more than five times from lanes that stopped. It may crash workers."]
        case .rateLimited: ["deferred", "The app's `max_per_second` is used up."]
        case .replaced: ["`dropped`", "A newer job has the same `replaces`."]
        case .setAside:
            [
                "deferred",
                "Nearly all notifications of the job, campaign, topic, app or credential fail. One at a time is tried.",
            ]
        case .suppressed: ["`suppressed`", "The device token is in the set of invalid tokens."]
        case .throttled: ["deferred", "APNs throttles the device token."]
        case .unknownApp: [refused, "No worker of the queue has the app or topic that the job names."]
        case .unreadableClaim: ["`dead`", "A claim in Redis was not written by a worker."]
        }
    }

    // MARK: Redis keys

    private static func queueKeys() throws -> String {
        let keys = try QueueKeys()
        let names = [
            "jobs": keys.jobs, "retry": keys.retry, "failed": keys.failed, "sorted": keys.sorted, "shares": keys.shares,
            "workers": keys.workers, "inbox": keys.inbox, "dead": keys.dead,
            "deadBytes": keys.deadBytes, "cancelled": keys.cancelled, "cancelledBytes": keys.cancelledBytes,
            "gauges": keys.gauges, "results": keys.results, "resultsMarks": keys.resultsMarks,
            "resultsPositions": keys.resultsPositions, "largest": keys.largest, "paused": keys.paused,
            "parkedResults": keys.parkedResults("<group>"),
            "workerInfo": keys.workerInfo, "claimed": keys.claimed("<lane>"),
            "request": keys.request("<digest>"), "unique": String(buffer: keys.unique(.init(string: "<id>"))),
            "newest": String(buffer: keys.newest(.init(string: "<key>"))),
            "announced": String(buffer: keys.announced(.init(string: "<id>"))),
            "next": keys.next("<lane>"),
            "order": keys.order("<process>"), "stats": keys.stats("<day>"), "minute": keys.minute("<minute>"),
            "jobCommands": keys.jobCommands, "configurations": keys.configurations, "deliveries": keys.deliveries,
            "source": keys.source,
            "campaigns": keys.campaigns, "campaign": keys.campaign("<name>"),
            "campaignList": keys.campaignList("<name>"),
        ]
        return try keyTable("QueueKeys", names)
    }

    private static func sharedKeys() throws -> String {
        let keys = SharedKeys()
        let names = [
            "invalidTokens": keys.invalidTokens, "invalidTokenDetails": keys.invalidTokenDetails + ":<part>",
            "invalidTokenFacts": keys.invalidTokenFacts, "invalidTokenChanges": keys.invalidTokenChanges,
            "invalidTokenDivision": keys.invalidTokenDivision, "registrations": keys.registrations,
            "throttledTokens": keys.throttledTokens, "appPaused": keys.appPaused("<app>"),
            "appResumed": keys.appResumed("<app>"),
            "appRate": keys.appRate("<app>"),
            "campaignRate": keys.campaignRate("<name>"), "fairRate": keys.fairRate("<key>"),
            "providerToken": keys.providerToken(team: "<team>", key: "<key>"), "audit": keys.audit,
            "session": keys.session("<digest>"),
        ]
        return try keyTable("SharedKeys", names)
    }

    /// Returns the keys of a type, with the comments of its members. A comment begins with the Redis type in capitals.
    private static func keyTable(_ type: String, _ names: [String: String]) throws -> String {
        let file = Repository.root.appending(path: "Sources/PushQueue/Keys/\(type).swift")
        let lines = try String(contentsOf: file, encoding: .utf8).split(separator: "\n").map {
            $0.trimmingCharacters(in: .whitespaces)
        }
        var rows: [[String]] = []
        var comment: [String] = []
        for line in lines {
            if line.hasPrefix("/// ") {
                comment.append(String(line.dropFirst(4)))
                continue
            }
            defer { comment = [] }
            let text = comment.prefix { !$0.hasPrefix("- Parameter") }.joined(separator: " ")
            guard let match = text.wholeMatch(of: /(LIST|ZSET|HASH|STRING|SET|STREAM):? (?:of )?(.*)/),
                let member = line.firstMatch(of: /(?:let|func) (\w+)/)
            else { continue }
            guard let name = names[String(member.1)] else {
                throw DocumentationError(description: "\(type).\(member.1) has no key in DocumentationTables")
            }
            let plain = match.2.replacing(/``([^`]*)``/) { "`\($0.1)`" }
            rows.append([
                "`\(name)`", match.1 == "ZSET" ? "sorted set" : match.1.lowercased(),
                plain.prefix(1).uppercased() + plain.dropFirst(),
            ])
        }
        guard rows.count == names.count else {
            throw DocumentationError(description: "\(type) has \(rows.count) documented keys, not \(names.count)")
        }
        return table(["Key", "Type", "Contents"], rows)
    }

    // MARK: Members of a job

    /// Returns the members of a job in the order of its JSON Schema: those up to `truncate`, or the short forms of a payload.
    private static func members(shortForms: Bool) throws -> String {
        let file = Repository.root.appending(path: "Sources/PushJob/Schema/job.schema.json")
        let text = try String(contentsOf: file, encoding: .utf8)
        guard let schema = try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any],
            let properties = schema["properties"] as? [String: [String: Any]]
        else { throw DocumentationError(description: "the schema has no properties") }
        // A dictionary has no order, so the order comes from the text. The schema's definitions follow the properties.
        var named: Set<String> = []
        let order = text.matches(of: /\n    "(\w+)": \{/).map { String($0.1) }.filter {
            properties[$0] != nil && named.insert($0).inserted
        }
        guard Set(order) == Set(properties.keys), let first = order.firstIndex(of: "alert") else {
            throw DocumentationError(description: "the schema's properties are not indented by four spaces")
        }
        return table(
            ["Member", "Value", "Description"],
            (shortForms ? order[first...] : order[..<first]).map { name in
                let member = properties[name] ?? [:]
                return ["`\(name)`", value(member), member["description"] as? String ?? ""]
            })
    }

    private static func value(_ schema: [String: Any]) -> String {
        let names = [
            "text": "string", "texts": "array of strings", "flag": "boolean", "token": "device token",
            "duration": "duration", "time": "time", "moment": "time", "alert": "string or object",
        ]
        if let reference = schema["$ref"] as? String {
            let name = reference.split(separator: "/").last.map(String.init) ?? ""
            return names[name] ?? name
        }
        if let values = schema["enum"] as? [Any] {
            return values.filter { !($0 is NSNull) }.map { "`\($0)`" }.joined(separator: ", ")
        }
        if let choices = schema["anyOf"] as? [[String: Any]] {
            var seen: [String] = []
            for choice in choices.map(value) where !choice.isEmpty && !seen.contains(choice) { seen.append(choice) }
            return seen.joined(separator: ", ")
        }
        let types = (schema["type"] as? [String]) ?? [schema["type"] as? String].compactMap { $0 }
        // If the only allowed array is empty, it is PHP's form of an empty object.
        let isObject = schema["maxItems"] as? Int == 0
        var text = types.filter { $0 != "null" && !(isObject && $0 == "array") }.joined(separator: " or ")
        if text == "integer", let least = schema["minimum"], let most = schema["maximum"], "\(most)".count < 8 {
            text = "\(least) to \(most)"
        }
        if text == "string", let most = schema["maxLength"] { text += ", up to \(most) characters" }
        return text
    }
}

struct DocumentationError: Error, CustomStringConvertible { let description: String }

/// The commands of a program, as its argument parser describes them.
struct DocumentedCommand: Decodable {
    struct Name: Decodable { let kind: String, name: String }
    struct Argument: Decodable {
        let kind: String
        let names: [Name]?
        let valueName: String?
        let isOptional: Bool
        let isRepeating: Bool
        let abstract: String?
        let shouldDisplay: Bool?
    }
    private struct Dump: Decodable { let command: DocumentedCommand }

    let commandName: String
    let abstract: String?
    let discussion: String?
    let arguments: [Argument]?
    let shouldDisplay: Bool?
    let subcommands: [DocumentedCommand]?

    /// - Parameter help: the output of `--experimental-dump-help`.
    init(help: String) throws { self = try JSONDecoder().decode(Dump.self, from: Data(help.utf8)).command }

    static func read(_ program: String) async throws -> DocumentedCommand {
        try Self(help: try await EndToEnd.CommandLineTests.run(["--experimental-dump-help"], of: program).output)
    }

    /// The subcommands in the help.
    var children: [DocumentedCommand] {
        (subcommands ?? []).filter { $0.commandName != "help" && $0.shouldDisplay != false }
    }

    /// The names of the command's options and arguments.
    var names: Set<String> {
        Set(
            (arguments ?? []).flatMap {
                ($0.names ?? []).map(\.name) + ($0.kind == "positional" ? [$0.valueName ?? ""] : [])
            })
    }

    /// A table with a row for each command that does something.
    var markdown: String {
        "## \(commandName)\n\n"
            + DocumentationTables.table(["Command", "Purpose"], leaves().map { $1.row([commandName] + $0) }) + "\n"
    }

    /// The commands without subcommands, with their names.
    func leaves(_ path: [String] = []) -> [(path: [String], command: DocumentedCommand)] {
        children.isEmpty ? [(path, self)] : children.flatMap { $0.leaves(path + [$0.commandName]) }
    }

    private func row(_ path: [String]) -> [String] {
        let positionals = (arguments ?? []).filter { $0.kind == "positional" && $0.shouldDisplay ?? true }
            .map { argument in
                let name = "<\(argument.valueName ?? "")>" + (argument.isRepeating ? "..." : "")
                return argument.isOptional ? "[\(name)]" : name
            }
        return ["`\((path + positionals).joined(separator: " "))`", Self.escaped(abstract ?? "")]
    }

    private static func escaped(_ text: String) -> String {
        text.replacing(/`[^`]*`|[<*]/) { $0.0.count == 1 ? "\\\($0.0)" : String($0.0) }
    }
}
