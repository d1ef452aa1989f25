import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The image")
    struct DockerfileTests {
        /// Returns the instructions of the Dockerfile with their arguments. Joins continued lines.
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

        @Test("the packages of the libraries are those that the build names")
        func libraries() throws {
            let install = try #require(try Self.instructions().last { $0.rest.contains("apt-get install") }).rest
            #expect(install.contains("$(sed 's/|[^,]*//g; s/([^)]*)//g; s/,/ /g' /usr/share/doc/apns-worker/depends)"))
            #expect(!install.contains(/lib(hiredis|ssl|nghttp2|yaml)/))
            let flags = try Self.instructions().filter { $0.name == "RUN" }.map(\.rest)
            #expect(!flags.contains { $0.contains("swift build") }, "scripts/lib.sh names the flags")
        }

        @Test("every copied file exists and is not excluded by .dockerignore")
        func copies() throws {
            let ignored = try Repository.text(".dockerignore")
                .split(separator: "\n").filter { !$0.hasPrefix("#") }
            #expect(ignored.first == "*")
            let copies = try Self.instructions().filter { $0.name == "COPY" && !$0.rest.hasPrefix("--from") }
            #expect(copies.count == 6)
            for source in copies.flatMap({ $0.rest.split(separator: " ").dropLast() }) {
                #expect(FileManager.default.fileExists(atPath: Repository.path(source)))
                #expect(ignored.contains("!\(source)"), "\(source)")
            }
        }

        @Test("one version of Swift is named everywhere, and all stages use the same release of Debian")
        func versions() throws {
            let bases = try Self.instructions().filter { $0.name == "FROM" }.map(\.rest)
            #expect(
                bases == [
                    "swift:${SWIFT}-bookworm AS toolchain", "debian:${DEBIAN}-slim AS build",
                    "debian:${DEBIAN}-slim AS runtime", "runtime AS simulator", "runtime AS worker",
                ])
            let arguments = try Self.instructions().filter { $0.name == "ARG" }.map(\.rest)
            let swift = try #require(arguments.compactMap { $0.wholeMatch(of: /SWIFT=((\d+\.\d+)\.\d+)/) }.first)
            #expect(try Repository.text("scripts/versions.txt").contains(Regex("\nswift +\(swift.1) ")))
            let releases = try #require(
                try Repository.text("scripts/package.d/lib.sh").firstMatch(of: /\ndebian_releases=\((.*)\)/)
            ).1.split(separator: " ")
            #expect(try arguments.contains("DEBIAN=\(#require(releases.last))"))
            let manifest = try Repository.text("Package.swift")
            let tools = try #require(manifest.firstMatch(of: /swift-tools-version: ([0-9.]+)/)).1
            #expect(tools == swift.2)
            var texts = ["README.md", "CONTRIBUTING.md", "scripts/lib.sh"]
            for text in texts + ["docs/getting-started.md"] {
                #expect(try Repository.text(text).contains("Swift \(swift.2) or later"), "\(text)")
            }
            texts += try FileManager.default.contentsOfDirectory(atPath: Repository.path("docs"))
                .filter { $0.hasSuffix(".md") }.map { "docs/\($0)" }
            for text in texts {
                for named in try Repository.text(text).matches(of: /Swift (\d+\.\d+)/) {
                    #expect(named.1 == swift.2, "\(text)")
                }
            }
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
            // The port of the image may be in use on this machine.
            let environment = ["APNS_WORKER_ADMIN_PORT": "\(try RedisServer.freePort())"]
            let arguments = command.split(separator: " ").map(String.init)
            try await CommandLineTests.run(arguments, environment: environment).fails(1)
            let (redis, simulator) = try await startServers()
            let worker = try WorkerProcess(redis, simulator, environment: environment)
            try await eventually("it is well") {
                try await CommandLineTests.run(arguments, environment: environment).ending == .exited(0)
            }
            _ = try await worker.stop()
        }

        @Test("a worker works without any of root's capabilities")
        func withoutRights() async throws {
            let (redis, simulator) = try await startServers()
            try redis.push(TestJob.many(5))
            let worker = try WorkerProcess(
                redis: redis.url, endpoint: simulator.port, options: ["--exit-when-done"], hasRights: false)
            #expect(try await worker.finish().delivered == 5, "\(worker.log)")
        }
    }
}
