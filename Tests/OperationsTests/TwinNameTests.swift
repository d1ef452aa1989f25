import Foundation
import NIOCore
import PrintableText
import PushQueue
import TestSupport
import Testing

@testable import Operations

@Suite("Names with a twin")
struct TwinNameTests {
    private var scene: OperatorScene { SceneScope.scene }

    private static let now = Moment.now

    private static let pairs = [
        ("sale", "sale "), ("sale ", "sale"), ("sale", "\u{FEFF}sale"), ("sale\u{200F}", "sale"),
        ("sale", "sale\u{A0}"),
        ("caf\u{E9}", "cafe\u{301}"), ("cafe\u{301}", "caf\u{E9}"), ("\u{2126}", "\u{3A9}"),
    ]

    private static func fields(_ fields: [(String, String)]) -> Fields { Fields(fields, refusesEmpty: true) }

    private static func job(_ name: String) -> String {
        let token = OperatorScene.token
        return
            #"{"id":"\#(name)","campaign":"\#(name)","app":"\#(name)","topic":"\#(name)","token":"\#(token)","alert":"x"}"#
    }

    /// Fills a queue with a waiting, a later and a dead job of each name.
    private static func fill(_ scene: OperatorScene, _ names: [String]) throws {
        try scene.run("FLUSHALL")
        try scene.push(OperatorScene.job("x"), to: "push:{bulk}:jobs")
        for name in names {
            try scene.push(job(name))
            let wrapper = #"{"apns_worker":1,"attempt":1,"job":\#(job(name))}"#
            try scene.run("ZADD", "push:{default}:retry", "\(now + 3_600_000)", wrapper)
            try scene.bury(name, job: job(name))
        }
    }

    /// Returns everything that the queue has of a name: the bytes of its jobs, due times, dead letters and commands.
    private static func everything(_ name: String, _ scene: OperatorScene) throws -> [String] {
        func own(_ texts: [String]) -> [String] {
            let wanted = Array(job(name).utf8)
            return texts.filter { text in
                let bytes = Array(text.utf8)
                return bytes.count >= wanted.count
                    && (0...bytes.count - wanted.count).contains { bytes[$0..<$0 + wanted.count].elementsEqual(wanted) }
            }
        }
        var found = own(try scene.texts("LRANGE", "push:{default}:jobs", "0", "-1")).map { "list " + $0 }
        for later in own(try scene.texts("ZRANGE", "push:{default}:retry", "0", "-1")) {
            found.append("later \(later) \(try scene.run("ZSCORE", "push:{default}:retry", later).text ?? "")")
        }
        found += own(try scene.texts("ZRANGE", "push:{default}:dead", "0", "-1")).map { "dead " + $0 }
        for kind in ["campaign", "id"] {
            found.append(try scene.run("HGET", "push:{default}:job-commands", "\(kind):\(name)").text ?? "no \(kind)")
        }
        found.append(try scene.run("HGET", "push:{default}:campaign:\(name)", "guard").text ?? "no guard")
        return found
    }

    private static func changes(_ name: String) throws -> [(words: String, change: any Change)] {
        let campaign = ("campaign", name)
        var changes: [(words: String, change: any Change)] = [
            ("cancel", try CampaignChange(.cancel(discard: false), fields([campaign]), now: now)),
            ("pause", try CampaignChange(.pause, fields([campaign]), now: now)),
            ("limit", try CampaignChange(.limit(perSecond: nil), fields([campaign, ("per_second", "5")]), now: now)),
            ("guard", try CampaignGuardChange(fields([campaign, ("stop_if", "dead>1%")]), reasons: [])),
        ]
        for filter in ["campaign", "id", "app"] {
            for kind in JobsChange.Kind.allCases {
                let more = kind == .move ? [("to_queue", "bulk")] : []
                changes.append(("\(kind) \(filter)", try JobsChange(kind, fields([(filter, name)] + more), now: now)))
            }
            for kind in DeadLettersChange.Kind.allCases {
                changes.append(("\(kind) \(filter)", try DeadLettersChange(kind, fields([(filter, name)]), now: now)))
            }
        }
        return changes
    }

    @Test(
        "A change of a name changes what it names, and leaves its twin as it is",
        .scene(configured: ["default", "bulk"]), arguments: pairs)
    func twins(name: String, twin: String) async throws {
        for (words, change) in try Self.changes(name) {
            try Self.fill(scene, [name, twin])
            let (own, others) = (try Self.everything(name, scene), try Self.everything(twin, scene))
            #expect(own.count == 6 && others.count == 6)
            _ = try await scene.desk().perform(change)
            #expect(try Self.everything(twin, scene) == others, "\(words)")
            #expect(try Self.everything(name, scene) != own, "\(words)")
        }
    }

