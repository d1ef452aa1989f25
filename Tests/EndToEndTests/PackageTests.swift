import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// The parts of `scripts/package` that need no release build. `scripts/package test` builds, installs and starts
    /// the packages.
    @Suite("Packages")
    struct PackageTests {
        /// Returns the names of the manual pages of a command and of its subcommands.
        private static func pages(_ command: DocumentedCommand, _ parents: [String] = []) -> [String] {
            let names = parents + [command.commandName]
            return ["\(names.joined(separator: "-")).1"] + command.children.flatMap { pages($0, names) }
        }

        private static func output(_ program: String, _ arguments: [String]) async throws -> String {
            let process = try ChildProcess(program, arguments)
            #expect(try await process.wait() == .exited(0), "\(process.errors)")
            return process.output
        }

        @Test(
            "each command has a manual page that groff formats without a warning", arguments: ["worker", "simulator"])
        func manual(_ name: String) async throws {
            let program = try BuiltProgram.path("apns-\(name)")
            let folder = try ConfigurationTests.Folder()
            let help = try await Self.output(program, ["--experimental-dump-help"])
            try folder.write(help, as: "help.json")
            let script = DeployFolder.root.appending(path: "scripts/package.d/manual.py").path
            _ = try await Self.output(
                "/bin/sh",
                ["-c", "exec python3 -B \"$1\" \"$2\" 1.2.3 0 <\"$2/help.json\"", "sh", script, folder.url.path])
            let expected = Self.pages(try DocumentedCommand(help: help))
            #expect(expected.count > (name == "worker" ? 20 : 0))
            let made = try FileManager.default.contentsOfDirectory(atPath: folder.url.path).filter {
                $0.hasSuffix(".1")
            }
            #expect(made.sorted() == expected.sorted())
            let groff = try ChildProcess(
                "groff", ["-man", "-Tutf8", "-ww", "-Wbreak", "-z"] + made.map { folder.url.appending(path: $0).path })
            #expect(try await groff.wait() == .exited(0))
            #expect(groff.errors.isEmpty, "\(groff.errors)")
        }

        @Test("bash reads the completions; those of other shells are generated", arguments: ["worker", "simulator"])
        func completions(_ name: String) async throws {
            let program = try BuiltProgram.path("apns-\(name)")
            let folder = try ConfigurationTests.Folder()
            try folder.write(try await Self.output(program, ["--generate-completion-script", "bash"]), as: "bash")
            _ = try await Self.output("bash", ["-n", folder.url.appending(path: "bash").path])
            #expect(try await Self.output(program, ["--generate-completion-script", "zsh"]).hasPrefix("#compdef"))
            #expect(try await Self.output(program, ["--generate-completion-script", "fish"]).contains("apns-\(name)"))
        }

        @Test("an archive of the commit names it in the file that programs read")
        func commit() async throws {
            let root = DeployFolder.root.path
            // A source that is not a clone is already an archive.
            guard FileManager.default.fileExists(atPath: "\(root)/.git") else { return }
            let commit = try await Self.output("git", ["-C", root, "rev-parse", "HEAD"])
            let archive = "git -C \"$1\" archive HEAD Sources/PushWorker/Build/commit.txt | tar --extract --to-stdout"
            #expect(try await Self.output("/bin/sh", ["-c", archive, "sh", root]) == commit)
        }
    }
}
