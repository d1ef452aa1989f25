import Operations
import PushJob
import PushQueue
import TestSupport
import Testing

@Suite("Changes of operators")
struct ChangeTests {
    private var scene: OperatorScene { SceneScope.scene }

    private static let now = Moment.now

    private static func jobs(_ kind: JobsChange.Kind, _ fields: Fields) throws -> JobsChange {
        try JobsChange(kind, fields, now: now)
    }

    // MARK: At most what was counted

    @Test(
        "at most the jobs that were counted are changed, whatever arrives before the answer", .scene,
        arguments: [false, true])
    func arrivals(postponed: Bool) async throws {
        func add(_ id: String) throws {
            if postponed {
                let due = Self.now + 3_600_000
                try scene.run(
                    "ZADD", "push:{default}:retry", "\(due)",
                    #"{"apns_worker":1,"attempt":1,"scheduled":true,"job":\#(OperatorScene.job(id))}"#)
            } else {
                try scene.push(OperatorScene.job(id))
            }
        }
        try add("first")
        let change = try Self.jobs(.discard, ["token": OperatorScene.token])
        let desk = try scene.desk()
        let plan = try await desk.plan(change)
        #expect(plan.count == 1 && plan.question?.hasPrefix("Delete 1 job of queue default") == true)
        for number in 0..<5 { try add("later-\(number)") }
        let result = try await desk.apply(change, plan)
        #expect(result.count == 1)
        let left =
            try (scene.run("LLEN", "push:{default}:jobs").number ?? 0)
            + (scene.run("ZCARD", "push:{default}:retry").number ?? 0)
        #expect(left == 5)
    }

    @Test("dead letters that were counted are deleted, and later ones stay, also if others were faster", .scene)
    func laterLetters() async throws {
        for id in ["a", "b", "c"] { try scene.bury(id, at: Self.now - 10_000) }
        let change = try DeadLettersChange(.delete, ["since": "15s"], now: Self.now)
        let desk = try scene.desk()
        let plan = try await desk.plan(change)
        #expect(plan.count == 3)
        // The operator answers after more than 15 s, and three dead letters were added since the count.
        for id in ["later-1", "later-2", "later-3"] { try scene.bury(id, at: Self.now + 5000) }
        let other = try DeadLettersChange(.requeue, ["id": "a"], now: Self.now)
        _ = try await scene.desk(by: "bob").perform(other)
        let result = try await desk.apply(change, plan)
        #expect(result.count == 2)
        #expect(
            result.notes == ["1 dead letter of queue default was no longer among the dead letters"],
            "\(result.notes)")
        #expect(try scene.dead() == ["later-1", "later-2", "later-3"])
        #expect(try await scene.audit() == ["delete_dead_letters done 2", "requeue done 1"])
    }

    @Test("a window of time is the same for all queues, however long the first takes", .scene)
    func window() async throws {
        for (queue, ids) in [("a", 8), ("b", 3)] {
            for number in 0..<ids { try scene.bury("\(queue)\(number)", at: Self.now - 2000, queue: queue) }
        }
        let fields: Fields = ["since": "3s", "rate": "4"]
        let change = try DeadLettersChange(.requeue, fields, now: Self.now)
        let desk = try scene.desk("a", "b")
        let plan = try await desk.plan(change)
        #expect(plan.parts.map(\.count) == [8, 3])
        // The change takes two seconds at this rate. Then all dead letters are older than three seconds.
        #expect(try await desk.apply(change, plan).parts.map(\.count) == [8, 3])
    }

    // MARK: Where the jobs are

    @Test("commands of a machine without a queue's format change the jobs that its workers claim", .scene)
    func sidekiq() async throws {
        try scene.joinSidekiq("sk")
        for id in ["one", "two", "three"] {
            let job =
                #"{"class":"PushJob","args":[\#(OperatorScene.job(id, #","campaign":"spring""#))],"jid":"j\#(id)"}"#
            try scene.push(job, to: "queue:sk", "LPUSH")
        }
        let desk = try scene.desk("sk")
        let plan = try await desk.plan(Self.jobs(.cancel, ["campaign": "spring"]))
        #expect(plan.count == 3)
        let cancelled = try await desk.apply(Self.jobs(.cancel, ["campaign": "spring"]), plan)
        #expect(cancelled.count == 3 && cancelled.sentence == "cancelled 3 jobs of queue sk (3 waiting)")
        #expect(try scene.run("LLEN", "queue:sk").number == 0)
        // The jobs return to the end of the list that the workers read.
        let requeue = try DeadLettersChange(.requeue, ["reason": "Cancelled"], now: Self.now)
        _ = try await desk.perform(requeue)
        #expect(try scene.run("LLEN", "queue:sk").number == 3)
        #expect(try scene.run("EXISTS", "push:{sk}:jobs").number == 0)
        // The limits of the workers apply here.
        #expect(try await scene.fleet.queue(QueueKeys(queue: "sk")).limits.maximumDeadLetters == 7)
    }

