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
        metrics: String = "", health: Probe = Probe("alive", isGood: true),
        readiness: Probe = Probe("ready", isGood: true)
    ) -> AdminServer.Sources {
        .init(metrics: { metrics }, health: { health }, readiness: { readiness })
    }

    /// Sends a request with an independent client.
    private static func curl(_ arguments: String...) async throws -> String {
        let curl = try ChildProcess("curl", ["-s", "-S", "-m", "30"] + arguments)
        let ending = try await curl.wait()
        try #require(ending == .exited(0), "\(curl.errors)")
        return curl.output
    }

    private static func with(
        _ sources: AdminServer.Sources, _ body: (String) async throws -> Void
    ) async throws {
        let server = try await AdminServer.start(host: "127.0.0.1", port: 0, sources: sources)
        do {
            try await body("http://127.0.0.1:\(server.port)")
            try await server.stop()
        } catch {
            try await server.stop()
            throw error
        }
    }

    @Test("metrics have the format's media type, and the exact bytes")
    func metrics() async throws {
        try await Self.with(Self.sources(metrics: "# TYPE a counter\na 1\n")) { address in
            let answer = try await Self.curl("-i", address + "/metrics")
            #expect(answer.contains("200 OK"))
            #expect(answer.contains("text/plain; version=0.0.4; charset=utf-8"))
            #expect(answer.hasSuffix("\r\n\r\n# TYPE a counter\na 1\n"))
        }
    }

    @Test("a successful probe gets 200, another 503 with the problem and its duration")
    func probes() async throws {
        let bad = Probe("not ready", isGood: false, problems: [.init("Redis is gone", seconds: 12)])
        try await Self.with(Self.sources(readiness: bad)) { address in
            let alive = try await Self.curl("-w", "%{http_code}", address + "/healthz")
            #expect(alive == "alive\n200")
            let notReady = try await Self.curl("-w", "%{http_code}", address + "/readyz")
            #expect(notReady == "not ready\n- Redis is gone (for 12 s)\n503")
            let head = try await Self.curl("-I", address + "/readyz")
            #expect(head.contains(" 503 "))
        }
    }

    @Test("a request without a path or with an unknown one gets a list of paths")
    func overview() async throws {
        try await Self.with(Self.sources()) { address in
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
                == "the admin port cannot be 127.0.0.1:\(port): Address already in use. Choose another; 0 takes a free one"
        )
        try await other.close()
    }

    @Test("many concurrent requests are all answered")
    func many() async throws {
        try await Self.with(Self.sources(metrics: String(repeating: "a 1\n", count: 10_000))) { address in
            try await withThrowingTaskGroup(of: Int.self) { group in
                for _ in 0..<10 { group.addTask { try await Self.curl(address + "/metrics").utf8.count } }
                for try await size in group { #expect(size == 40_000) }
            }
        }
    }
}
