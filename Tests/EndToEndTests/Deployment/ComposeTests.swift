import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("compose.yaml")
    struct ComposeTests {
        private let compose: YAMLNode
        private let services: YAMLNode
        private let page: String

        init() throws {
            compose = try DeployFolder.yaml("compose.yaml")
            services = try compose.at("services")
            page = try DeployFolder.text("compose.yaml")
        }

        /// Returns a text with this machine's hosts and folders instead of those of containers.
        private static func here(_ text: String, _ places: KeyValuePairs<String, String>) -> String {
            places.reduce(text) { $0.replacing($1.key, with: $1.value) }
        }

        @Test("its services, as plain processes, send the job that its example enqueues")
        func works() async throws {
            let folder = try TemporaryFolder()
            let certificates = folder.path("certificates")
            let (port, control) = (try RedisServer.freePort(), try RedisServer.freePort())

            let command = try services.list("redis/command").map { try $0.text() }
            #expect(command.first == "redis-server")
            let redis = try RedisServer(arguments: Array(command.dropFirst().prefix { $0 != "--dir" }))

            #expect(try services.text("simulator/build/target") == "simulator")
            let places: KeyValuePairs = [
                "0.0.0.0": "127.0.0.1", "--port=8443": "--port=\(port)",
                "--control-port=8444": "--control-port=\(control)",
                "=simulator": "=simulator.example", "/var/lib/apns-simulator": certificates, "/8444": "/\(control)",
                "redis://redis:6379": redis.url, "simulator:8443": "localhost:\(port)",
            ]
            let options = try services.list("simulator/command").map { try Self.here($0.text(), places) }
            let simulator = try ChildProcess(BuiltProgram.path("apns-simulator"), options)
            try await simulator.until("the simulator listens") {
                simulator.output.hasSuffix("\n")
            }
            let health = try services.list("simulator/healthcheck/test").dropFirst().map {
                try Self.here($0.text(), places)
            }
            let check = try ChildProcess(health)
            #expect(try await check.wait() == .exited(0), "\(check.errors)")

            let environment = try services.texts("worker/environment").mapValues { Self.here($0, places) }
            let count = try services.number("worker/deploy/replicas")
            #expect(count == 2)
            let workers = try (0..<count).map { _ in
                try ChildProcess(BuiltProgram.path("apns-worker"), ["run"], environment: environment)
            }
            let example = try #require(page.firstMatch(of: /exec worker apns-worker (enqueue .*)\n/)).1.split(
                separator: " "
            ).map(String.init)
            try await CommandLineTests.run(example, environment: environment).succeeds()
            let url = try #require(page.firstMatch(of: /curl 'http:\/\/127.0.0.1:8444(.*)'/)).1.replacing(
                "wait=10", with: "wait=60")
            let curl = try ChildProcess("curl", ["-sS", "--fail", "http://127.0.0.1:\(control)\(url)"])
            #expect(try await curl.wait() == .exited(0), "\(curl.errors)")
            #expect(curl.output.contains(example[2]) && curl.output.contains(#""accepted":true"#), "\(curl.output)")
            for worker in workers {
                // The worker handles signals once it has logged `started`.
                try await eventually("it works") { worker.errors.contains("started") }
                worker.send(SIGTERM)
                #expect(try await worker.wait() == .exited(0), "\(worker.errors)")
            }
            simulator.send(SIGTERM)
            #expect(try await simulator.wait() == .exited(0))
        }

        @Test("the dashboard shows a page to the user whose password the file has")
        func dashboard() async throws {
            let (redis, port) = (try RedisServer(), try RedisServer.freePort())
            let users = DeployFolder.url("development-users").path
            #expect(
                try services.list("dashboard/volumes").map { try $0.text() }
                    == ["./development-users:/etc/apns-worker/users:ro"])
            let options = try services.list("dashboard/command").map {
                try Self.here($0.text(), ["0.0.0.0": "127.0.0.1", "8080": "\(port)", "/etc/apns-worker/users": users])
            }
            let environment = try services.texts("dashboard/environment").mapValues {
                Self.here($0, ["redis://redis:6379": redis.url])
            }
            let web = try ChildProcess(BuiltProgram.path("apns-worker"), options, environment: environment)
            try await eventually("it listens") { web.output.contains("dashboard") || web.errors.contains("dashboard") }
            let login = try #require(page.firstMatch(of: /user (\w+), password (\w+)/))
            let address = "http://127.0.0.1:\(port)/"
            let curl = try ChildProcess(
                "curl",
                [
                    "-sS", "--fail", "-o", "/dev/null", "-w", "%{http_code} %{redirect_url}", "-H",
                    "Origin: \(address.dropLast())", "-d", "name=\(login.1)&password=\(login.2)", "\(address)login",
                ])
            #expect(try await curl.wait() == .exited(0), "\(curl.errors)")
            #expect(curl.output == "303 \(address)", "\(curl.output)")
            web.send(SIGTERM)
            #expect(try await web.wait() == .exited(0), "\(web.errors)")
        }

        @Test("containers cannot write and have no capabilities, and workers get enough time for a drain")
        func hardening() throws {
            let hardened = try compose.at("x-hardened")
            #expect(try hardened.text("read_only") == "true")
            #expect(try hardened.list("cap_drop").map { try $0.text() } == ["ALL"])
            #expect(page.matches(of: /<<: \*hardened/).count == 6)
            let grace = try services.text("worker/stop_grace_period")
            #expect(try #require(Int(grace.dropLast())) > 25 + 2 + 5 && grace.hasSuffix("s"))
        }

        @Test("each service except Redis has a profile; ports are published on 127.0.0.1 only")
        func profiles() throws {
            let profiles = [
                "simulator": "development", "worker": "development", "dashboard": "development",
                "worker-production": "production", "prometheus": "metrics", "grafana": "metrics",
            ]
            #expect(Set(try services.keys()) == Set(profiles.keys).union(["redis"]))
            for (service, profile) in profiles {
                #expect(try services.list("\(service)/profiles").map { try $0.text() } == [profile], "\(service)")
            }
            for service in try services.keys() {
                for port in (try? services.list("\(service)/ports")) ?? [] {
                    #expect(try port.text().hasPrefix("127.0.0.1:"), "\(service)")
                }
            }
            // A worker in production uses neither the simulator nor its files.
            let production = try services.texts("worker-production/environment")
            #expect(production.values.allSatisfy { !$0.contains("simulator") })
            #expect(throws: ChildProcess.Failure.self) { try services.at("worker-production/depends_on/simulator") }
        }

        @Test("a worker can start with the settings of the profile production")
        func production() async throws {
            let key = try TestCertificates.path("AuthKey_ABC123DEFG.p8")
            let environment = try services.texts("worker-production/environment").mapValues {
                Self.here(
                    $0,
                    [
                        "/run/secrets/signing-key": key, "redis://redis:6379": "redis://127.0.0.1:1",
                        "${APNS_WORKER_KEY_ID:-}": "ABC123DEFG", "${APNS_WORKER_TEAM_ID:-}": "TEAM123456",
                        "${APNS_WORKER_TOPIC:-}": "com.example.app",
                    ])
            }
            #expect(environment["APNS_WORKER_KEY"] == key)
            let secrets = try services.list("worker-production/secrets").map { try $0.text() }
            #expect(secrets == ["signing-key"])
            #expect(try compose.keys("secrets") == secrets)
            try await CommandLineTests.run(["config", "--given"], environment: environment).succeeds()
            // The commands at the top of the file set these variables.
            for variable in ["KEY", "KEY_ID", "TEAM_ID", "TOPIC"] {
                #expect(page.contains(" APNS_WORKER_\(variable)="), "\(variable)")
            }
        }

        @Test("Prometheus finds the workers and their rules; Grafana finds Prometheus and the dashboard")
        func metrics() async throws {
            let promtool = try ChildProcess(
                "promtool", ["check", "config", DeployFolder.url("prometheus/prometheus.yaml").path])
            #expect(try await promtool.wait() == .exited(0), "\(promtool.output)\(promtool.errors)")
            #expect(promtool.output.contains("SUCCESS: 1 rule files found"))
            let scraped = try DeployFolder.yaml("prometheus/prometheus.yaml").at("scrape_configs/0/dns_sd_configs/0")
            for worker in ["worker", "worker-production"] {
                let alias = try services.text("\(worker)/networks/default/aliases/0")
                #expect(try scraped.text("names/0") == alias)
                // The image's port listens on all addresses.
                #expect(try services.text("\(worker)/environment/APNS_WORKER_ADMIN_HOST") == "0.0.0.0")
            }
            let port = try scraped.text("port")
            #expect(try DeployFolder.text("Dockerfile").contains("APNS_WORKER_ADMIN_PORT=\(port)"))

            let source = try DeployFolder.yaml("grafana/provisioning/datasources/prometheus.yaml").at("datasources/0")
            #expect(try source.text("url") == "http://prometheus:9090" && source.text("type") == "prometheus")
            let folder = try DeployFolder.yaml("grafana/provisioning/dashboards/apns-worker.yaml")
                .text("providers/0/options/path")
            let mounts = try services.list("grafana/volumes").map { try $0.text() }
            #expect(mounts.contains("./helm/apns-worker/files/dashboard.json:\(folder)/dashboard.json:ro"))
            #expect(mounts.contains("./grafana/provisioning:/etc/grafana/provisioning:ro"))
            #expect(
                try services.text("grafana/environment/GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH")
                    == "\(folder)/dashboard.json")
            let config = try services.list("prometheus/volumes").map { try $0.text() }
            #expect(config.contains("./prometheus:/etc/prometheus:ro"))
            for mount in mounts + config where mount.hasPrefix("./") {
                let source = mount.dropFirst(2).prefix { $0 != ":" }
                #expect(FileManager.default.fileExists(atPath: DeployFolder.url(String(source)).path), "\(source)")
            }
        }
    }
}
