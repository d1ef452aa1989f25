import Foundation
import RegexBuilder
import TestSupport
import Testing

extension EndToEnd {
    /// Runs the commands of each page in order, as printed, including the ports. Each page has its own network and folder, and a Redis on
    /// port 6379.
    @Suite("The commands of the documentation", .enabled(if: Sandbox.isPermitted, "unshare(1) is not permitted here"))
    struct DocumentationCommandTests {
        @Test("run and print the output that the page shows", arguments: DocumentationPage.names)
        func run(name: String) async throws {
            let page = try DocumentationPage(name)
            let steps = try page.steps()
            guard !steps.isEmpty else { return }
            let sandbox = try Sandbox(page, steps)
            let failure = try await sandbox.run()
            #expect(failure == nil, "\(failure ?? "")")
            for (index, step) in steps.enumerated() where !step.shown.isEmpty {
                let output = try sandbox.output(of: index)
                let actual = output.map(Self.shape)
                for line in step.shown where !line.trimmingCharacters(in: .whitespaces).isEmpty {
                    let shown = Self.shape(line)
                    #expect(
                        actual.contains { Self.matches($0, shown) },
                        "\(name):\(step.line) does not print: \(line)\n\(output.joined(separator: "\n"))")
                }
            }
        }

        @Test(
            "the commands of the first pages work without hidden ones, which only wait",
            arguments: DocumentationPage.typedPages)
        func hidden(name: String) throws {
            for line in try DocumentationPage(name).lines {
                guard let command = line.wholeMatch(of: /<!-- run: (.*) -->/)?.1 else { continue }
                let loops = command.split(separator: "; until ")
                let onlyWaits = loops.allSatisfy { $0.hasSuffix("do sleep 0.1; done") }
                #expect(command.hasPrefix("until ") && onlyWaits, "\(line)")
            }
        }

        /// Returns a line without the parts that differ between runs: times, rates, use of memory, identifiers, process IDs, and widths
        /// of columns. All other numbers must be those of the page.
        private static func shape(_ line: String) -> String {
            let number = /[0-9]+([.,][0-9]+)*/
            return line.replacing(/[0-9a-f]{8}-[0-9a-f-]{27}/, with: "#").replacing(/\b[0-9a-f]{8,}\b/, with: "#")
                .replacing(/[0-9]{4}-[0-9]{2}-[0-9]{2}/, with: "#").replacing(
                    /[0-9]{1,2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?/, with: "#"
                )
                .replacing(/\bvm\.[0-9]+/, with: "#").replacing(
                    Regex {
                        number; " of "; number; " MiB"
                    }, with: "#"
                )
                .replacing(
                    Regex {
                        number; /[ ]?(ms|s|min|h|d|B|KB|MB|KiB|MiB|GiB)\b/
                    }, with: "#"
                )
                .replacing(
                    Regex {
                        number; /(\/s| (more )?per second)/
                    }, with: "#"
                )
                .replacing(/[ ]+/, with: " ").trimmingCharacters(in: .whitespaces)
        }

        /// True if a line matches the page's line, where `…` stands for any text.
        private static func matches(_ line: String, _ shown: String) -> Bool {
            var rest = line[...]
            let pieces = shown.split(separator: "…", omittingEmptySubsequences: false)
            for (index, piece) in pieces.enumerated() {
                if index == 0 {
                    guard rest.hasPrefix(piece) else { return false }
                    rest = rest.dropFirst(piece.count)
                } else if index == pieces.count - 1, !piece.isEmpty {
                    return rest.hasSuffix(piece)
                } else {
                    guard let range = rest.firstRange(of: piece) else { return piece.isEmpty }
                    rest = rest[range.upperBound...]
                }
            }
            return pieces.count > 1 || rest.isEmpty
        }
    }
}

private struct Sandbox {
    private static let unshare: [String] = {
        let options = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        return geteuid() == 0 ? options : ["--user", "--map-root-user"] + options
    }()

    static let isPermitted: Bool = {
        let process = Process()
        process.executableURL = URL(filePath: "/usr/bin/unshare")
        process.arguments = unshare + ["true"]
        process.standardError = FileHandle.nullDevice
        guard (try? process.run()) != nil else { return false }
        process.waitUntilExit()
        return process.terminationStatus == 0
    }()

    private let folder: TemporaryFolder
    private let script: String

    init(_ page: DocumentationPage, _ steps: [DocumentationStep]) throws {
        folder = try TemporaryFolder()
        let work = folder.url.appending(path: "work")
        let outputs = folder.url.appending(path: "outputs")
        for directory in [work, outputs, folder.url.appending(path: "home")] {
            try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        }
        let programs = URL(filePath: try BuiltProgram.path("apns-worker")).deletingLastPathComponent().path
        var lines = [
            "cd \(Self.quoted(work.path))",
            "export PATH=\(Self.quoted(programs)):$PATH:/usr/sbin HOME=\(Self.quoted(folder.path("home"))) TMPDIR=\(Self.quoted(folder.url.path))",
            "export REPOSITORY=\(Self.quoted(Repository.root.path))",
            "ip link set lo up || exit 1",
            "redis-server --save '' --daemonize yes --dir . >/dev/null || exit 1",
            "until redis-cli ping >/dev/null 2>&1; do sleep 0.05; done",
            "fail() { printf '%s: exit status %s\\n' \"$1\" \"$2\"; tail -n 30 \"$3\"; exit 1; }",
        ]
        for (index, step) in steps.enumerated() {
            let output = Self.quoted(outputs.appending(path: "\(index)").path)
            let place = Self.quoted("\(page.name):\(step.line)")
            switch step.action {
            case .file(let name, let contents):
                try contents.write(to: work.appending(path: name), atomically: true, encoding: .utf8)
            case .command(let text, let status):
                lines.append("eval \(Self.quoted(text)) >\(output) 2>&1; status=$?")
                lines.append("[ $status -eq \(status) ] || fail \(place) $status \(output)")
            case .endless(let text):
                lines.append(
                    "eval \(Self.quoted("timeout --preserve-status --signal INT 2 " + text)) >\(output) 2>&1; status=$?"
                )
                lines.append("[ $status -eq 0 ] || [ $status -eq 130 ] || fail \(place) $status \(output)")
            }
        }
        script = lines.joined(separator: "\n") + "\n"
    }

    /// - Returns: the step that failed, with the end of its output; `nil` if all succeed.
    func run() async throws -> String? {
        let file = try folder.write(script, as: "script")
        let process = try ChildProcess("unshare", Self.unshare + ["bash", file])
        let ending = try await process.wait()
        return ending == .exited(0) ? nil : process.output + process.errors
    }

    func output(of step: Int) throws -> [String] {
        // Drops erased lines of progress.
        try String(contentsOf: folder.url.appending(path: "outputs/\(step)"), encoding: .utf8).split(separator: "\n")
            .map { String($0).replacing(/.*\r\u{1B}\[K/, with: "") }
    }

    private static func quoted(_ text: String) -> String { "'" + text.replacing("'", with: "'\\''") + "'" }
}
