import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The systemd unit of the worker")
    struct SystemdUnitTests {
        private static let name = "apns-worker.service"

        /// Returns a copy of a unit with an existing program, because systemd-analyze checks the program.
        private static func copy(_ name: String) throws -> (folder: TemporaryFolder, path: String) {
            let folder = try TemporaryFolder()
            let text = try DeployFolder.text("systemd/\(name)")
                .replacing("/usr/local/bin/apns-worker", with: "/bin/true")
            return (folder, try folder.write(text, as: name))
        }

        @Test("systemd accepts it")
        func verify() async throws {
            let (folder, path) = try Self.copy(Self.name)
            let verify = try ChildProcess("systemd-analyze", ["verify", "--man=no", path])
            #expect(try await verify.wait() == .exited(0))
            #expect(verify.errors.isEmpty, "\(verify.errors)")
            withExtendedLifetime(folder) {}
        }

        @Test(
            "systemd-analyze security rates its exposure at 1.5 of 10 or less",
            arguments: [name, "apns-worker-feedback.service"])
        func exposure(name: String) async throws {
            let (folder, path) = try Self.copy(name)
            // The threshold is in tenths: 15 is the score 1.5.
            let security = try ChildProcess(
                "systemd-analyze", ["security", "--offline=true", "--no-pager", "--threshold=15", path])
            #expect(try await security.wait() == .exited(0), "\(security.output)\(security.errors)")
            #expect(security.output.contains("Overall exposure level"))
            withExtendedLifetime(folder) {}
        }

        @Test(
            "a forbidden system call is an error and not a kill: Swift's runtime makes one at each start",
            arguments: [name, "apns-worker-feedback.service"])
        func systemCalls(name: String) throws {
            let unit = try DeployFolder.unit(name)
            #expect(unit.contains { $0 == ("SystemCallErrorNumber", "EPERM") })
            #expect(unit.contains { $0.key == "SystemCallFilter" })
        }

        @Test("a worker can start with its settings and those of worker.yaml")
        func settings() async throws {
            let unit = try DeployFolder.unit(Self.name)
            let start = try #require(unit.first { $0.key == "ExecStart" }).value
            #expect(start == "/usr/local/bin/apns-worker run --config /etc/apns-worker/worker.yaml")
            let key = try TestCertificates.path("AuthKey_ABC123DEFG.p8")
            var environment: [String: String] = [:]
            for (name, value) in unit where name == "Environment" {
                let parts = value.split(separator: "=", maxSplits: 1).map(String.init)
                environment[parts[0]] = parts[1].replacing("%d/signing-key.p8", with: key)
            }
            #expect(environment["APNS_WORKER_KEY"] == key)
            let loaded = unit.filter { $0.key == "LoadCredential" }.map(\.value)
            #expect(loaded == ["signing-key.p8:/etc/apns-worker/signing-key.p8"])
            try await CommandLineTests.run(
                ["config", "--given", "--config", DeployFolder.url("systemd/worker.yaml").path],
                environment: environment
            ).succeeds("com.example.shop", "9464")
        }

        @Test("systemd allows enough time for a drain, and its watchdog is slower than the detection of a stuck loop")
        func times() throws {
            let unit = try DeployFolder.unit(Self.name)
            func seconds(_ key: String) throws -> Int {
                let value = try #require(unit.last { $0.key == key }).value
                return try #require(Int(value.trimmingSuffix { $0 == "s" }), "\(key)")
            }
            // systemd waits for longer than the default drain timeout and the last settlements take.
            #expect(try seconds("TimeoutStopSec") > 25 + 2 + 10)
            #expect(try seconds("WatchdogSec") > 10 * 2)
            #expect(unit.contains { $0 == ("Type", "notify") } && unit.contains { $0 == ("Restart", "always") })
        }
    }
}

extension String {
    fileprivate func trimmingSuffix(_ isLeftOut: (Character) -> Bool) -> String {
        String(reversed().drop(while: isLeftOut).reversed())
    }
}