    @Test(
        "A change of a campaign or app with a twin names both, and a dashboard's or command's question does before",
        .scene(configured: ["default", "bulk"]),
        arguments: pairs)
    func named(name: String, twin: String) async throws {
        func desk(_ app: String) throws -> Desk {
            var desk = try scene.desk()
            (desk.configuredApps, desk.isForced) = ([app], true)
            return desk
        }
        let ofApp = [
            ("pause of an app", try PauseChange(Self.fields([("app", name)]), isOfApp: true) as any Change)
        ]
        for (words, change) in try Self.changes(name) + ofApp where !words.hasSuffix(" id") {
            try Self.fill(scene, [name])
            #expect(try await desk(name).twinNotes(of: change).isEmpty, "\(words)")
            try Self.fill(scene, [name, twin])
            // The desk knows the twin app from its settings, because names of workers' apps are ASCII.
            let notes = try await desk(twin).twinNotes(of: change)
            #expect(
                notes.count == 1 && notes[0].contains(name.shown) && notes[0].contains(twin.shown),
                "\(words): \(notes)")
            #expect(name.shown.utf8.elementsEqual(twin.shown.utf8) == false)
            let result = try await desk(twin).perform(change)
            #expect(result.notes.contains(notes[0]), "\(words)")
        }
    }

    @Test("A copied command has the bytes of the name in every shell", arguments: ["/bin/bash", "/bin/dash"])
    func pasted(shell: String) async throws {
        let names =
            Self.pairs.flatMap { [$0.0, $0.1] } + [
                "it's", "'", "$(touch x)`id`\\", "-rf", "a\tb", "\u{202E}x",
                // Swift reads a dash or quotation mark and its combining mark as one other character.
                "a'\u{301}; echo pasted; '\u{301}", "-\u{301}x", "'\u{FE0F}",
            ]
        let queue = "a'\u{301}b"
        let access = FleetAccess([(option: "--queue", variable: "X", text: queue)])
        for name in names {
            let isDashed = name.utf8.first == UInt8(ascii: "-")
            let all: [(command: String, words: [String])] = [
                (
                    access.command(["campaign", "requeue"], name),
                    isDashed
                        ? ["campaign", "requeue", "--queue", queue, "--", name]
                        : ["campaign", "requeue", name, "--queue", queue]
                ),
                (
                    access.command(["jobs", "cancel"] + FleetAccess.option("--campaign", name)),
                    ["jobs", "cancel"] + (isDashed ? ["--campaign=" + name] : ["--campaign", name]) + [
                        "--queue", queue,
                    ]
                ),
            ]
            for (command, words) in all {
                #expect(command.hasPrefix("apns-worker "))
                let show = "printf '%s\\0' \(command.dropFirst("apns-worker ".count))\n"
                let process = try ChildProcess(shell, [], input: Data(show.utf8))
                #expect(try await process.wait() == .exited(0), "\(process.errors)")
                let read = process.output.utf8.split(separator: 0).map(Array.init)
                #expect(read == words.map { Array($0.utf8) }, "\(command)")
            }
        }
    }

    @Test("A status and the command that a message names are about one name", .scene, arguments: pairs)
    func status(name: String, twin: String) async throws {
        try Self.fill(scene, [name, twin])
        let desk = try scene.desk()
        _ = try await desk.perform(
            CampaignChange(.cancel(discard: false), Self.fields([("campaign", name)]), now: Self.now))
        for (one, state) in [(name, CampaignStatus.State.cancelled), (twin, nil)] {
            let found = try await scene.campaign(one, in: desk)
            #expect(found.first?.state == state)
            #expect(found.first.map { Name($0.campaign) == Name(one) } ?? true)
        }
        var unread = UnreadParts()
        let latest = try await CampaignStatus.latest(20, in: desk.queues, desk.fleet, &unread)
        #expect(Set(latest.map { Name($0.campaign) }) == [Name(name), Name(twin)])
        let states = latest.map { "\(Name($0.campaign) == Name(name)) \($0.state)" }.sorted()
        #expect(states == ["false running", "true cancelled"])
        // The command in a message names the same campaign.
        let refusal = try await #require(throws: ChangeRefusal.self) {
            try await desk.perform(CampaignChange(.pause, Self.fields([("campaign", name)]), now: Self.now))
        }
        let command = desk.fleet.access.command(["campaign", "requeue"], name)
        #expect(Array(refusal.message.utf8).count >= command.utf8.count)
        #expect(refusal.message.utf8.reversed().starts(with: command.utf8.reversed()))
    }
}
