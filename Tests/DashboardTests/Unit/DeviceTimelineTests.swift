import NIOCore
import PushJob
import PushQueue
import Testing
import WebPages

@testable import Dashboard
@testable import Operations

@Suite("The timeline of a device")
struct DeviceTimelineTests {
    private static let now: Int64 = 1_800_000_000_000
    private static let token = String(repeating: "ab", count: 32)

    private static func result(_ outcome: String, _ ago: Int64, _ fields: [String: String] = [:]) -> StoredResult {
        let all = [("time", "\(now - ago)"), ("outcome", outcome)] + fields.sorted { $0.key < $1.key }
        return StoredResult(
            entry: "\(now - ago)-0", index: 0, fields: all.map { ($0.0, ByteBuffer(string: $0.1)) })
    }

    private static let body = ByteBuffer(string: #"{"id":"order-7","app":"shop","token":"\#(token)","alert":"Hi"}"#)

    private static func job(
        due: Int64? = nil, lane: String? = nil, attempt: Int = 1, error: String? = nil
    ) -> JobRow {
        var job = body
        if let error {
            var writer = EnvelopeWriter(attempt: attempt)
            writer.write(errorStatus: 503, reason: error, at: now - 1000)
            job = writer.head()
            job.writeImmutableBuffer(body)
            job.writeString("}")
        }
        return JobRow(
            queue: "default",
            job: StoredJob(
                job, size: job.readableBytes, due: due.map { now + $0 }, hasFailed: error != nil, lane: lane,
                format: .native),
            now: now)
    }

    private static func letter(_ reason: String, _ ago: Int64, id: String = "order-7") -> DeadLetterRow {
        let header = #"{"reason":"\#(reason)","id":"\#(id)","attempts":1,"detail":"too long"}"#
        return DeadLetterRow(
            DeadLetters.Listed(
                key: "0123456789", at: now - ago, letter: DeadLetter(header: ByteBuffer(string: header), original: body)
            ),
            queue: "default")
    }

    private static func record(
        invalid: (reason: String, ago: Int64)? = nil, throttled: Int64? = nil, registered: Int64? = nil
    ) -> DeviceRecord {
        var record = DeviceRecord()
        if let invalid {
            var details = InvalidTokenDetails()
            details.at = now - invalid.ago
            (details.reason, details.source) = (ByteBuffer(string: invalid.reason), ByteBuffer(string: "apns"))
            record.marks = [InvalidTokenSet.Listed(token: ByteBuffer(), details: details, set: .production)]
        }
        record.throttledUntil = throttled.map { now + $0 }
        record.registeredAt = registered.map { now - $0 }
        return record
    }

    private static func findings(
        _ record: DeviceRecord = DeviceRecord(), results: [StoredResult] = [], jobs: [JobRow] = [],
        dead: [DeadLetterRow] = []
    ) -> DeviceFindings {
        var findings = DeviceFindings(token: token, now: now)
        (findings.record, findings.jobs, findings.dead) = (record, jobs, dead)
        findings.results = results.map { ("default", $0) }
        return findings
    }

    /// Returns the entries as `offset word reason text`, with the offset from now in seconds.
    private static func lines(_ findings: DeviceFindings) -> [String] {
        DeviceTimeline(findings).entries.map { entry in
            let at = entry.at.map { "\(($0 - now) / 1000)" } ?? "?"
            return [at, entry.word, entry.reason ?? "", entry.text].filter { !$0.isEmpty }.joined(separator: " ")
        }
    }

    @Test("the latest comes first: what will happen, then what waits now, then what has happened")
    func order() {
        let all = Self.findings(
            Self.record(invalid: ("Unregistered", 30_000), throttled: 40_000, registered: 500_000),
            results: [
                Self.result("delivered", 120_000, ["status": "200"]),
                Self.result("invalid_token", 31_000, ["reason": "Unregistered", "status": "410"]),
                Self.result("expired", 600_000, ["attempt": "3"]),
            ],
            jobs: [
                Self.job(), Self.job(due: 90_000), Self.job(due: 20_000, attempt: 3, error: "Shutdown"),
                Self.job(due: -5000), Self.job(lane: "vm.1.2"),
            ],
            dead: [Self.letter("BadPayload", 300_000)])
        #expect(
            Self.lines(all) == [
                "90 scheduled not before its send_at",
                "40 throttle ends APNs refused too many requests to this device; its jobs wait until then",
                "20 retrying attempt 3, last error 503 Shutdown",
                "0 waiting waits for a worker",
                "0 scheduled not before its send_at, due for 5 s",
                "0 claimed claimed by lane vm.1.2",
                "-30 marked invalid Unregistered reported by apns",
                "-31 invalid_token Unregistered status 410",
                "-120 delivered",
                "-300 dead BadPayload too long",
                "-500 registered its last known registration",
                "-600 expired after 3 attempts",
            ])
        let timeline = DeviceTimeline(all)
        #expect(timeline.future.count == 3 && timeline.past.count == 9)
    }

