import HTTPPort
import Logging
import NIOCore
import NIOPosix
import PushQueue
import Redis
import Synchronization
import TestSupport
import Testing
import WebPages

@testable import Dashboard
@testable import Operations

private let olga = Visitor(name: "olga", role: .operator, seesContent: true, formToken: "a1")
private let otto = Visitor(name: "otto", role: .operator, seesContent: true, formToken: "b2")
private let vic = Visitor(name: "vic", role: .viewer, seesContent: false, formToken: "c3")

@Suite("The opposite of an action")
struct UndoTests {
    private static func pause(_ before: PauseRecord? = nil) -> ChangeResult {
        var part = ChangePart("q", count: 1)
        part.report = PauseReport(queue: "q", before: before)
        return ChangeResult([part])
    }

    private static func campaign(_ before: String..., now: Int? = nil, limits: [Int?] = [nil]) -> ChangeResult {
        ChangeResult(
            limits.flatMap { limit in
                before.map { state in
                    var part = ChangePart("q", count: 1)
                    part.report = CampaignReport(
                        queue: "q", campaign: "c", state: "running", before: state, limitPerSecond: now,
                        limitBefore: limit, outcomes: [:], inFlight: nil, unconfirmed: 0)
                    return part
                }
            })
    }

    private static func workers(_ names: String...) -> ChangeResult {
        ChangeResult(
            names.map { name in
                var part = ChangePart(count: 1)
                part.subject = name
                return part
            })
    }

    private static func added(_ tokens: [String]) -> ChangeResult {
        var part = ChangePart(count: tokens.count)
        part.changed = tokens
        return ChangeResult([part])
    }

    private static let byHand = PauseRecord(reason: "wrong text", by: "ada")
    private static let reasonless = PauseRecord(reason: "by ada", by: "ada")
    private static let other = ChangeResult([ChangePart("q", count: 3)])
    private static let many = (0...Undo.maximum).map { "\($0)" }

    private static let table: [(action: String, form: String, result: ChangeResult, expected: String)] = [
        ("pause-queue", "queue=q&reason=x", pause(), "resume-queue queue=q"),
        ("pause-queue", "queue=q&reason=x", pause(byHand), "pause-queue queue=q reason=wrong text"),
        ("pause-queue", "queue=q&reason=x", pause(reasonless), "pause-queue queue=q"),
        ("resume-queue", "queue=q", pause(byHand), "pause-queue queue=q reason=wrong text"),
        ("resume-queue", "queue=q", pause(), ""), ("pause-app", "app=shop", pause(), "resume-app app=shop"),
        ("resume-app", "app=shop", pause(byHand), "pause-app app=shop reason=wrong text"),
        ("quiet-worker", "worker=vm", workers("vm.1"), "work-worker worker=vm.1"),
        ("work-worker", "all=1", workers("vm.1", "vm.2"), "quiet-worker worker=vm.1 worker=vm.2"),
        ("stop-worker", "worker=vm", workers("vm.1"), ""),
        ("pause-campaign", "campaign=c", campaign("running", "running"), "resume-campaign campaign=c"),
        ("pause-campaign", "campaign=c", campaign("running", "paused"), ""),
        ("resume-campaign", "campaign=c", campaign("paused"), "pause-campaign campaign=c"),
        ("limit-campaign", "campaign=c&per_second=5", campaign("running", now: 5), "limit-campaign campaign=c off=1"),
        (
            "limit-campaign", "campaign=c", campaign("running", limits: [7, 7]),
            "limit-campaign campaign=c per_second=7"
        ),
        ("limit-campaign", "campaign=c&per_second=7", campaign("running", now: 7, limits: [7]), ""),
        ("limit-campaign", "campaign=c&per_second=5", campaign("running", now: 5, limits: [7, 8]), ""),
        ("cancel-campaign", "campaign=c", other, "requeue-campaign campaign=c"),
        ("cancel-campaign", "campaign=c&discard=1", other, ""),
        ("requeue-campaign", "campaign=c", other, "cancel-campaign campaign=c"),
        ("change-jobs", "action=cancel&id=x&id=y&queue=q", other, "uncancel-jobs id=x id=y queue=q"),
        ("change-jobs", "action=cancel&id=x&app=shop", other, ""),
        ("change-jobs", "action=cancel&key=0123456789", other, ""), ("change-jobs", "action=discard&id=x", other, ""),
        ("change-jobs", "action=run&id=x", other, ""),
        ("uncancel-jobs", "id=x", other, "change-jobs id=x action=cancel"),
        ("add-invalid-tokens", "tokens=ab cd", added(["ab"]), "remove-invalid-tokens token=ab"),
        ("add-invalid-tokens", "tokens=ab", added([]), ""), ("add-invalid-tokens", "tokens=…", added(many), ""),
        ("remove-invalid-tokens", "token=ab", other, ""), ("change-dead-letters", "action=delete", other, ""),
        ("edit-and-requeue", "queue=q", other, ""), ("forget-devices", "tokens=ab", other, ""),
    ]