    @Test(
        "settings that contradict a queue's workers are refused, and those that agree are not",
        .scene(sidekiq: ["sk", "own"]))
    func contradiction() async throws {
        try scene.joinSidekiq("sk")
        #expect(try await scene.fleet.queue(QueueKeys(queue: "sk")).keys.jobs == "queue:sk")
        // No worker has written anything yet.
        #expect(try await scene.fleet.queue(QueueKeys(queue: "own")).keys.jobs == "queue:own")
        try scene.run("SET", "push:{own}:source", scene.run("GET", "push:{sk}:source").text ?? "")
        await #expect(throws: Fleet.Contradiction.self) { try await scene.fleet.queue(QueueKeys(queue: "own")) }
        let shown = try await scene.fleet.queue(QueueKeys(queue: "own"), ignoresSettings: true)
        #expect(shown.keys.jobs == "queue:sk")
        for garbage in ["", "{}", "[1]", #"{"list":"","head":"UP"}"#] {
            try scene.run("SET", "push:{own}:source", garbage)
            #expect(try await scene.fleet.queue(QueueKeys(queue: "own")).keys.jobs == "queue:own")
        }
    }

    @Test("a token is found in each spelling", .scene)
    func spellings() async throws {
        for (number, token) in TokenText.forms(ofHex: OperatorScene.token).enumerated() {
            let job = #"{"id":"d\#(number)","token":"\#(token)","alert":"x"}"#
            try scene.bury("d\(number)", job: job)
        }
        for spelling in [
            OperatorScene.token, OperatorScene.token.uppercased(), "APwTrf94USK0rSiAmjQgmCNBJBQhNICXh45XfJkd6PA=",
        ] {
            let change = try DeadLettersChange(.delete, ["token": spelling], now: Self.now)
            #expect(try await scene.desk().plan(change).count == 5, "\(spelling)")
        }
    }

    // MARK: Once

    @Test("an edited job replaces its dead letter once", .scene)
    func edit() async throws {
        try scene.bury("broken")
        let listing = try await scene.fleet.deadLetters(of: QueueKeys()).page(.list, .init(), after: nil, limit: 1)
        let key = try #require(listing.letters.first?.key)
        let change = try EditAndRequeue(["key": key, "job": OperatorScene.job("mended")])
        #expect(try await scene.desk().perform(change).sentence == "the edited job is enqueued")
        await expectRefusal("nothing was enqueued") { _ = try await scene.desk(by: "bob").perform(change) }
        #expect(try scene.texts("LRANGE", "push:{default}:jobs", "0", "-1") == [OperatorScene.job("mended")])
        #expect(try scene.dead().isEmpty)
        #expect(try await scene.audit() == ["edit_and_requeue refused", "edit_and_requeue done 1"])
    }

    @Test("a cancellation by id has an effect without a stored job, and its end is recorded, or refused", .scene)
    func cancelByID() async throws {
        let result = try await scene.desk().perform(Self.jobs(.cancel, ["id": "x"]))
        #expect(!result.hasNoEffect && result.sentence == "cancelled 0 jobs of queue default")
        #expect(try scene.run("HEXISTS", "push:{default}:job-commands", "id:x").number == 1)
        let undo = try UncancelJobs(["id": "x"])
        #expect(try await scene.desk().perform(undo).sentence.hasPrefix("ended the cancellation of 1 ID"))
        await expectRefusal("no job with this ID is cancelled") { _ = try await scene.desk().perform(undo) }
        #expect(try await scene.audit() == ["uncancel_jobs refused", "uncancel_jobs done", "cancel_jobs done 0"])
    }

    @Test("cancelled jobs are kept apart from dead letters, and neither evicts the other", .scene)
    func apart() async throws {
        try scene.run(
            "SET", "push:{default}:source",
            #"{"list":"push:{default}:jobs","head":"LEFT","format":"native","max_dead_letters":2,"max_dead_letter_age_ms":8000000,"max_dead_letter_bytes":9000000,"results":"off","max_results":0}"#
        )
        for id in ["a", "b"] { try scene.bury(id) }
        for id in ["1", "2", "3"] { try scene.push(OperatorScene.job(id)) }
        let cancelled = try await scene.desk().perform(Self.jobs(.cancel, ["token": OperatorScene.token]))
        #expect(cancelled.count == 3 && cancelled.notes.contains { $0.contains("1 older") })
        #expect(try scene.dead() == ["a", "b"])
        #expect(try scene.run("ZCARD", "push:{default}:cancelled").number == 2)
        func count(_ fields: Fields) async throws -> Int {
            try await scene.desk().plan(DeadLettersChange(.delete, fields, now: Self.now)).count
        }
        #expect(try await count(["all": "1"]) == 2)
        #expect(throws: FieldMistake.self) { try DeadLettersChange(.delete, [:], now: Self.now) }
        #expect(try await count(["reason": "Cancelled"]) == 2)
        // A filter by ID or token also selects cancelled jobs.
        #expect(try await count(["token": OperatorScene.token]) == 4)
        #expect(try await count(["id": "3"]) == 1)
    }

