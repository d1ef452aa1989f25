import Foundation
import HTTPPort
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import Telemetry

@Suite("The admin port")
struct AdminServerTests {
    private static func sources(
        metrics: MetricsPage = MetricsPage(created: 0), readiness: Probe = Probe("ready", isGood: true)
    ) -> AdminServer.Sources {
        .init(metrics: { metrics }, health: { Probe("alive", isGood: true) }, readiness: { readiness })
    }

    private static func curl(_ arguments: String...) async throws -> String {
        let curl = try ChildProcess("curl", ["-s", "-S", "-m", "30"] + arguments)
        let ending = try await curl.wait()
        try #require(ending == .exited(0), "\(curl.errors)")
        return curl.output
    }

    private static func with(_ sources: AdminServer.Sources, _ body: (String) async throws -> Void) async throws {
        let server = try await AdminServer.start(host: "127.0.0.1", port: 0, sources: sources)
        do {
            try await body("http://127.0.0.1:\(server.port)")
            try await server.stop()
        } catch {
            try await server.stop()
            throw error
        }
    }

    @Test("metrics have the media type and the bytes of the format that the request accepts")
    func metrics() async throws {
        var page = MetricsPage(created: 1.5)
        page.set(Metric("a_total", .counter, "A."), 1)
        let sources = Self.sources(metrics: page)
        try await Self.with(sources) { address in
            let answer = try await Self.curl("-i", address + "/metrics")
            #expect(answer.contains("200 OK") && answer.contains("text/plain; version=0.0.4; charset=utf-8"))
            #expect(answer.hasSuffix("\r\n\r\n# HELP a_total A.\n# TYPE a_total counter\na_total 1\n"))
            let open = try await Self.curl(
                "-i", "-H", "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5", address + "/metrics")
            #expect(open.contains("application/openmetrics-text; version=1.0.0; charset=utf-8"))
            #expect(open.hasSuffix("\r\n\r\n# HELP a A.\n# TYPE a counter\na_total 1\na_created 1.5\n# EOF\n"))
            #expect(answer.lowercased().contains("vary: accept") && open.lowercased().contains("vary: accept"))
        }
    }

    @Test(
        "OpenMetrics is for requests that want it at least as much as the text format",
        arguments: [
            (nil, MetricsPage.Format.text), ("", .text), ("*/*", .text), ("text/plain", .text),
            ("application/openmetrics-text", .openMetrics),
            ("application/openmetrics-text; version=1.0.0", .openMetrics),
            ("application/openmetrics-text;version=2.0.0", .text), ("application/openmetrics-text;q=0", .text),
            ("text/plain;q=0.5,application/openmetrics-text;q=0.4", .text),
            ("APPLICATION/OpenMetrics-Text;Q=0.5 , text/plain;q=0.5", .openMetrics),
            // `Accept` of Prometheus 2.45 and 3.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
                    + "text/plain;version=0.0.4;q=0.5,*/*;q=0.1", .openMetrics
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
                    + "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                .openMetrics
            ),
        ] as [(String?, MetricsPage.Format)])
    func negotiation(accept: String?, format: MetricsPage.Format) {
        #expect(MetricsPage.Format(accept: accept) == format)
    }

    @Test(
        "a successful probe gets 200, another 503 with each problem, its duration and advice, other paths a list of paths"
    )
    func probes() async throws {
        let bad = Probe(
            "not ready", isGood: false,
            problems: [
                .init("Redis is gone", seconds: 12, advice: "check Redis"), .init("the worker is draining", seconds: 1),
            ])
        try await Self.with(Self.sources(readiness: bad)) { address in
            let alive = try await Self.curl("-w", "%{http_code}", address + "/healthz")
            #expect(alive == "alive\n200")
            let notReady = try await Self.curl("-w", "%{http_code}", address + "/readyz")
            #expect(
                notReady
                    == "not ready\n- Redis is gone (for 12 s)\n  → check Redis\n- the worker is draining (for 1 s)\n503"
            )
            let head = try await Self.curl("-I", address + "/readyz")
            #expect(head.contains(" 503 "))
            let overview = try await Self.curl(address + "/")
            for path in ["/metrics", "/healthz", "/readyz"] { #expect(overview.contains("GET \(path) ")) }
            let unknown = try await Self.curl("-w", "%{http_code}", address + "/metrics/x")
            #expect(unknown == "there is no GET /metrics/x; GET / lists the routes\n404")
        }
    }

    @Test("a port in use is an error that names it, with advice")
    func taken() async throws {
        let other = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
            .bind(host: "127.0.0.1", port: 0).get()
        let port = try #require(other.localAddress?.port)
        let failure = await #expect(throws: HTTPPortFailure.self) {
            try await AdminServer.start(host: "127.0.0.1", port: port, sources: Self.sources())
        }
        #expect(
            failure?.description
                == "the admin port cannot listen on 127.0.0.1:\(port): Address already in use. Choose another port; 0 chooses a free one"
        )
        try await other.close()
    }

    @Test("many concurrent requests are all answered")
    func many() async throws {
        var page = MetricsPage(created: 0)
        for number in 0..<5000 { page.set(Metric("a_total", .counter, ["l"], "A."), by: ["\(number)"], 1) }
        let size = page.text().utf8.count
        try await Self.with(Self.sources(metrics: page)) { [size] address in
            try await withThrowingTaskGroup(of: Int.self) { group in
                for _ in 0..<10 { group.addTask { try await Self.curl(address + "/metrics").utf8.count } }
                for try await read in group { #expect(read == size) }
            }
        }
    }
}
