import Testing

@testable import Dashboard
@testable import Operations

@Suite("The report on a campaign")
struct CampaignReportDocumentTests {
    private static func text(_ name: String, _ counters: [String: Int]) -> String {
        var counts = CampaignCounts(name: name, total: 1000, startedAt: 1_795_000_000_000, updatedAt: 1_795_000_060_000)
        counts.counters = counters
        let status = CampaignStatus(counts, nil, queue: "default", now: 1_795_000_060_000)
        return CampaignReportDocument(CampaignSummary([status]), now: 1_795_000_060_000).text
    }

    @Test("is one page with a chart of outcomes and of reasons, without scripts and other files")
    func page() {
        let text = Self.text("spring", ["delivered": 950, "dead": 50, "dead:BadPayload": 50, "retried:Throttled": 7])
        for part in ["950 (95%)", "50 (5%)", ">BadPayload<", ">Throttled<", "<svg ", "Ended per second"] {
            #expect(text.contains(part), "\(part)")
        }
        for part in ["<script", "http:", "https:", "src=", "url(", "invalid_token"] { #expect(!text.contains(part)) }
    }

    @Test("has a chart of the rate over time for a campaign of several periods, as the campaign's page has")
    func rates() throws {
        func summary(_ fields: [(String, String)]) -> CampaignSummary {
            var counts = CampaignCounts(name: "spring", startedAt: 1_795_000_020_000, updatedAt: 1_795_000_200_000)
            counts.counters = ["delivered": 9600]
            counts.periods = fields.compactMap { CampaignCounts.Period($0.0, $0.1) }
            let status = CampaignStatus(counts, nil, queue: "default", now: 1_795_000_200_000)
            return CampaignSummary([status])
        }
        func text(_ summary: CampaignSummary) -> String {
            CampaignReportDocument(summary, now: 1_795_000_200_000).text
        }
        let long = summary([("at:1795000020/60", "6000"), ("at:1795000140/60", "3600")])
        #expect(long.peak?.endedPerSecond == 100 && long.facts.contains { $0 == ("Peak", "100 per second, in 60 s") })
        let several = text(long)
        for part in [
            "<h2>Notifications that ended per second</h2>", "100 at most, in periods of 60 s", "60 per second</title>",
        ] {
            #expect(several.contains(part), "\(part): \(several)")
        }
        let chart = try #require(long.chart).html.text
        for part in ["Notifications that ended, per minute", "data-values=\"6000,0,3600\"", ">9,600</span>"] {
            #expect(chart.contains(part), "\(part): \(chart)")
        }
        let short = summary([("at:1795000020/60", "6000")])
        #expect(!text(short).contains("Notifications that ended per second"))
        #expect(short.chart == nil)
    }

    @Test("escapes names that producers and APNs choose")
    func escaped() {
        let text = Self.text("<b>&\u{1B}", ["dead": 1, "dead:<script>": 1])
        #expect(text.contains("<title>Campaign &lt;b&gt;&amp;") && text.contains("&lt;script&gt;"))
        #expect(!text.contains("<script>") && !text.contains("\u{1B}"))
    }

    @Test("has no chart before the first outcome")
    func empty() {
        #expect(!Self.text("spring", [:]).contains("<svg"))
    }
}