    @Test("the result and the dead letter of one end are one entry, which leads to the dead letter")
    func sameEnd() throws {
        let dead = Self.result("dead", 10_000, ["reason": "BadPayload", "id": "order-7"])
        let one = DeviceTimeline(Self.findings(results: [dead], dead: [Self.letter("BadPayload", 10_000)])).entries
        #expect(one.count == 1 && one[0].page?.segments == ["dead", "default", "0123456789"])
        #expect(one[0].text == "too long")
        for other in [
            Self.letter("BadPayload", 10_000, id: "order-8"), Self.letter("PayloadTooLarge", 10_000),
            Self.letter("BadPayload", 12_000),
        ] {
            let two = DeviceTimeline(Self.findings(results: [dead], dead: [other])).entries
            #expect(two.count == 2 && two.count { $0.page != nil } == 1)
        }
    }

    @Test("an entry leads to its job, in the state that it had")
    func jobPage() throws {
        let entry = try #require(DeviceTimeline(Self.findings(jobs: [Self.job(due: 1000)])).entries.first)
        #expect(entry.page?.segments == ["jobs", "default", JobKey.of(Self.body)] && entry.page?.state == "scheduled")
        #expect(entry.id == "order-7" && entry.app == "shop" && entry.campaign == nil)
    }

    @Test(
        "the verdict says in a sentence what matters most",
        arguments: [
            ("Nothing is known about the device.", .plain, Self.findings()),
            (
                "It is registered, and no push to it is recorded.", .plain,
                Self.findings(Self.record(registered: 5000))
            ),
            (
                "Its last push was delivered 3 min ago.", .good,
                Self.findings(results: [Self.result("dead", 400_000), Self.result("delivered", 180_000)])
            ),
            (
                "Its last push became a dead letter 10 s ago: BadPayload.", .bad,
                Self.findings(
                    results: [Self.result("delivered", 60_000)], dead: [Self.letter("BadPayload", 10_000)])
            ),
            (
                "Its last push was delivered 3 min ago. 2 jobs are still to be sent, the next in 20 s.", .good,
                Self.findings(
                    results: [Self.result("delivered", 180_000)],
                    jobs: [Self.job(due: 90_000), Self.job(due: 20_000)])
            ),
            (
                "No push to it is known to have ended. 1 job is still to be sent.", .plain,
                Self.findings(jobs: [Self.job()])
            ),
            (
                "Its last push was refused 4 s ago: BadDeviceToken. The token is not in the set of invalid tokens.",
                .bad,
                Self.findings(results: [Self.result("invalid_token", 4000, ["reason": "BadDeviceToken"])])
            ),
            (
                "Its last push expired 4 s ago, before it could be sent.", .warning,
                Self.findings(results: [Self.result("expired", 4000)])
            ),
            (
                "Its last push was suppressed 4 s ago: InvalidToken.", .plain,
                Self.findings(results: [Self.result("suppressed", 4000, ["reason": "InvalidToken"])])
            ),
            (
                "APNs throttles it for another 40 s. 1 job is still to be sent, the next in 40 s.", .warning,
                Self.findings(
                    Self.record(throttled: 40_000), results: [Self.result("delivered", 180_000)],
                    jobs: [Self.job(due: 40_000, error: "TooManyRequests")])
            ),
            // A throttle that has ended does not matter.
            (
                "Its last push was delivered 3 min ago.", .good,
                Self.findings(Self.record(throttled: -1000), results: [Self.result("delivered", 180_000)])
            ),
            (
                "Invalid for 3 min: Unregistered. Nothing is sent to it.", .bad,
                Self.findings(
                    Self.record(invalid: ("Unregistered", 180_000), throttled: 40_000),
                    results: [Self.result("delivered", 240_000)])
            ),
        ] as [(String, Elements.Tone, DeviceFindings)])
    func verdict(sentence: String, tone: Elements.Tone, findings: DeviceFindings) {
        let verdict = DeviceTimeline.verdict(findings)
        #expect(verdict.sentence == sentence)
        #expect(verdict.tone == tone)
    }

    @Test("the verdict says what is not known: deliveries are not kept, or not all was searched")
    func gaps() {
        func verdict(_ kept: ResultsKept, isPartial: Bool = false, _ findings: DeviceFindings) -> String {
            var findings = findings
            findings.kept = ["default": kept]
            findings.isPartial = isPartial
            return DeviceTimeline.verdict(findings).sentence
        }
        let dead = Self.findings(dead: [Self.letter("BadPayload", 10_000)])
        let delivered = Self.findings(results: [Self.result("delivered", 180_000)])
        let unkept = "Deliveries are not kept (`results: failures`)."
        #expect(verdict(.all, dead) == "Its last push became a dead letter 10 s ago: BadPayload.")
        #expect(
            verdict(.failures, dead)
                == "The last push to it that is recorded became a dead letter 10 s ago: BadPayload. \(unkept)")
        #expect(
            verdict(.off, dead).hasSuffix("BadPayload. No results are kept (`results: off`)."))
        #expect(
            verdict(.failures, delivered) == "The last push to it that is recorded was delivered 3 min ago.")
        #expect(verdict(.failures, Self.findings()) == "No push to it is recorded. \(unkept)")
        #expect(verdict(.all, Self.findings()) == "Nothing is known about the device.")
        #expect(verdict(.all, isPartial: true, Self.findings()) == "No push to it is recorded in what was searched.")
        #expect(
            verdict(.all, isPartial: true, delivered) == "The last push to it that was found was delivered 3 min ago.")
        var two = dead
        (two.kept, two.unsearched) = (["a": .all, "b": .failures, "c": .failures], ["a"])
        #expect(
            two.gaps == [
                "deliveries are not kept (`results: failures`) in b, c",
                "only the newest 100,000 results of a were searched",
            ])
    }
}