    private static func undo(_ action: String, _ form: String, _ result: ChangeResult) throws -> Undo? {
        try #require(ActionKind.all.first { $0.name == action }).undo(Fields(form), result)
    }

    @Test("restores the former state with an action that exists, or is not offered")
    func table() throws {
        for (action, form, result, expected) in Self.table {
            let undo = try Self.undo(action, form, result)
            let words = undo.map { ([$0.action] + $0.fields.map { "\($0.name)=\($0.value)" }).joined(separator: " ") }
            #expect(words ?? "" == expected, "\(action) \(form)")
            #expect(undo.map { undo in ActionKind.all.contains { $0.name == undo.action } } ?? true)
        }
    }

    @Test("is not offered for an action without an effect, or with an error")
    func noEffect() throws {
        var result = Self.pause()
        result.hasNoEffect = true
        #expect(try Self.undo("pause-queue", "queue=q", result) == nil)
        result.hasNoEffect = false
        result.parts[0].error = "no answer"
        #expect(try Self.undo("pause-queue", "queue=q", result) == nil)
    }
}

@Suite("Notes about actions")
struct NotesTests {
    @Test("A note is shown once, and only with the session that made it")
    func once() throws {
        let notes = Notes()
        let id = try #require(notes.add(Note("queue q is paused"), for: olga))
        #expect(notes.take(id, by: otto) == nil && notes.take("0", by: olga) == nil)
        #expect(notes.take(id, by: olga)?.message == "queue q is paused")
        #expect(notes.take(id, by: olga) == nil)
        #expect(notes.add(Note("x"), for: Visitor(role: .operator, seesContent: true)) == nil)
    }

    @Test("Notes are kept for a time, and up to a number")
    func bounds() throws {
        let (notes, now) = (Notes(), ContinuousClock.now)
        let old = try #require(notes.add(Note("old"), for: olga, at: now))
        let late = now + Notes.lifetime + .seconds(1)
        #expect(notes.take(old, by: olga, at: late) == nil)
        func visitor(_ number: Int) -> Visitor {
            Visitor(role: .operator, seesContent: true, formToken: "\(number)")
        }
        let ids = (0...Notes.maximum).compactMap { notes.add(Note("\($0)"), for: visitor($0), at: late) }
        #expect(Set(ids).count == Notes.maximum + 1)
        let found = ids.enumerated().compactMap { notes.take($1, by: visitor($0), at: late)?.message }
        #expect(found == (1...Notes.maximum).map { "\($0)" })
    }

    @Test("The notes of one session do not push out those of others, and are not as long as a request")
    func boundsOfSession() throws {
        let notes = Notes()
        let others = try #require(notes.add(Note("x"), for: otto))
        // A viewer gets a note for each action that is refused.
        let own = (0..<2 * Notes.maximum).compactMap { notes.add(Note("\($0)"), for: vic) }
        #expect(notes.take(others, by: otto)?.message == "x")
        #expect(own.compactMap { notes.take($0, by: vic) }.count == Notes.maximumOfSession)
        #expect(Note(String(repeating: "x", count: 1 << 20)).message.count < 3000)
    }

    @Test(
        "The ID of a note is separated from the rest of an address",
        arguments: [
            ("/jobs", "/jobs", nil), ("/jobs?note=ab", "/jobs", "ab"), ("/jobs?a=1&note=ab&b=2", "/jobs?a=1&b=2", "ab"),
            ("/jobs?footnote=x", "/jobs?footnote=x", nil), ("/?note=a&note=b", "/", "a"),
        ] as [(String, String, String?)])
    func separated(path: String, rest: String, id: String?) {
        let found = Notes.separated(path)
        #expect(found.path == rest && found.id == id)
    }

