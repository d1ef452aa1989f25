import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Alert rules and dashboard")
    struct MonitoringFilesTests {
        private struct Dashboard: Decodable {
            struct Target: Decodable { let expr: String }
            struct Panel: Decodable { let id: Int, title: String, targets: [Target]? }
            struct Annotations: Decodable { let list: [Target] }
            struct Variable: Decodable { let name, type: String, definition: String? }
            struct Templating: Decodable { let list: [Variable] }
            let uid, title: String, panels: [Panel], annotations: Annotations, templating: Templating
        }

        private static func dashboard() throws -> Dashboard {
            try JSONDecoder().decode(
                Dashboard.self, from: Data(contentsOf: DeployFolder.url("helm/apns-worker/files/dashboard.json")))
        }

        /// Returns all expressions of the dashboard with values in place of its variables.
        private static func panelExpressions() throws -> [String] {
            let dashboard = try dashboard()
            let panels = dashboard.panels.flatMap { $0.targets ?? [] }.map(\.expr)
            return (panels + dashboard.annotations.list.map(\.expr)).map {
                $0.replacing("$__rate_interval", with: "5m").replacing(/\$[a-z]+/, with: "x")
            }
        }

        private static func alertExpressions() throws -> [String] {
            try DeployFolder.yaml(AlertRules.path).list("groups/0/rules").map { try $0.text("expr") }
        }

        private static func promtool(_ arguments: [String]) async throws {
            let tool = try ChildProcess("promtool", arguments)
            #expect(try await tool.wait() == .exited(0), "\(tool.output)\(tool.errors)")
            #expect(tool.output.contains("SUCCESS"))
        }

        @Test("Prometheus accepts the dashboard's expressions, and panel numbers are unique")
        func expressions() async throws {
            let expressions = try Self.panelExpressions()
            #expect(expressions.count > 40)
            let rules = expressions.enumerated().map { #"  - {record: "x:\#($0)", expr: '\#($1)'}"# }
            let folder = try TemporaryFolder(
                "groups:\n- name: x\n  rules:\n" + rules.joined(separator: "\n") + "\n")
            try await Self.promtool(["check", "rules", folder.file])
            let dashboard = try Self.dashboard()
            #expect(Set(dashboard.panels.map(\.id)).count == dashboard.panels.count)
            let variables = dashboard.templating.list
            #expect(variables.map(\.name) == ["datasource", "job", "instance", "queue", "app"])
            #expect(variables.first?.type == "datasource")
        }

        @Test("Rules and panels keep the jobs of one Prometheus apart")
        func jobs() throws {
            for expression in try Self.alertExpressions() {
                let labels = expression.matches(of: /\b(?:by|on) \(([^)]*)\)/).map(\.1)
                // `absent()` may contain only the label `job`, which Prometheus adds.
                #expect(labels.allSatisfy { $0.hasPrefix("job") || $0.isEmpty }, "\(expression)")
                #expect(expression.matches(of: /\b(?:sum|max|min|count)\b(?! by )/).isEmpty, "\(expression)")
            }
            let dashboard = try Self.dashboard()
            let definitions = dashboard.templating.list.filter { $0.name != "job" }.compactMap(\.definition)
            for expression in try Self.panelExpressions() + definitions.map({ $0.replacing("$job", with: "x") }) {
                let metrics = expression.matches(of: /\b(?:apns_worker|process)_[a-z_]+(?:\{job="x"[,}])?/)
                #expect(metrics.allSatisfy { $0.0.contains("{") }, "\(expression)")
            }
        }

        /// Returns the names of all samples that a worker reports.
        private static func samples(_ port: Int) async throws -> Set<String> {
            let lines = try await MetricsTests.get(port, "/metrics").body.split(separator: "\n").filter {
                !$0.hasPrefix("#")
            }
            return Set(lines.map { String($0.prefix { $0 != "{" && $0 != " " }) })
        }

        @Test("every metric in the files is one that a worker has")
        func names() async throws {
            // Without maxmemory, the worker reports no metric for the limit.
            let redis = try RedisServer(arguments: ["--maxmemory", "1gb"])
            let simulator = try await SimulatorProcess(
                gateway: [], options: ["--client-ca", try TestCertificates.path("ca.pem")])
            let folder = try TemporaryFolder(
                """
                apps:
                  key:
                    topic: com.example.app
                  certificate:
                    topic: com.example.certificate
                    transport: gateway
                    endpoint: localhost:\(try #require(simulator.gatewayPort))
                    certificate: \(try TestCertificates.path("client.pem"))
                    certificate_key: \(try TestCertificates.path("client-key.pem"))
                  away:
                    topic: com.example.away
                    endpoint: localhost:1

                """)
            let port = try RedisServer.freePort()
            let worker = try WorkerProcess(
                redis, simulator,
                ["--config", folder.file, "--admin-port", "\(port)", "--traces-url", "http://127.0.0.1:1"],
                environment: ["APNS_WORKER_TOPIC": ""])
            try redis.push(TestJob.many(10, members: #""app":"key","#))
            try await redis.has(10)
            let expressions = try Self.panelExpressions() + Self.alertExpressions()
            let definitions = try Self.dashboard().templating.list.compactMap(\.definition)
            let keda = try DeployFolder.text("helm/apns-worker/templates/keda-scaledobject.yaml")
            let named = Set(
                (expressions + definitions + [keda]).flatMap { $0.matches(of: /\b(?:apns_worker|process)_[a-z_]+/) }
                    .map { String($0.0) })
            #expect(named.count > 25)
            // A worker reports this metric only if it is not 0, so the test reads its name from the source.
            let rare = "metric_series_dropped_total"
            let metrics = Repository.root.appending(path: "Sources/PushWorker/Process/WorkerMetric.swift")
            #expect(try String(contentsOf: metrics, encoding: .utf8).contains("\"\(rare)\""))
            var missing = named
            try await eventually("all are there") {
                missing = named.subtracting(try await Self.samples(port))
                return missing == ["apns_worker_\(rare)"]
            }
            _ = try await worker.stop()
        }
    }
}
