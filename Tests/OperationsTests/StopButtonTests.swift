import NIOCore
import PushJob
import PushQueue
import Synchronization
import TestSupport
import Testing

@testable import Operations

/// `campaign cancel`, `pause`, `limit` and `guard` write one field in each queue, whatever the queues hold.
@Suite("The stop button")
struct StopButtonTests {
    private var scene: OperatorScene { SceneScope.scene }

    private static func change(_ change: JobCommands.Change, _ more: (String, String)?...) throws -> CampaignChange {
        let fields = Fields([("campaign", "sale")] + more.compactMap(\.self), refusesEmpty: true)
        return try CampaignChange(change, fields, now: 0)
    }

    private static func states(_ scene: OperatorScene, _ queues: String...) async throws -> [String] {
        var states: [String] = []
        for name in queues {
            let keys = try QueueKeys(queue: name)
            let commands = try await JobCommands.read(scene.fleet.client(for: keys.jobCommands), keys).commands
            states.append(commands[.campaign("sale")]?.state.rawValue ?? "-")
        }
        return states
    }

    /// Writes jobs of other campaigns, and behind them some of the campaign.
    private static func fill(_ scene: OperatorScene, _ queue: String, others: Int, of campaign: Int) throws {
        let other = OperatorScene.job("o", #","campaign":"other""#)
        let own = OperatorScene.job("s", #","campaign":"sale""#)
        for start in stride(from: 0, to: others, by: 1000) {
            let jobs = Array(repeating: other, count: min(1000, others - start))
            try scene.connection.run((["RPUSH", "push:{\(queue)}:jobs"] + jobs).map { Array($0.utf8) })
        }
        for _ in 0..<campaign { try scene.push(own, to: "push:{\(queue)}:jobs") }
    }

    @Test("A campaign is cancelled in each queue, also where none of it has ended and no job of it is yet", .scene)
    func allQueues() async throws {
        // The campaign has ended in a, waits behind other jobs in b, and is unknown in c.
        try scene.run("HSET", "push:{a}:campaign:sale", "total", "300", "delivered", "300")
        try Self.fill(scene, "b", others: 3000, of: 10)
        let desk = try scene.desk("a", "b", "c")
        let result = try await desk.perform(Self.change(.cancel(discard: false)))
        #expect(result.error == nil && result.doubt == nil && result.count == 3)
        #expect(try await Self.states(scene, "a", "b", "c") == ["cancelled", "cancelled", "cancelled"])
        for (change, state) in [(JobCommands.Change.uncancel, "-"), (.pause, "paused"), (.resume, "-")] {
            _ = try await desk.perform(Self.change(change))
            #expect(try await Self.states(scene, "a", "b", "c") == [state, state, state])
        }
        _ = try await desk.perform(Self.change(.limit(perSecond: nil), ("per_second", "7")))
        let guardChange = try CampaignGuardChange(
            ["campaign": "sale", "stop_if": "dead>1%"], reasons: [])
        _ = try await desk.perform(guardChange)
        for queue in ["a", "b", "c"] {
            #expect(
                try scene.run("HGET", "push:{\(queue)}:job-commands", "campaign:sale").text?.contains("7") == true)
            #expect(try scene.run("HEXISTS", "push:{\(queue)}:campaign:sale", "guard").number == 1)
        }
        // The other campaign gets no command.
        #expect(try scene.run("HEXISTS", "push:{b}:job-commands", "campaign:other").number == 0)
    }

    @Test(
        "A queue that can't be written is named with its key, and all others are stopped", .scene,
        arguments: [false, true])
    func unwritable(firstInOrder: Bool) async throws {
        let bad = firstInOrder ? "a" : "c"
        try Self.fill(scene, "b", others: 10, of: 10)
        try scene.run("SET", "push:{\(bad)}:job-commands", "x")
        try scene.run("SET", "push:{\(bad)}:campaign:sale", "x")
        try scene.run("SET", "push:{b}:dead", "a key of another type that no stop needs")
        let desk = try scene.desk("a", "b", firstInOrder ? "d" : "c")
        var changes: [any Change] = [
            try Self.change(.cancel(discard: false)), try Self.change(.pause),
            try Self.change(.limit(perSecond: nil), ("per_second", "7")),
        ]
        changes.append(
            try CampaignGuardChange(["campaign": "sale", "stop_if": "dead>1%"], reasons: []))
        for change in changes {
            let result = try await desk.perform(change)
            let key = change is CampaignGuardChange ? "campaign:sale" : "job-commands"
            #expect(result.error?.contains("push:{\(bad)}:\(key)") == true, "\(result)")
            #expect(result.parts.filter { $0.error != nil }.map(\.queue) == [bad])
        }
        #expect(try await Self.states(scene, "b") == ["cancelled"])
        #expect(try await scene.audit().first == "guard_campaign failed")
    }

    @Test(
        "A pause that is changed keeps its beginning, and one after a resumption has its own", .scene,
        arguments: [false, true])
    func pauseAgain(isOfApp: Bool) async throws {
        var desk = try scene.desk()
        desk.isForced = true
        let key = isOfApp ? "push:{shared}:apps:shop:paused" : "push:{default}:paused"
        let app = isOfApp ? [("app", "shop")] : []
        func pause(_ reason: String) async throws -> PauseRecord {
            _ = try await desk.perform(PauseChange(Fields(app + [("reason", reason)]), isOfApp: isOfApp))
            let pause = PauseRecord(ByteBuffer(string: try scene.run("GET", key).text ?? ""))
            #expect(pause.reason == reason)
            return pause
        }
        let past = 1_700_000_000_000
        try scene.run("SET", key, #"{"v":1,"reason":"first","since":\#(past)}"#)
        #expect(try await pause("second").since == Int64(past))
        _ = try await desk.perform(ResumeChange(Fields(app), isOfApp: isOfApp))
        #expect(try await pause("third").since != Int64(past))
    }

    @Test(
        "Pausing and resuming all queues does not stop at one that can't be read, and names that one", .scene,
        arguments: ["a", "c"])
    func pauseOfAll(bad: String) async throws {
        // The key has another type. Only the count of the notifications that are still sent reads it.
        try scene.run("SET", "push:{\(bad)}:retry", "x")
        var desk = try scene.desk("a", "b", "c")
        desk.isForced = true
        let paused = try await desk.perform(PauseChange([:], isOfApp: false))
        #expect(paused.count == 3 && paused.error == nil)
        let notes = paused.notes.filter { $0.contains("queue \(bad) is paused, but could not be read") }
        #expect(notes.count == 1 && paused.notes.count == 1, "\(paused.notes)")
        for queue in ["a", "b", "c"] {
            #expect(try scene.run("EXISTS", "push:{\(queue)}:paused").number == 1)
        }
        let resumed = try await desk.perform(ResumeChange([:], isOfApp: false))
        #expect(resumed.count == 3 && resumed.error == nil)
        for queue in ["a", "b", "c"] {
            #expect(try scene.run("EXISTS", "push:{\(queue)}:paused").number == 0)
        }
    }

    @Test(
        "The number of commands until the last queue is stopped does not depend on the number of jobs",
        arguments: ["cancel", "pause", "limit", "guard"])
    func cost(name: String) async throws {
        var calls: [[String: Int]] = []
        for others in [0, 4000] {
            try await OperatorScene.with { scene in
                let desk = try scene.desk("a", "b")
                // The first changes connect and load the scripts, so that these commands are not counted.
                _ = try await desk.perform(Self.change(.limit(perSecond: nil), ("off", "1")))
                _ = try await desk.perform(
                    CampaignGuardChange(["campaign": "other", "off": "1"], reasons: []))
                for queue in ["a", "b"] {
                    try Self.fill(scene, queue, others: others, of: 1)
                    for number in 0..<others / 10 {
                        let job = OperatorScene.job("r\(number)")
                        let wrapper = #"{"apns_worker":1,"attempt":1,"job":\#(job)}"#
                        try scene.run("ZADD", "push:{\(queue)}:retry", "\(4_000_000_000_000 + number)", wrapper)
                    }
                }
                try scene.run("CONFIG", "RESETSTAT")
                var control = ChangeControl()
                // The operator stops at once: only the writes of the fields are counted.
                control.isStopped = { true }
                let change: any Change =
                    switch name {
                    case "cancel": try Self.change(.cancel(discard: false))
                    case "pause": try Self.change(.pause)
                    case "limit": try Self.change(.limit(perSecond: nil), ("per_second", "7"))
                    default:
                        try CampaignGuardChange(["campaign": "sale", "stop_if": "dead>1%"], reasons: [])
                    }
                #expect(try await desk.perform(change, control).count == 2)
                calls.append(try scene.connection.calls())
            }
        }
        #expect(calls[0] == calls[1])
        #expect(calls[0].keys.allSatisfy { !["lrange", "zrangebyscore", "zcount"].contains($0) }, "\(calls[0])")
    }

    @Test(
        "A name that no queue knows is stopped, and doubted with a suggestion; before the first campaign it is not",
        .scene)
    func unknownName() async throws {
        let early = try await scene.desk("a").perform(Self.change(.pause))
        #expect(early.doubt == nil)
        try scene.run("DEL", "push:{a}:job-commands")
        try scene.push(OperatorScene.job("1", #","campaign":"sales""#), to: "push:{a}:jobs")
        var desk = try scene.desk("a")
        let result = try await desk.perform(Self.change(.cancel(discard: false)))
        #expect(result.doubt?.contains("did you mean sales?") == true && result.count == 1)
        #expect(try await Self.states(scene, "a") == ["cancelled"])
        await expectRefusal("did you mean sales?") {
            try scene.run("DEL", "push:{a}:job-commands")
            _ = try await scene.desk("a").perform(Self.change(.resume))
        }
        desk.isForced = true
        #expect(try await desk.perform(Self.change(.pause)).doubt == nil)
    }

    /// The number of times that a change asked if it must stop, and the answer was yes.
    private final class Times: Sendable {
        let count = Atomic(0)
    }

    @Test("Waiting for lanes reads neither jobs nor retries, and ends when the operator stops it", .scene)
    func confirmation() async throws {
        let now = Moment.now
        try scene.run("ZADD", "push:{a}:workers", "\(now + 60_000)", "w")
        try scene.run("HSET", "push:{a}:claimed:w", "1.x", OperatorScene.job("1"))
        for number in 0..<1000 {
            try scene.run("ZADD", "push:{a}:failed", "\(now + 60_000)", OperatorScene.job("\(number)"))
        }
        var control = ChangeControl()
        let start = ContinuousClock.now
        let asked = Times()
        control.isStopped = {
            let isStopped = ContinuousClock.now - start > .milliseconds(300)
            if isStopped { asked.count.add(1, ordering: .relaxed) }
            return isStopped
        }
        try scene.run("CONFIG", "RESETSTAT")
        let change = try Self.change(.pause)
        let desk = try scene.desk("a")
        let result = try await desk.apply(change, desk.plan(change), control)
        #expect(result.error?.contains("1 lane of queue a") == true)
        #expect((1...10).contains(asked.count.load(ordering: .relaxed)))
        let calls = try scene.run("INFO", "commandstats").text ?? ""
        #expect(!calls.contains("cmdstat_zrangebyscore") && !calls.contains("cmdstat_lrange"), "\(calls)")
        // Each reading reads only the lanes, and no member of another set.
        let numbers = try scene.connection.calls()
        #expect(numbers["zrange"] == numbers["hmget"], "\(numbers)")
    }

    // MARK: The stricter command

    private static func job(_ requeued: Int64? = nil) throws -> Job {
        let job = #"{"id":"order-7","campaign":"promo","token":"ab","alert":"x"}"#
        let body =
            requeued.map { #"{"apns_worker":1,"attempt":1,"requeues":1,"requeued":\#($0),"job":\#(job)}"# } ?? job
        return try JobDecoder.decode(ByteBuffer(string: body))
    }

    private static func read(_ id: String?, _ campaign: String?) throws -> JobCommands {
        var commands: [JobCommands.Target: JobCommands.Command] = [:]
        if let id { commands[.id("order-7")] = JobCommands.Command(ByteBuffer(string: id)) }
        if let campaign { commands[.campaign("promo")] = JobCommands.Command(ByteBuffer(string: campaign)) }
        return JobCommands(version: "1", commands)
    }

    private static let cancelled = #"{"state":"cancelled","since":1000,"at":1000}"#
    private static let discarded = #"{"state":"cancelled","discard":true,"since":1000,"at":1000}"#
    private static let paused = #"{"state":"paused","since":1000,"at":1000}"#
    private static let limited = #"{"per_second":5,"limited_at":1000,"at":1000}"#

    @Test(
        "Of the commands for an ID and for its campaign the stricter holds",
        arguments: [
            // The job was requeued after the cancellation of its ID.
            (cancelled, #"{"state":"cancelled","since":3000}"#, 2000, "campaign promo cancelled"),
            (cancelled, paused, 2000, "campaign promo paused"),
            (cancelled, limited, 2000, "campaign promo running 5"),
            (cancelled, nil, 2000, "job order-7 running"),
            (cancelled, limited, nil, "job order-7 cancelled"),
            (cancelled, paused, nil, "job order-7 cancelled"),
            (paused, cancelled, nil, "campaign promo cancelled"),
            (paused, limited, nil, "job order-7 paused"),
            (nil, cancelled, nil, "campaign promo cancelled"),
            (nil, cancelled, 2000, "campaign promo running"),
            // If both commands cancel the job, the cancellation that keeps the job decides.
            (discarded, cancelled, nil, "campaign promo cancelled"),
            (cancelled, discarded, nil, "job order-7 cancelled"),
        ] as [(String?, String?, Int64?, String)])
    func stricter(id: String?, campaign: String?, requeued: Int64?, expected: String) throws {
        let (target, command) = try #require(try Self.read(id, campaign).command(for: Self.job(requeued)))
        let limit = target == .campaign("promo") ? command.perSecond.map { " \($0)" } ?? "" : ""
        #expect("\(target) \(command.state.rawValue)\(limit)" == expected)
    }

    // MARK: Damaged commands

    @Test(
        "A command that can't be read stops the jobs, for workers and for scripts alike",
        arguments: [
            ("nonsense", "paused"), ("[]", "paused"), ("1", "paused"), ("", "paused"), (#"{"state":1}"#, "paused"),
            (#"{"state":"exploded"}"#, "paused"), (#"{"per_second":"5"}"#, "paused"), (#"{"per_second":-3}"#, "paused"),
            (#"{"per_second":1e999}"#, "paused"), (#"{"discard":"x","state":"cancelled"}"#, "cancelled"),
            (#"{"state":"cancelled","since":"soon"}"#, "cancelled"), (#"{"state":"cancelled","by":{}}"#, "cancelled"),
            (#"{"state":"paused","at":"x"}"#, "paused"), (#"{"state":"paused","since":[1]}"#, "paused"),
            // Not damaged.
            ("{}", "running"), (#"{"state":null,"by":1}"#, "running"), (#"{"state":"running"}"#, "running"),
            (#"{"per_second":5}"#, "running"), (#" {"other":[{}]}"#, "running"),
        ])
    func damaged(text: String, state: String) async throws {
        let command = JobCommands.Command(ByteBuffer(string: text))
        #expect(command.state.rawValue == state)
        #expect(!command.discards)
        // If the time of the cancellation is unknown, a requeued job is not sent, either.
        if state == "cancelled" {
            let commands = JobCommands(version: "1", [.campaign("promo"): command])
            #expect(
                try commands.command(for: Self.job(text.contains("since") ? 2000 : nil))?.command.state == .cancelled)
        }
        guard !text.isEmpty else { return }
        try await OperatorScene.with { scene in
            let keys = try QueueKeys()
            let client = try await scene.fleet.client(for: keys.jobCommands)
            // A change of another campaign's command does not remove the damaged command.
            for other in ["first", "second"] {
                try scene.run("HSET", keys.jobCommands, "campaign:promo", text, "version", "1")
                try await JobCommands.change(.pause, of: [.campaign(other)], by: "ada", client, keys)
                #expect(try scene.run("HGET", keys.jobCommands, "campaign:promo").text == text)
            }
            // The scripts read the state alike: a resume ends only a pause, and an uncancel only a cancellation.
            try await JobCommands.change(
                state == "cancelled" ? .resume : .uncancel, of: [.campaign("promo")], by: "ada", client, keys)
            #expect(try scene.run("HGET", keys.jobCommands, "campaign:promo").text == text)
            try await JobCommands.change(
                state == "cancelled" ? .uncancel : .resume, of: [.campaign("promo")], by: "ada", client, keys)
            #expect(
                (try scene.run("HEXISTS", keys.jobCommands, "campaign:promo").number == 0) == (state != "running"))
        }
    }

    @Test("Only a damaged command is a problem in status, until an operator gives it again", .scene)
    func damagedProblem() async throws {
        func problems() async throws -> [String] {
            let status = try await StatusReader(scene.fleet).read(scene.fleet.queues().keys)
            return status.problems.filter { $0.kind.name == "job_command_damaged" }.map(\.message)
        }
        try scene.push(OperatorScene.job("1"))
        try scene.run(
            "HSET", "push:{default}:job-commands", "campaign:sale", #"{"state":"halted"}"#, "campaign:good",
            #"{"state":"paused","since":1,"at":4000000000000}"#)
        #expect(
            try await problems() == [
                "queue default: the command campaign:sale cannot be read, so its jobs wait, or stay cancelled"
            ])
        _ = try await scene.desk().perform(Self.change(.resume))
        #expect(try await problems().isEmpty)
        #expect(try scene.run("HEXISTS", "push:{default}:job-commands", "campaign:good").number == 1)
    }

    @Test("A thousand cancelled IDs do not keep a campaign from being cancelled", .scene)
    func manyIDs() async throws {
        let keys = try QueueKeys()
        let client = try await scene.fleet.client(for: keys.jobCommands)
        let ids = (0..<1000).map { JobCommands.Target.id("\($0)") }
        try await JobCommands.change(.cancel(discard: false), of: ids, by: "ada", client, keys)
        _ = try await scene.desk().perform(Self.change(.cancel(discard: false)))
        #expect(try await Self.states(scene, "default") == ["cancelled"])
    }
}