    // MARK: Names

    @Test(
        "names that are not known are refused with a suggestion, and recorded as refused",
        .scene(configured: ["default", "bulk"]))
    func names() async throws {
        try scene.push(OperatorScene.job("1", #","campaign":"spring-sale""#))
        try scene.push(OperatorScene.job("2"), to: "push:{bulk}:jobs")
        await expectRefusal("did you mean bulk?") {
            _ = try await scene.desk().plan(Self.jobs(.move, ["id": "1", "to_queue": "bluk"]))
        }
        await expectRefusal("a queue can't be named a,b: a comma separates") {
            _ = try await scene.desk().plan(Self.jobs(.move, ["id": "1", "to_queue": "a,b"]))
        }
        await expectRefusal("a queue can't be named a:5: a number behind a colon is a weight") {
            _ = try await scene.desk().plan(Self.jobs(.move, ["id": "1", "to_queue": "a:5"]))
        }
        await expectRefusal("did you mean shop?") {
            var desk = try scene.desk()
            desk.configuredApps = ["shop"]
            _ = try await desk.plan(PauseChange(Fields([("app", "shpo")]), isOfApp: true))
        }
        await expectRefusal("no worker has a lease") {
            _ = try await scene.desk().plan(WorkersChange(.stop, ["worker": "vm"]))
        }
        #expect(
            try await scene.audit() == [
                "stop refused", "pause refused", "move_jobs refused", "move_jobs refused", "move_jobs refused",
            ])
        #expect(try scene.run("EXISTS", "push:{default}:job-commands", "push:{bluk}:jobs").number == 0)
        let known = try CampaignChange(
            .cancel(discard: true), ["campaign": "spring-sale", "discard": "1"], now: 0)
        let plan = try await scene.desk().plan(known)
        #expect(plan.question?.contains("This cannot be undone.") == true && plan.parts.count == 1)
    }

    @Test("a change that the state does not allow is refused, and is not recorded as done", .scene)
    func state() async throws {
        try scene.push(OperatorScene.job("1", #","campaign":"c""#))
        func change(_ change: JobCommands.Change) throws -> CampaignChange {
            try CampaignChange(change, ["campaign": "c"], now: Self.now)
        }
        _ = try await scene.desk().perform(change(.cancel(discard: false)))
        await expectRefusal("is cancelled; to send it after all") {
            _ = try await scene.desk(by: "bob").perform(change(.pause))
        }
        await expectRefusal("is cancelled") { _ = try await scene.desk().perform(change(.resume)) }
        #expect(
            try await scene.audit() == [
                "resume_campaign refused", "pause_campaign refused", "cancel_campaign done",
            ])
    }

    @Test("a guard is set in each queue and removed again, and each change is recorded", .scene)
    func guarding() async throws {
        for queue in ["a", "b"] {
            try scene.run("HSET", "push:{\(queue)}:campaign:spring", "total", "100", "delivered", "40")
            try scene.run("ZADD", "push:{\(queue)}:campaigns", "1", "spring")
        }
        let desk = try scene.desk("a", "b")
        let fields: Fields = ["campaign": "spring", "stop_if": "dead>1%,retried>20%", "min": "50"]
        let set = try await desk.perform(CampaignGuardChange(fields, reasons: []))
        #expect(set.parts.map(\.queue) == ["a", "b"])
        #expect(
            set.parts.first?.sentence
                == "campaign spring in queue a is paused if dead>1%,retried>20%, from 50 notifications on")
        for status in try await scene.campaign("spring", in: desk) {
            #expect(status.stopIf == "dead>1%,retried>20%" && status.stopMin == 50 && status.stoppedAt == nil)
            #expect(status.page(now: Self.now).contains { $0.hasPrefix("guard      dead>1%") })
        }
        let off = try CampaignGuardChange(["campaign": "spring", "off": "1"], reasons: [])
        #expect(try await desk.perform(off).count == 2)
        #expect(try await desk.perform(off).hasNoEffect)
        #expect(
            try await scene.campaign("spring", in: desk).allSatisfy { $0.stopIf == nil })
        // An unknown name is doubted if queues know other campaigns.
        let unknown = try CampaignGuardChange(
            ["campaign": "sprin", "stop_if": "dead>1%"], reasons: [])
        #expect(try await desk.perform(unknown).doubt?.contains("did you mean spring?") == true)
        var forced = desk
        forced.isForced = true
        #expect(try await forced.perform(unknown).count == 2)
        let audit = try await scene.audit()
        #expect(
            audit == [
                "guard_campaign done", "guard_campaign done", "guard_campaign done", "guard_campaign done",
            ], "\(audit)")
    }

    @Test(
        "a guard needs rules or their end",
        arguments: [
            ([:], "pass either stop_if or off"), (["stop_if": "dead>1%", "off": "1"], "pass either stop_if or off"),
            (["stop_if": "dead>1"], "stop_if must be rules such as"),
            (["stop_if": "dead>1%", "min": "0"], "min must be"),
        ] as [([String: String], String)])
    func guardFields(fields: [String: String], words: String) {
        let all = ["campaign": "c"].merging(fields) { $1 }.map { ($0.key, $0.value) }
        let mistake = #expect(throws: FieldMistake.self) { _ = try CampaignGuardChange(Fields(all), reasons: []) }
        #expect(mistake?.text(.member).contains(words) == true, "\(mistake?.text(.member) ?? "")")
    }

    @Test("status names a campaign that its guard has paused, and not one that an operator has paused", .scene)
    func stoppedCampaigns() async throws {
        for (campaign, by) in [("spring", "guard"), ("autumn", "ada")] {
            try scene.run(
                "HSET", "push:{default}:job-commands", "campaign:\(campaign)",
                #"{"state":"paused","at":1e15,"by":"\#(by)","reason":"dead is 2.0% of 1000, above 1%"}"#)
        }
        let status = try await StatusReader(scene.fleet).read(scene.fleet.queues().keys)
        let found = status.findProblems().filter { $0.kind.name == "campaign_stopped" }
        #expect(found.map(\.subject) == ["spring"])
        #expect(
            found.first?.message
                == "campaign spring is paused by its guard in default: dead is 2.0% of 1000, above 1%")
    }

    // MARK: Fields

    @Test(
        "fields that are not valid are refused by their names",
        arguments: [
            (["reason": String(repeating: "x", count: 201)], "reason must have"),
            (["reason": "e" + String(repeating: "\u{301}", count: 2000)], "reason must have"),
            (["campaign": String(repeating: "c", count: 101)], "the name of a campaign"),
            (["campaign": ""], "campaign is missing"),
        ] as [([String: String], String)])
    func campaignFields(fields: [String: String], words: String) {
        let all = ["campaign": "c"].merging(fields) { $1 }.map { ($0.key, $0.value) }
        let mistake = #expect(throws: FieldMistake.self) { _ = try CampaignChange(.pause, Fields(all), now: 0) }
        #expect(mistake?.text(.member).contains(words) == true, "\(mistake?.text(.member) ?? "")")
    }

    @Test("flags and members are spelled as their users write them")
    func spelling() throws {
        func mistake(_ name: String, _ value: String) -> FieldMistake? {
            #expect(throws: FieldMistake.self, "\(name) was accepted") {
                _ = try JobFilter(Fields([(name, value)], refusesEmpty: true), now: 0)
            }
        }
        let soon = mistake("due_before", "soon")
        #expect(soon?.text(.flag).hasPrefix("--due-before must be a time") == true)
        #expect(soon?.text(.member).hasPrefix("due_before must be a time") == true)
        for (name, value, words) in [
            ("reason", "", "--reason is empty; set a value or omit it"), ("key", "xyz", "--key is xyz"),
            ("state", "waitng", "did you mean waiting?"), ("since", "later", "--since must be a duration ago"),
            ("token", "00fc13ad…", "the beginning of a token"), ("token", "00fc13ad", "the beginning of a token"),
        ] {
            let text = mistake(name, value)?.text(.flag)
            #expect(text?.contains(words) == true, "\(text ?? "")")
        }
    }

    @Test("times count back from the time of Redis that is passed, and become absolute")
    func times() throws {
        let filter = try DeadLetterFilter(Fields([("since", "1h"), ("until", "1700000000")]), now: 1_700_000_600_000)
        #expect(filter.since == 1_699_997_000_000 && filter.until == 1_700_000_000_000)
        #expect(throws: FieldMistake.self) {
            try DeadLetterFilter(Fields([("since", "1h"), ("until", "2h")]), now: 1_700_000_600_000)
        }
    }
}
