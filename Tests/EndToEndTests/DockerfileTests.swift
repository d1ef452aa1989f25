import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The image")
    struct DockerfileTests {
        /// Returns the instructions with their arguments; continued lines are joined.
        private static func instructions() throws -> [(name: String, rest: String)] {
            let lines = try DeployFolder.text("Dockerfile").split(separator: "\n").filter {
                !$0.drop { $0 == " " }.hasPrefix("#")
            }
            let text = lines.joined(separator: "\n").replacing("\\\n", with: " ")
            return text.split(separator: "\n").map { line in
                let parts = line.split(separator: " ", maxSplits: 1).map(String.init)
                return (parts[0], parts.count == 2 ? parts[1] : "")
            }
        }

        /// Returns the Debian packages that the last stage installs.
        private static func packages() throws -> Set<String> {
            let last = try #require(try instructions().last { $0.rest.contains("apt-get install") }).rest
            let install = try #require(last.split(separator: "&&").first { $0.contains("apt-get install") })
            return Set(
                install.split(separator: " ").map(String.init).filter { !$0.hasPrefix("-") }
                    .drop { $0 != "install" }.dropFirst())
        }

        private static func output(_ program: String, _ arguments: [String]) async throws -> String {
            let process = try ChildProcess(program, arguments)
            #expect(try await process.wait() == .exited(0), "\(process.errors)")
            return process.output
        }

        @Test(
            "it has the packages of all libraries that the programs are linked with",
            arguments: ["worker", "simulator"])
        func libraries(program: String) async throws {
            let path = try BuiltProgram.path("apns-\(program)")
            let needed: [String] = try await Self.output("readelf", ["--dynamic", path]).matches(
                of: /\(NEEDED\).*\[(.*)\]/
            ).map { String($0.1) }
            // Swift's own libraries are linked statically in the image.
            let system = needed.filter {
                $0.firstMatch(of: /^lib(_?Foundation|swift|_Internat|_Testing|dispatch|Blocks)/) == nil
            }
            #expect(system.contains { $0.hasPrefix("libnghttp2") } && system.contains { $0.hasPrefix("libssl") })
            let packages = try Self.packages()
            for library in system {
                // Every Debian has libc.
                if try await Self.output("dpkg-query", ["--search", "*/\(library)"]).contains("libc6:") { continue }
                let owners = try await Self.output("dpkg-query", ["--search", "*/\(library)"])
                    .split(separator: "\n").map { String($0.prefix { $0 != ":" }) }
                #expect(owners.contains { packages.contains($0) || $0 == "libgcc-s1" }, "\(library) of \(owners)")
            }
        }

        @Test("it has the module for old PKCS#12 files")
        func legacyModule() async throws {
            let owner = try await Self.output("dpkg-query", ["--search", "*/ossl-modules/legacy.so"])
            #expect(try Self.packages().contains(String(owner.prefix { $0 != ":" })), "\(owner)")
        }

        @Test("every copied file exists and is not excluded by .dockerignore")
        func copies() throws {
            let ignored = try String(contentsOf: DeployFolder.root.appending(path: ".dockerignore"), encoding: .utf8)
                .split(separator: "\n").filter { !$0.hasPrefix("#") }
            #expect(ignored.first == "*")
            let copies = try Self.instructions().filter { $0.name == "COPY" && !$0.rest.hasPrefix("--from") }
            #expect(copies.count == 4)
            for copy in copies {
                // Package.resolved is optional.
                let source = copy.rest.prefix { $0 != " " }.replacing("*", with: "swift")
                #expect(FileManager.default.fileExists(atPath: DeployFolder.root.appending(path: source).path))
                #expect(ignored.contains("!\(source)"), "\(source)")
            }
        }

        @Test("one version of Swift is named everywhere, and all stages use the same release of Debian")
        func versions() throws {
            let bases = try Self.instructions().filter { $0.name == "FROM" }.map(\.rest)
            #expect(bases.dropFirst(2).allSatisfy { $0.hasPrefix("runtime AS ") })
            let swift = try #require(bases.first?.wholeMatch(of: /swift:(\d+\.\d+)\.\d+-(\w+) AS build/))
            #expect(bases[1] == "debian:\(swift.2)-slim AS runtime")
            let manifest = try Self.file("Package.swift")
            let tools = try #require(manifest.firstMatch(of: /swift-tools-version: ([0-9.]+)/)).1
            #expect(tools == swift.1)
            var texts = ["README.md", "CONTRIBUTING.md", "scripts/lib.sh"]
            for text in texts + ["docs/getting-started.md"] {
                #expect(try Self.file(text).contains("Swift \(swift.1) or later"), "\(text)")
            }
            texts += try FileManager.default.contentsOfDirectory(atPath: DeployFolder.root.appending(path: "docs").path)
                .filter { $0.hasSuffix(".md") }.map { "docs/\($0)" }
            for text in texts {
                for named in try Self.file(text).matches(of: /Swift (\d+\.\d+)/) {
                    #expect(named.1 == swift.1, "\(text)")
                }
            }
        }

        private static func file(_ path: String) throws -> String {
            try String(contentsOf: DeployFolder.root.appending(path: path), encoding: .utf8)
        }

        @Test("its health check passes for a healthy worker and fails without one")
        func healthCheck() async throws {
            let instructions = try Self.instructions()
            let check = try #require(instructions.last { $0.name == "HEALTHCHECK" }).rest
            let command = try #require(check.firstMatch(of: /CMD \["apns-worker", "(.*)"\]/)).1
            let variable = try #require(instructions.last { $0.name == "ENV" }).rest.split(separator: "=")
            #expect(
                variable.first == "APNS_WORKER_ADMIN_PORT"
                    && instructions.contains { $0 == ("EXPOSE", String(variable[1])) })
            #expect(instructions.contains { $0 == ("USER", "65532:65532") })
            // A free port, because the image's may be in use here.
            let environment = ["APNS_WORKER_ADMIN_PORT": "\(try RedisServer.freePort())"]
            let arguments = command.split(separator: " ").map(String.init)
            let none = try await CommandLineTests.run(arguments, environment: environment)
            #expect(none.ending == .exited(1), "\(none.output)")
            let redis = try RedisServer()
            let simulator = try await SimulatorProcess()
            let worker = try WorkerProcess(redis: redis.url, endpoint: simulator.port, environment: environment)
            try await eventually("it is well") {
                try await CommandLineTests.run(arguments, environment: environment).ending == .exited(0)
            }
            _ = try await worker.stop()
        }

        @Test("a worker works without any of root's capabilities")
        func withoutRights() async throws {
            let redis = try RedisServer()
            let simulator = try await SimulatorProcess()
            try redis.push(TestJob.many(5))
            let worker = try WorkerProcess(
                redis: redis.url, endpoint: simulator.port, options: ["--exit-when-done"], hasRights: false)
            #expect(try await worker.finish().delivered == 5, "\(worker.log)")
        }
    }
}
