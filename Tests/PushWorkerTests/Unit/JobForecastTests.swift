import NIOCore
import PushJob
import Testing

@testable import PushWorker

@Suite("Forecasts of many jobs")
struct JobForecastTests {
    private static let token = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
    private static let now: Int64 = 1_795_000_000_000
    private static var check: JobCheck {
        JobCheck([AppConfiguration(name: "shop", topic: "com.example.shop", credential: .providerTokens([]))])
    }

    private static func forecast(_ members: String, token: String = #""token":"\#(token)""#) -> JobForecast {
        check.forecast(ByteBuffer(string: "{\(token),\(members)}"), now: now)
    }

    @Test(
        "name the reason for which a job would not be sent as it is",
        arguments: [
            (#""alert":"x""#, nil), (#""alert":"x","send_at":1795100000"#, nil),
            (#""alert":"x","pushtype":"alert""#, "sent_differently unknown_member"),
            (#""alert":"x","app":"other""#, "not_sent UnknownApp"), (#""id":"x""#, "not_sent MissingPayload"),
            (#""alert":"x","expiration":1794999999"#, "not_sent Expired"),
            (#""alert":"x","expiration":60"#, "not_sent Expired"),
            (#""content_available":true,"push_type":"background","priority":10"#, "not_sent BadPriority"),
        ] as [(String, String?)])
    func job(members: String, reason: String?) {
        let forecast = Self.forecast(members)
        let found = forecast.findings.map { "\($0.effect.rawValue) \($0.reason)" }
        #expect(found == (reason.map { [$0] } ?? []), "\(forecast)")
        #expect(forecast.notifications == (reason?.hasPrefix("not_sent") == true ? 0 : 1))
    }

    @Test("include bodies that are shortened, and members that the gateway's frames do not have")
    func others() {
        let long = String(repeating: "word ", count: 1000)
        #expect(Self.forecast(#""alert":"\#(long)","truncate":true"#).findings.map(\.reason) == ["truncated"])
        #expect(Self.forecast(#""alert":"short","truncate":true"#).findings.isEmpty)
        var app = AppConfiguration(name: "shop", topic: "com.example.shop", credential: .providerTokens([]))
        app.transport = .gateway(.init())
        let body = ByteBuffer(string: #"{"token":"\#(Self.token)","alert":"x","collapse_id":"c"}"#)
        #expect(JobCheck([app]).forecast(body, now: Self.now).findings.map(\.reason) == ["omitted"])
    }

    @Test("count a job once, by its worst finding, and each kind of finding with its first job")
    func survey() {
        var survey = JobSurvey()
        let tokens = #""tokens":["\#(Self.token)","zz","yy"]"#
        for (number, members) in [
            #""alert":"x""#, #""alert":"x","pushtype":1"#, #""alert":"x","pushtype":2"#, #""alert":"x","app":"other""#,
        ].enumerated() {
            survey.add(Self.forecast(members), at: "line \(number + 1)")
        }
        survey.add(Self.forecast(#""alert":"x","pushtype":1"#, token: tokens), at: "line 5")
        #expect([survey.jobs, survey.sent, survey.different, survey.notSent] == [5, 1, 2, 2])
        #expect(survey.notifications == 4)
        let rows = survey.rows.map { "\($0.effect.rawValue) \($0.reason) \($0.jobs) \($0.example)" }
        #expect(
            rows == [
                "not_sent MalformedToken 1 line 5", "not_sent UnknownApp 1 line 4",
                "sent_differently unknown_member 3 line 2",
            ])
        #expect(survey.rows.allSatisfy { !$0.detail.contains(Self.token) })
    }

    @Test("have a limited number of kinds")
    func limit() {
        var survey = JobSurvey()
        for number in 0..<JobSurvey.maximumKinds + 5 {
            let name = String(repeating: "x", count: number)
            survey.add(JobForecast(findings: [.init(.different, "unknown_member", name)]), at: "line 1")
        }
        #expect(survey.rows.count == JobSurvey.maximumKinds && survey.otherFindings == 5)
    }
}