    @Test(
        "An action returns to the page of this site that sent it",
        arguments: [
            ("http://push.example/jobs?state=waiting&note=1#top", "", "/jobs?state=waiting"),
            ("https://PUSH.example/", "", "/"), ("http://push.example/push/apps", "/push", "/apps"),
            ("http://push.example/apps", "/push", nil), ("http://push.example.evil/apps", "", nil),
            ("http://evil/push.example/", "", nil), ("http://push.example", "", nil), (nil, "", nil), ("x", "", nil),
            ("http://push.example/try/check", "", nil), ("http://push.example/actions/pause-queue", "", nil),
            ("http://push.example/runs/ab", "", nil), ("http://push.example/try", "", "/try"),
        ] as [(String?, String, String?)])
    func origin(referer: String?, base: String, expected: String?) {
        #expect(Site.origin(referer, host: "push.example", base: base) == expected)
        #expect(Site.origin(referer, host: "", base: base) == nil)
        // Behind a proxy, `Host` may differ, but the browser has reported that the page is of this site.
        if expected != nil { #expect(Site.origin(referer, host: nil, base: base) == expected) }
    }
}

@Suite("Bulk actions in view")
struct NoticesTests {
    /// A change of three things, which runs until `isOpen`.
    private struct Slow: Change {
        let action = AuditEntry.Action.cancelJobs
        /// A part of all texts of the change.
        var detail = ""
        let isOpen: @Sendable () -> Bool

        func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
            var plan = ChangePlan("queue q", parts: [ChangePart("q", count: 3)])
            plan.question = "Cancel 3 jobs\(detail)?"
            (plan.command, plan.verb) = ("Cancel 3 <jobs>\(detail)", "cancelled")
            if !detail.isEmpty { plan.notes = ["note\(detail)"] }
            return plan
        }

