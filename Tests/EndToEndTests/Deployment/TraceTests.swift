import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Traces")
    struct TraceTests {
        /// A collector of traces in Python. It checks each request against the specification.
        private struct Collector: Sendable {
            struct Request: Decodable { let path: String, token: String?, status: Int, spans: [Span] }
            struct Span: Decodable {
                let name, trace, id, service: String, parent, failure: String?, kind, milliseconds: Int
                let links: [String], attributes: [String: String]
            }

            let receiver: ForeignReceiver
            var port: Int { receiver.port }

            init(_ behaviour: String = "200", port: Int = 0, withTLS: Bool = false) async throws {
                receiver = try await ForeignReceiver(
                    "trace_collector.py", behaviour: behaviour, port: port, withTLS: withTLS)
            }

            var requests: [Request] { get throws { try receiver.requests(Request.self) } }

            /// The spans of the accepted requests.
            var spans: [Span] { get throws { try requests.filter { $0.status == 200 }.flatMap(\.spans) } }
        }

        /// Returns the trace and the producer's span of a job's number.
        private static func context(_ number: Int) -> (trace: String, span: String) {
            (
                String(repeating: "0", count: 24) + String(format: "%08x", 0xAA00 + number),
                String(repeating: "0", count: 8) + String(format: "%08x", 0xBB00 + number)
            )
        }

        private static func traceparent(_ number: Int, flags: String = "01") -> String {
            let (trace, span) = context(number)
            return #""traceparent":"00-\#(trace)-\#(span)-\#(flags)","#
        }

        private static func job(_ number: Int, prefix: String = "a", flags: String = "01", more: String = "") -> String
        {
            TestJob.text(
                TestJob.token(prefix, number), #""id":"job-\#(number)","# + traceparent(number, flags: flags) + more)
        }

        @Test(
            "sampled jobs have a span for their wait and for each request, linked to the producer's; others have none")
        func spans() async throws {
            let (redis, simulator) = try await startServers(rules: [
                "prefix=dead,answer=410", "prefix=5,answer=503,times=1",
            ])
            let collector = try await Collector()
            let enqueued = Int(Date.now.timeIntervalSince1970) - 6
            try redis.push([
                Self.job(1, more: #""enqueued_at":\#(enqueued),"#), Self.job(2, prefix: "dead"),
                Self.job(3, prefix: "5"),
                TestJob.fanOut(
                    (20..<23).map { TestJob.token("a", $0) }, #""id":"job-4","# + Self.traceparent(4, flags: "03")),
                // These jobs have traces that are not sampled, not valid, or missing.
                Self.job(5, flags: "00"), Self.job(6, flags: "0e"), Self.job(7, flags: "zz"),
                TestJob.text(TestJob.token("a", 8)),
            ])
            let worker = try WorkerProcess(
                redis, simulator, ["--traces-url", "http://127.0.0.1:\(collector.port)", "--exit-when-done"])
            #expect(try await worker.process.wait() == .exited(0))
            #expect(try collector.requests.allSatisfy { $0.path == "/v1/traces" && $0.status == 200 })
            let spans = try collector.spans
            func of(_ number: Int, _ name: String) -> [Collector.Span] {
                spans.filter { $0.trace == Self.context(number).trace && $0.name == name }
            }
            #expect(Set(spans.map(\.trace)) == Set((1...4).map { Self.context($0).trace }))
            #expect(Set(spans.map(\.id)).count == spans.count && spans.allSatisfy { $0.service == "apns-worker" })
            for number in 1...4 {
                let producer = Self.context(number).span
                let waits = of(number, "push.wait")
                let sent = of(number, "apns.request")
                #expect(waits.count == (number == 4 ? 3 : 1) && sent.count == [1, 1, 2, 3][number - 1], "\(number)")
                #expect((waits + sent).allSatisfy { $0.links == [producer] })
                #expect(waits.allSatisfy { $0.parent == producer && $0.kind == 5 && $0.failure == nil })
                #expect(sent.allSatisfy { $0.kind == 3 && $0.attributes["messaging.message.id"] == "job-\(number)" })
                // The parent of the first request's span is the span of the wait. A retry has no wait.
                let parents = Set(sent.compactMap(\.parent))
                #expect(parents.isSuperset(of: waits.map(\.id)))
                #expect(parents.subtracting(waits.map(\.id)) == (number == 3 ? [producer] : []))
            }
            #expect(try #require(of(1, "push.wait").first).milliseconds >= 5000)
            let first = try #require(of(1, "apns.request").first)
            #expect(
                first.attributes.merging(["messaging.message.id": ""]) { $1 } == [
                    "apns.app": "default", "apns.push_type": "alert", "apns.topic": "com.example.app",
                    "http.request.method": "POST", "http.response.status_code": "200", "messaging.message.id": "",
                    "messaging.destination.name": "default", "messaging.system": "redis", "server.address": "localhost",
                    "server.port": "\(simulator.port)",
                ])
            #expect(of(2, "apns.request").map(\.failure) == ["410 Unregistered"])
            #expect(of(3, "apns.request").compactMap(\.failure) == ["503 ServiceUnavailable"])
            // The requests have neither a device token nor a payload.
            #expect(!collector.receiver.process.output.contains("Hello"))
            for token in [TestJob.token("a", 1), TestJob.token("dead", 2), TestJob.token("a", 20)] {
                #expect(!collector.receiver.process.output.contains(token))
            }
        }

        @Test("a collector that cannot be reached delays nothing, and gets the spans when it is back")
        func outage() async throws {
            let (redis, simulator) = try await startServers()
            let port = try RedisServer.freePort()
            let worker = try WorkerProcess(
                redis, simulator, ["--traces-url", "http://127.0.0.1:\(port)/in", "--admin-port", "0"])
            try redis.push((0..<50).map { Self.job($0) })
            try await redis.has(50)
            try await eventually("the log names the collector") {
                worker.log.contains("traces_not_exported") && worker.log.contains("http://127.0.0.1:\(port)")
            }
            let collector = try await Collector("503", port: port)
            try await eventually("it is asked, and refuses") { try !collector.requests.isEmpty }
            try collector.receiver.behave("200")
            try await eventually("it gets all spans") { try collector.spans.count == 100 }
            try await eventually("the log has the end") { worker.log.contains("traces_exported") }
            #expect(try collector.requests.allSatisfy { $0.path == "/in" })
            let page = try Exposition(try await MetricsTests.get(try await worker.adminPort(), "/metrics").body)
            #expect(page.value("apns_worker_spans_dropped_total") == 0)
            _ = try await worker.stop()
        }

        @Test(
            "spans that the collector refuses are counted and forgotten",
            arguments: [
                ("400", 20), ("413", 20), ("302", 20),
                (#"200 {"partialSuccess":{"rejectedSpans":"7","errorMessage":"too old"}}"#, 7), ("200 nonsense", 0),
            ])
        func refused(_ behaviour: String, dropped: Int) async throws {
            let (redis, simulator) = try await startServers()
            let collector = try await Collector(behaviour)
            let worker = try WorkerProcess(
                redis, simulator, ["--traces-url", "http://127.0.0.1:\(collector.port)/", "--admin-port", "0"])
            let port = try await worker.adminPort()
            try redis.push([TestJob.fanOut((0..<10).map { TestJob.token("a", $0) }, Self.traceparent(1))])
            try await eventually("all spans have arrived") {
                try collector.requests.reduce(0) { $0 + $1.spans.count } == 20
            }
            try await eventually("they are counted") {
                try Exposition(try await MetricsTests.get(port, "/metrics").body)
                    .value("apns_worker_spans_dropped_total") == Double(dropped)
            }
            _ = try await worker.stop()
            #expect(worker.log.contains("traces_not_exported") == (dropped > 0))
            #expect(try collector.requests.reduce(0) { $0 + $1.spans.count } == 20, "none is sent again")
        }

        @Test("a collector is reached over TLS and knows the worker by a header, which is in no log")
        func authenticated() async throws {
            let (redis, simulator) = try await startServers()
            let collector = try await Collector(withTLS: true)
            let folder = try TemporaryFolder()
            try folder.write("# of the collector\n\nX-Token:  s3cret-of-the-collector \n", as: "headers")
            let worker = try WorkerProcess(
                redis, simulator,
                [
                    "--traces-url", "https://localhost:\(collector.port)/v1/traces", "--traces-ca",
                    try TestCertificates.path("ca.pem"), "--traces-headers-file",
                    folder.path("headers"), "--exit-when-done", "--log-level", "trace",
                ])
            try redis.push([Self.job(1)])
            try await eventually("spans arrive") { try collector.spans.count == 2 }
            #expect(try collector.requests.allSatisfy { $0.token == "s3cret-of-the-collector" })
            #expect(!worker.log.contains("s3cret-of"))
            _ = try await worker.stop()
        }

        @Test(
            "a setting that is not right ends the start with its name",
            arguments: [
                (["--traces-url", "localhost:4318"], "--traces-url: it must be a URL"),
                (["--traces-url", "grpc://localhost:4317"], "--traces-url: its scheme must be https or http"),
                (["--traces-ca", "/nonexistent.pem"], "--traces-ca: it needs traces.url"),
                (["--traces-headers-file", "/etc/hosts"], "--traces-headers-file: it needs traces.url"),
                (["--traces-url", "http://a", "--traces-headers-file", "/etc/hosts"], "line 1 is not a header"),
                (["--traces-url", "http://a", "--traces-headers-file", "/nonexistent.txt"], "/nonexistent.txt"),
                (["--traces-url", "https://a", "--traces-ca", "/etc/hosts"], "--traces-ca: "),
            ])
        func mistakes(_ arguments: [String], message: String) async throws {
            try await CommandLineTests.run(["run", "--simulate"] + arguments).fails(message)
        }

        @Test("traced notifications are the examples of the histogram in OpenMetrics")
        func exemplars() async throws {
            let (redis, simulator) = try await startServers()
            let worker = try WorkerProcess(redis, simulator, ["--admin-port", "0"])
            let port = try await worker.adminPort()
            try redis.push([Self.job(1), Self.job(2, flags: "00"), TestJob.text(TestJob.token("a", 3))])
            try await redis.has(3)
            let page = try await RawConnection.request(
                "/metrics", port: port, headers: ["Accept: application/openmetrics-text"])
            let traced = page.body.split(separator: "\n").filter { $0.contains(" # {") }
            #expect(traced.count == 1, "\(traced)")
            let context = Self.context(1)
            #expect(
                traced.first?.contains(
                    try Regex(
                        #"^apns_worker_send_seconds_bucket\{app="default",le="[0-9.]+"\} [0-9]+ # \{trace_id="\#(context.trace)",span_id="[0-9a-f]{16}"\} [0-9.]+ [0-9.]+$"#
                    )) == true, "\(traced)")
            _ = try await worker.stop()
        }
    }
}
