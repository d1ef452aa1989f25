import APNSSimulator
import Foundation
import Testing

@Suite("Latency")
struct LatencyTests {
    @Test("quantiles of a histogram are within 1.6 % of those of the sorted times")
    func quantiles() {
        var histogram = LatencyHistogram()
        // Values of every order of magnitude, and the boundaries between classes.
        var times: [Int64] = [0, 1, 63, 64, 127, 128, 129, 191, 192, 255, 256, 4095, 4096, .max / 2, .max]
        for _ in 0..<5000 { times.append(Int64.random(in: 0 ... .max) >> Int64.random(in: 0...62)) }
        for time in times { histogram.record(time) }
        let sorted = times.sorted()
        #expect(histogram.count == times.count && histogram.maximum == .max)
        for share in [0.001, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999, 1] {
            let exact = sorted[max(1, Int((share * Double(sorted.count)).rounded(.up))) - 1]
            let estimate = histogram.quantile(share)
            #expect(estimate >= exact && Double(estimate - exact) <= Double(exact) / 63)
        }
    }

    @Test("an empty histogram returns 0, and a negative time counts as 0")
    func edges() {
        var histogram = LatencyHistogram()
        #expect(histogram.quantile(0.5) == 0)
        histogram.record(-5)
        #expect(histogram.maximum == 0 && histogram.quantile(1) == 0 && histogram.count == 1)
    }

    private static func micros(ago seconds: Double) -> Int64 {
        Int64((Date().timeIntervalSince1970 - seconds) * 1_000_000)
    }

    @Test("is the time from the payload's timestamp to arrival, for accepted requests with a timestamp")
    func measures() async throws {
        try await withSimulator {
            $0.latencyMember = "sent_us"
        } _: { server in
            let sent = Self.micros(ago: 100)
            for body in [
                #"{"aps":{},"sent_us":\#(sent)}"#, #"{"sent_us":\#(sent),"aps":{}}"#,
                // These payloads have no valid timestamp.
                #"{"aps":{}}"#, #"{"aps":{},"sent_us":"soon"}"#, #"{"aps":{},"sent_us2":\#(sent)}"#,
                #"{"aps":{},"sent_us":null}"#,
            ] {
                #expect(try await Push { $0.body = body }.send(to: server).status == 200)
            }
            let refused = try await Push {
                $0.body = #"{"sent_us":\#(sent)}"#
                $0.set("apns-priority", "3")
            }.send(to: server)
            #expect(refused.status == 400)
            let latency = server.account.latency
            #expect(latency.count == 2)
            #expect((99_000_000...160_000_000).contains(latency.quantile(0.5)))
            let page = try #require(server.accountPage()["latency"] as? [String: Int])
            #expect(page["count"] == 2 && page["maximum_microseconds"] == Int(latency.maximum))
            #expect(page["p50_microseconds"] == Int(latency.quantile(0.5)))
        }
    }

    @Test("is in the account only if requested")
    func off() async throws {
        try await withSimulator { (server) async throws in
            let body = #"{"sent_us":\#(Self.micros(ago: 1))}"#
            #expect(try await Push { $0.body = body }.send(to: server).status == 200)
            #expect(try server.account.latency.count == 0 && server.accountPage()["latency"] == nil)
        }
    }
}