        func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
            control.progress(1)
            while !isOpen(), !control.isStopped() { try await Task.sleep(for: .milliseconds(5)) }
            var part = ChangePart("q", count: 3)
            part.sentence = "cancelled 3 jobs\(detail)"
            if !detail.isEmpty { part.notes = ["note\(detail)"] }
            return ChangeResult([part])
        }
    }

    private static func with(base: String = "", _ body: (Site) async throws -> Void) async throws {
        // A port without a Redis.
        let topology = try RedisTopology(url: "redis://127.0.0.1:1")
        let logger = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() })
        let fleet = Fleet(
            clients: RedisClients(
                topology: topology, eventLoop: MultiThreadedEventLoopGroup.singleton.next(), logger: logger),
            prefix: "push", named: [], isNamed: true, searches: false,
            configured: { (QueueSource(keys: try QueueKeys(queue: $0), format: .native), false) },
            waitUntilReady: { _ in throw CancellationError() })
        let tokens = InvalidTokenClient.start(
            topology: topology, keys: fleet.sharedKeys, maximumAge: 0, configuration: RedisClientConfiguration(),
            logger: logger)
        let source = DashboardSource(
            fleet: fleet, invalidTokens: tokens, version: "1", check: { _, _, _ in .init([], nil) },
            prepare: { _, _, _ in throw CancellationError() }, explain: { _ in nil }, environment: { $0 }, token: { $0 }
        )
        var configuration = DashboardConfiguration(proxies: try TrustedProxies())
        configuration.base = base
        let site = Site(configuration, source, logger: logger)
        do {
            try await body(site)
        } catch {
            await fleet.close()
            await tokens.close()
            throw error
        }
        await fleet.close()
        await tokens.close()
    }

    private static func run(
        _ site: Site, detail: String = "", back: String = "/jobs", _ isOpen: @escaping @Sendable () -> Bool
    ) throws -> ChangeRun {
        let desk = Desk(site.source.fleet, person: "olga", via: .web) { _ in }
        let kind = try #require(ActionKind.all.first { $0.name == "change-jobs" })
        return ChangeRun(
            Slow(detail: detail, isOpen: isOpen), desk, of: kind, Fields("action=cancel&id=x"),
            owner: olga.formToken, back: back)
    }

    @Test("A viewer sees no whole token of a run, in no phase and in no link")
    func masked() async throws {
        let token = String(repeating: "0123456789abcdef", count: 4)
        try await Self.with { site in
            let gate = TestGate()
            let run = try Self.run(site, detail: " of \(token)", back: "/devices/\(token)") { gate.isOpen }
            try await site.runs.start(run, isConfirmed: false) {}
            try await eventually { if case .ready = run.phase { true } else { false } }
            func check(_ words: String) async {
                let content = ChangeRunPage.content(run, site, vic).text
                let strip = await Notices(site: site, visitor: vic).runs.text
                for text in [content, strip, ChangeRunPage.back(run, site, vic)] {
                    #expect(!text.contains(token), "\(words)")
                }
                #expect(content.contains("of 01234567…") || words == "running")
                #expect(ChangeRunPage.content(run, site, olga).text.contains(token))
            }
            await check("ready")
            #expect(run.confirm {})
            try await eventually { if case .running(1, _) = run.phase { true } else { false } }
            await check("running")
            gate.open()
            try await eventually { run.phase.hasEnded }
            await check("done")
            #expect(ChangeRunPage.content(run, site, olga).text.contains("data-back=\"/devices/\(token)\""))
            #expect(ChangeRunPage.content(run, site, vic).text.contains("data-back=\"/activity\""))
        }
    }

    @Test(
        "A path that a request names leads to no other site, and stays below the base path", arguments: ["", "/push"])
    func local(base: String) async throws {
        try await Self.with(base: base) { site in
            for path in ["/", "/jobs?id=../x", "/jobs?a=//b", "/queues/~..", "/queues/a.b", "/apps#..", "/.x"] {
                #expect(site.local(path) == base + path)
            }
            for path in [
                nil, "", "jobs", "//evil", "/\\evil", "/\t/evil", "/\n/evil", "https://evil", "javascript:1", "/é",
                "/..",
                "/../other", "/jobs/../../other", "/%2e%2E/other", "/.%2e/other", "/.//evil", "/./", "/jobs/..?x",
                "/jobs/..#x",
            ] { #expect(site.local(path) == base + "/", "\(path ?? "nil")") }
        }
    }

    @Test("A run is in view of all from its confirmation on, and for a minute after its end")
    func phases() async throws {
        try await Self.with { site in
            let gate = TestGate()
            let run = try Self.run(site) { gate.isOpen }
            try await site.runs.start(run, isConfirmed: false) {}
            try await eventually { if case .ready = run.phase { true } else { false } }
            // Only the run's own page asks for the confirmation.
            for visitor in [olga, otto, vic] {
                #expect(await !Notices(site: site, visitor: visitor).runs.text.contains("<li"))
            }
            #expect(run.confirm {})
            #expect(!run.confirm {})
            try await eventually { if case .running(1, _) = run.phase { true } else { false } }
            for visitor in [olga, otto, vic] {
                let text = await Notices(site: site, visitor: visitor).runs.text
                #expect(
                    text.contains("1 of 3 cancelled") && text.contains("<progress") && text.contains("/runs/\(run.id)"))
            }
            gate.open()
            try await eventually { run.phase.hasEnded }
            let own = await Notices(site: site, visitor: olga).runs.text
            #expect(own.contains("Done: cancelled 3 jobs.") && own.contains("<template>"))
            #expect(own.contains("/actions/uncancel-jobs"))
            for other in [otto, vic] {
                let text = await Notices(site: site, visitor: other).runs.text
                #expect(text.contains("Done: cancelled 3 jobs.") && !text.contains("<form"))
            }
            #expect(!run.isInView(of: olga, at: .now + .seconds(61)))
        }
    }

    @Test("A run that is stopped before its confirmation is not in view, and changes nothing")
    func stopped() async throws {
        try await Self.with { site in
            let run = try Self.run(site) { true }
            try await site.runs.start(run, isConfirmed: false) {}
            try await eventually { if case .ready = run.phase { true } else { false } }
            run.stop()
            #expect(run.phase.hasEnded && !run.isConfirmed && !run.confirm {})
            #expect(await !Notices(site: site, visitor: olga).runs.text.contains("<li"))
            let content = ChangeRunPage.content(run, site, olga).text
            #expect(content.contains("nothing was changed") && !content.contains("data-back"))
        }
    }

    @Test("The page of an action's result shows its note once, with the opposite for operators")
    func note() async throws {
        try await Self.with { site in
            let undo = Undo("resume-queue", [("queue", "<q>")])
            let id = try #require(site.notes.add(Note("queue <q> is paused", undo: undo), for: olga))
            #expect(await !Notices(site: site, visitor: otto).html(note: id).text.contains("class=\"toast "))
            let text = await Notices(site: site, visitor: olga).html(note: id).text
            #expect(text.contains("Queue &lt;q&gt; is paused.") && text.contains("/actions/resume-queue"))
            #expect(text.contains("value=\"&lt;q&gt;\"") && text.contains("class=\"toast good\""))
            #expect(await !Notices(site: site, visitor: olga).html(note: id).text.contains("class=\"toast "))
            for (error, tone) in [
                (WebError(.conflict, "no"), "warning"), (WebError(.badRequest, "no"), "warning"),
                (WebError(.internalServerError, "no"), "bad"),
            ] {
                #expect(Notices(site: site, visitor: olga).toast(Note(error)).text.contains("class=\"toast \(tone)\""))
            }
        }
    }
}

final class TestGate: Sendable {
    private let state = Atomic(false)

    var isOpen: Bool { state.load(ordering: .acquiring) }

    func open() { state.store(true, ordering: .releasing) }
}
