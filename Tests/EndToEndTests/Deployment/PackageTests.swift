import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// The parts of `scripts/package` that need no release build. `scripts/package test` builds and installs packages, and starts their
    /// programs.
    @Suite("Packages")
    struct PackageTests {
        /// Returns the names of the manual pages of a command and its subcommands.
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
            let folder = try TemporaryFolder()
            let help = try await Self.output(program, ["--experimental-dump-help"])
            try folder.write(help, as: "help.json")
            let script = Repository.path("scripts/package.d/manual.py")
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
            let folder = try TemporaryFolder()
            try folder.write(try await Self.output(program, ["--generate-completion-script", "bash"]), as: "bash")
            _ = try await Self.output("bash", ["-n", folder.path("bash")])
            #expect(try await Self.output(program, ["--generate-completion-script", "zsh"]).hasPrefix("#compdef"))
            #expect(try await Self.output(program, ["--generate-completion-script", "fish"]).contains("apns-\(name)"))
        }

        @Test("--help of each script prints its usage, and builds nothing")
        func scripts() async throws {
            let folder = try TemporaryFolder()
            let swift = folder.url.appending(path: "swift")
            try folder.write("#!/bin/sh\ntouch \"$0.started\"\nexit 1\n", as: "swift")
            try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: swift.path)
            let directory = Repository.path("scripts")
            let scripts = try FileManager.default.contentsOfDirectory(atPath: directory).filter {
                !$0.contains(".")
            }
            #expect(scripts.count > 10)
            for script in scripts {
                let help = try await Self.output(
                    "/bin/sh",
                    ["-c", "PATH=$1:$PATH exec \"$2\" --help", "sh", folder.url.path, "\(directory)/\(script)"])
                #expect(help.contains(script), "\(script): \(help)")
            }
            #expect(!FileManager.default.fileExists(atPath: swift.path + ".started"))
        }

        @Test("an archive of the commit names it in the file that programs read")
        func commit() async throws {
            let root = Repository.root.path
            // A source without .git is already an archive.
            guard FileManager.default.fileExists(atPath: "\(root)/.git") else { return }
            let commit = try await Self.output("git", ["-C", root, "rev-parse", "HEAD"])
            let archive = "git -C \"$1\" archive HEAD Sources/PushWorker/Build/commit.txt | tar --extract --to-stdout"
            #expect(try await Self.output("/bin/sh", ["-c", archive, "sh", root]) == commit)
        }

        // MARK: Versions

        /// Returns the names, versions, licences and URLs of `scripts/versions.txt`.
        private static func versions() throws -> [[String]] {
            try Repository.text("scripts/versions.txt").split(separator: "\n").filter { !$0.hasPrefix("#") }.map {
                $0.split(separator: " ").map(String.init)
            }
        }

        @Test("the build has the versions of the file, and the file names each with its licence")
        func versions() async throws {
            let versions = try Self.versions()
            #expect(versions.count > 20 && versions.allSatisfy { $0.count == 4 && $0[3].hasPrefix("https://") })
            #expect(Set(versions.map { $0[2] }).isSubset(of: ["Apache-2.0", "MIT"]))
            #expect(Set(versions.map { $0[0] }).count == versions.count)
            _ = try await Self.output(Repository.path("scripts/versions"), ["check"])
        }

        /// Copies the parts of the repository that choose versions.
        private static func copy() throws -> TemporaryFolder {
            let folder = try TemporaryFolder()
            try FileManager.default.createDirectory(
                at: folder.url.appending(path: "scripts"), withIntermediateDirectories: true)
            for file in ["lib.sh", "versions", "versions.txt"] {
                try FileManager.default.copyItem(
                    at: Repository.root.appending(path: "scripts/\(file)"),
                    to: folder.url.appending(path: "scripts/\(file)"))
            }
            return folder
        }

        @Test(
            "other versions that were resolved earlier are replaced by those of the file, and a missing one is an error"
        )
        func pinned() async throws {
            let folder = try Self.copy()
            let resolved = folder.url.appending(path: "Package.resolved")
            let script = ["-c", "cd '\(folder.url.path)' && source scripts/lib.sh && pin_versions"]
            _ = try await Self.output("bash", script)
            let first = try String(contentsOf: resolved, encoding: .utf8)
            for version in try Self.versions() where version[0] != "swift" {
                #expect(first.contains("\"location\" : \"\(version[3])\""))
                #expect(first.contains("\"version\" : \"\(version[1])\""))
            }
            // If only the commit differs, as with a mirror, the version stays. If the version differs, it is corrected.
            try first.replacing(/"revision" : "[0-9a-f]*"/, with: "\"revision\" : \"0\"").write(
                to: resolved, atomically: true, encoding: .utf8)
            _ = try await Self.output("bash", script)
            #expect(try String(contentsOf: resolved, encoding: .utf8).contains("\"revision\" : \"0\""))
            try first.replacing(/"version" : "[0-9.]*"/, with: "\"version\" : \"0.0.1\"").write(
                to: resolved, atomically: true, encoding: .utf8)
            _ = try await Self.output("bash", script)
            #expect(try String(contentsOf: resolved, encoding: .utf8) == first)
            let list = folder.url.appending(path: "scripts/versions.txt")
            let text = try String(contentsOf: list, encoding: .utf8)
            try text.replacing(/(swift-log +)[0-9.]+/) { "\($0.1)999.0.0" }.write(
                to: list, atomically: true, encoding: .utf8)
            let failing = try ChildProcess("bash", script)
            #expect(try await failing.wait() == .exited(1))
            #expect(failing.errors.contains("swift-log.git has no version 999.0.0, which scripts/versions.txt names"))
            #expect(try String(contentsOf: resolved, encoding: .utf8) == first, "the last good file stays")
        }

        @Test("the bill of materials names the packages that are linked, and those of the libraries, with licences")
        func bill() async throws {
            struct Bill: Decodable {
                struct License: Decodable { let id, name: String? }
                struct Choice: Decodable { let license: License }
                struct Component: Decodable { let name, version, purl: String, licenses: [Choice]? }
                struct Program: Decodable { let version: String }
                struct Metadata: Decodable { let component: Program }
                let bomFormat, specVersion: String, metadata: Metadata, components: [Component]
            }
            let folder = try TemporaryFolder()
            // The package is libssl3t64 in Debian 13.
            let ssl = FileManager.default.fileExists(atPath: "/usr/share/doc/libssl3t64") ? "libssl3t64" : "libssl3"
            try folder.write("libc6 (>= 2.36), \(ssl) (>= 3.0.0), libgcc-s1 | libc6 (<< 1)\n", as: "depends")
            try folder.write("0.1.0+abc\n", as: "version")
            let programs = URL(filePath: try BuiltProgram.path("apns-worker")).deletingLastPathComponent()
            let script = Repository.path("scripts/package.d/sbom.py")
            let command = "cd \"$1\" && exec python3 -B \"$2\" \"$3\" \"$4\""
            var texts: Set<String> = []
            for _ in 0..<2 {
                let run = try ChildProcess(
                    "/bin/sh", ["-c", command, "sh", Repository.root.path, script, programs.path, folder.url.path],
                    environment: ["SOURCE_DATE_EPOCH": "1795279247"])
                #expect(try await run.wait() == .exited(0), "\(run.errors)")
                texts.insert(try String(contentsOf: folder.url.appending(path: "sbom.cdx.json"), encoding: .utf8))
            }
            #expect(texts.count == 1, "the same build has the same bill")
            let bill = try JSONDecoder().decode(Bill.self, from: Data(try #require(texts.first).utf8))
            #expect(bill.bomFormat == "CycloneDX" && bill.specVersion == "1.6")
            #expect(bill.metadata.component.version == "0.1.0+abc")
            let names = bill.components.map(\.name)
            #expect(Set(names).isSuperset(of: ["swift", "swift-nio", "swift-log", "hummingbird", "libc6", ssl]))
            #expect(!names.contains("yams") && names.filter { $0 == "libc6" }.count == 1, "tests alone use Yams")
            let versions = try Self.versions()
            for component in bill.components where component.purl.hasPrefix("pkg:swift/") {
                let named = try #require(versions.first { $0[0] == component.name })
                #expect(component.version == named[1] && component.licenses?.first?.license.id == named[2])
                #expect(component.purl.hasSuffix("@\(named[1])"))
            }
            let openSSL = try #require(bill.components.first { $0.name == ssl })
            #expect(openSSL.purl.hasPrefix("pkg:deb/debian/\(ssl)@3.") && openSSL.licenses != nil)
        }

        @Test("the newest release of the changelog, with its date, is that of the programs and of the chart")
        func release() async throws {
            let changelog = try Repository.text("CHANGELOG.md")
            let newest = try #require(changelog.firstMatch(of: /\n## (\d+\.\d+\.\d+) – \d{4}-\d\d-\d\d\n/)).1
            let version = try await Self.output(BuiltProgram.path("apns-worker"), ["--version"])
            #expect(version.hasPrefix("\(newest)+") || version == "\(newest)\n")
        }
    }
}
