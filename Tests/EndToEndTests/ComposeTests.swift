import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("compose.yaml")
    struct ComposeTests {
        /// Replaces the hosts and folders of containers by those of this machine.
        private static func here(_ text: String, _ places: KeyValuePairs<String, String>) -> String {
            places.reduce(text) { $0.replacing($1.key, with: $1.value) }
        }

        @Test("its services, as plain processes, send the job that is enqueued there")
        func works() async throws {
            let compose = try DeployFolder.yaml("compose.yaml").at("services")
            let folder = try ConfigurationTests.Folder()
            let certificates = folder.url.appending(path: "certificates").path
            let (port, control) = (try RedisServer.freePort(), try RedisServer.freePort())

            let command = try compose.list("redis/command").map { try $0.text() }
            #expect(command.first == "redis-server")
            let redis = try RedisServer(arguments: Array(command.dropFirst().prefix { $0 != "--dir" }))

            #expect(try compose.text("simulator/build/target") == "simulator")
            let options = try compose.list("simulator/command").map {
                try Self.here(
                    $0.text(),
                    [
                        "0.0.0.0": "127.0.0.1", "--port=8443": "--port=\(port)",
                        "--control-port=8444": "--control-port=\(control)", "=simulator": "=simulator.example",
                        "/var/lib/apns-simulator": certificates,
                    ])
            }
            let simulator = try ChildProcess(BuiltProgram.path("apns-simulator"), options)
            try await eventually("the simulator listens") {
                if let ending = simulator.ending { throw simulator.failure("ended with \(ending)") }
                return simulator.output.hasSuffix("\n")
            }
            let health = try compose.list("simulator/healthcheck/test").dropFirst().map {
                try Self.here($0.text(), ["/8444": "/\(control)"])
            }
            let check = try ChildProcess(health[0], Array(health.dropFirst()))
            #expect(try await check.wait() == .exited(0), "\(check.errors)")

            let environment = try compose.texts("worker/environment").mapValues {
                Self.here(
                    $0,
                    [
                        "redis://redis:6379": redis.url, "simulator:8443": "localhost:\(port)",
                        "/var/lib/apns-simulator": certificates,
                    ])
            }
            let count = try compose.number("worker/deploy/replicas")
            #expect(count == 2)
            let workers = try (0..<count).map { _ in
                try ChildProcess(BuiltProgram.path("apns-worker"), ["run"], environment: environment)
            }
            let example = try #require(
                try DeployFolder.text("compose.yaml").firstMatch(of: /exec worker apns-worker (enqueue .*)\n/)
            ).1.split(separator: " ").map(String.init)
            let enqueued = try await CommandLineTests.run(example, environment: environment)
            #expect(enqueued.ending == .exited(0), "\(enqueued.errors)")
            let url = try #require(
                try DeployFolder.text("compose.yaml").firstMatch(of: /curl 'http:\/\/127.0.0.1:8444(.*)'/)
            ).1.replacing("wait=10", with: "wait=60")
            let curl = try ChildProcess("curl", ["-sS", "--fail", "http://127.0.0.1:\(control)\(url)"])
            #expect(try await curl.wait(within: .seconds(90)) == .exited(0), "\(curl.errors)")
            #expect(curl.output.contains(example[2]) && curl.output.contains(#""accepted":true"#), "\(curl.output)")
            for worker in workers {
                // Not before it has begun to look after signals.
                try await eventually("it works") { worker.errors.contains("started") }
                worker.send(SIGTERM)
                #expect(try await worker.wait() == .exited(0), "\(worker.errors)")
            }
            simulator.send(SIGTERM)
            #expect(try await simulator.wait() == .exited(0))
        }

        @Test("containers cannot write, have no rights, and those of the worker have the time that a drain may take")
        func hardening() throws {
            let compose = try DeployFolder.yaml("compose.yaml")
            let hardened = try compose.at("x-hardened")
            #expect(try hardened.text("read_only") == "true")
            #expect(try hardened.list("cap_drop").map { try $0.text() } == ["ALL"])
            #expect(try DeployFolder.text("compose.yaml").matches(of: /<<: \*hardened/).count == 3)
            let grace = try compose.text("services/worker/stop_grace_period")
            #expect(try #require(Int(grace.dropLast())) > 25 + 2 + 5 && grace.hasSuffix("s"))
        }
    }
}
