import Foundation
import NIOCore
import PushQueue
import TestSupport
import Testing

@testable import Operations

/// Names that look alike: each command changes what it names, and not its twin.
@Suite("Names with a twin")
struct TwinNameTests {
    private static let now = Int64(Date().timeIntervalSince1970 * 1000)

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

    private static func perform(_ change: some Change, _ desk: Desk) async throws -> ChangeResult {
        try await desk.perform(change)
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

    /// Returns what the queue has of a name: the bytes of its jobs, the due times, dead letters and commands.
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
            ("guard", try CampaignGuardChange(fields([campaign, ("stop_if", "dead>1%")]))),
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

    @Test("A change of a name changes what it names, and leaves its twin as it is", arguments: pairs)
    func twins(name: String, twin: String) async throws {
        try await OperatorScene.with(configured: ["default", "bulk"]) { scene in
            for (words, change) in try Self.changes(name) {
                try Self.fill(scene, [name, twin])
                let (own, others) = (try Self.everything(name, scene), try Self.everything(twin, scene))
                #expect(own.count == 6 && others.count == 6)
                _ = try await Self.perform(change, scene.desk())
                #expect(try Self.everything(twin, scene) == others, "\(words)")
                #expect(try Self.everything(name, scene) != own, "\(words)")
            }
        }
    }

    @Test("A status and the command that a message names are about one name", arguments: pairs)
    func status(name: String, twin: String) async throws {
        try await OperatorScene.with { scene in
            try Self.fill(scene, [name, twin])
            let desk = try scene.desk()
            _ = try await desk.perform(
                CampaignChange(.cancel(discard: false), Self.fields([("campaign", name)]), now: Self.now))
            for (one, state) in [(name, "cancelled"), (twin, nil)] {
                let found = try await CampaignStatus.read(one, in: desk.queues, desk.fleet)
                #expect(found.first?.state == state)
                #expect(found.first.map { Name($0.campaign) == Name(one) } ?? true)
            }
            var unread = UnreadParts()
            let latest = try await CampaignStatus.latest(20, in: desk.queues, desk.fleet, &unread)
            #expect(Set(latest.map { Name($0.campaign) }) == [Name(name), Name(twin)])
            let states = latest.map { "\(Name($0.campaign) == Name(name)) \($0.state)" }.sorted()
            #expect(states == ["false running", "true cancelled"])
            // The command that a message names is about the name, too.
            let refusal = try await #require(throws: ChangeRefusal.self) {
                try await desk.perform(CampaignChange(.pause, Self.fields([("campaign", name)]), now: Self.now))
            }
            let command = desk.fleet.access.command(["campaign", "requeue"], name)
            #expect(Array(refusal.message.utf8).count >= command.utf8.count)
            #expect(refusal.message.utf8.reversed().starts(with: command.utf8.reversed()))
        }
    }
}
