import Foundation
import TestSupport

struct DocumentationPage: Sendable {
    /// The path from the top of the repository, such as `docs/jobs.md`.
    let name: String
    let text: String

    var lines: [Substring] { text.split(separator: "\n", omittingEmptySubsequences: false) }

    init(_ name: String) throws {
        self.name = name
        text = try Repository.text(name)
    }

    /// The pages in the root of the repository and in docs/.
    static let names: [String] = {
        let docs =
            (try? FileManager.default.contentsOfDirectory(atPath: Repository.path("docs")))
        return ["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"]
            + (docs ?? []).filter { $0.hasSuffix(".md") }.sorted().map { "docs/\($0)" }
    }()

    /// The anchors of the page: its headings as GitHub names them, and the values of `<a id="…">`.
    var anchors: Set<String> {
        var anchors: Set<String> = []
        var isInBlock = false
        for line in lines {
            if line.hasPrefix("```") { isInBlock.toggle() }
            if !isInBlock, line.hasPrefix("#") {
                let heading = line.drop { $0 == "#" }.trimmingCharacters(in: .whitespaces)
                let slug = Self.slug(heading)
                var (unique, number) = (slug, 0)
                while anchors.contains(unique) {
                    number += 1
                    unique = "\(slug)-\(number)"
                }
                anchors.insert(unique)
            }
            for match in line.matches(of: /<a id="([^"]+)">/) { anchors.insert(String(match.1)) }
        }
        return anchors
    }

    private static func slug(_ heading: String) -> String {
        let plain = heading.replacing(/\[([^\]]*)\]\([^)]*\)/) { $0.1 }
        return plain.lowercased().compactMap { character in
            if character == " " { return "-" }
            return character.isLetter || character.isNumber || "-_".contains(character) ? String(character) : nil
        }.joined()
    }
}

/// A step of a page's console blocks.
struct DocumentationStep {
    enum Action {
        case command(String, status: Int)
        /// A command that runs until it is interrupted.
        case endless(String)
        case file(String, contents: String)
    }

    let line: Int
    let action: Action
    /// The output on the page; empty if there is none, or if it is an example.
    var shown: [String] = []
}

extension DocumentationPage {
    /// The commands of these pages work as a reader types them, from the first to the last page. `scripts/package test` types them in a
    /// new Debian.
    static let typedPages = ["README.md", "docs/getting-started.md", "docs/operating.md", "docs/campaigns.md"]

    /// Returns the steps of the page in order.
    ///
    /// In a `console` block, each line that starts with `$ ` is a command, and the lines below it are its output. A comment on the line
    /// before a block changes this:
    ///
    /// - `<!-- not run: REASON -->`: the block is not run.
    /// - `<!-- output: example -->`: the block is run, but its output is not compared.
    /// - `<!-- file: NAME -->`: the block is written to a file. A Python block without this mark is run.
    /// - `<!-- run: COMMAND -->` is a line by itself, with a command that the reader does not see. In ``typedPages``, such commands only
    ///   wait, as a person who types does.
    func steps() throws -> [DocumentationStep] {
        var steps: [DocumentationStep] = []
        var mark: Mark?
        var block: Block?
        for (index, line) in lines.enumerated() {
            if let open = block {
                if line.hasPrefix("```") {
                    steps += try Self.steps(of: open)
                    block = nil
                } else {
                    block?.lines.append(line)
                }
                continue
            }
            if let match = line.wholeMatch(of: /<!-- (run|not run|output|file): (.*) -->/) {
                if match.1 == "run" {
                    steps.append(DocumentationStep(line: index + 1, action: .command(String(match.2), status: 0)))
                } else {
                    mark = (match.1, String(match.2))
                }
                continue
            }
            if line.hasPrefix("```") { block = (line.dropFirst(3), index + 1, [], mark) }
            mark = nil
        }
        return steps
    }

    private typealias Mark = (kind: Substring, value: String)
    private typealias Block = (language: Substring, line: Int, lines: [Substring], mark: Mark?)

    private static func steps(of block: Block) throws -> [DocumentationStep] {
        if block.mark?.kind == "not run" { return [] }
        let contents = block.lines.joined(separator: "\n") + "\n"
        if let mark = block.mark, mark.kind == "file" {
            return [DocumentationStep(line: block.line, action: .file(mark.value, contents: contents))]
        }
        if block.language == "python" {
            return [
                DocumentationStep(line: block.line, action: .file("example.py", contents: contents)),
                DocumentationStep(line: block.line, action: .command("/usr/bin/python3 example.py", status: 0)),
            ]
        }
        guard block.language == "console" else { return [] }
        var steps: [DocumentationStep] = []
        var command: (line: Int, text: String)?
        for (index, line) in block.lines.enumerated() {
            if let open = command, open.text.hasSuffix("\\") {
                command = (open.line, String(open.text.dropLast()) + line)
            } else if let open = command, open.text.hasPrefix("for "), !open.text.contains("\n  done") {
                // A loop has several lines.
                command = (open.line, "\(open.text)\n\(line)")
            } else if line.hasPrefix("$ ") {
                if let command { steps.append(step(command.text, command.line)) }
                command = (block.line + index + 1, String(line.dropFirst(2)))
            } else if let open = command {
                steps.append(step(open.text, open.line))
                command = nil
                if block.mark?.kind != "output" { steps[steps.count - 1].shown.append(String(line)) }
            } else if !steps.isEmpty, block.mark?.kind != "output" {
                steps[steps.count - 1].shown.append(String(line))
            }
        }
        if let command { steps.append(step(command.text, command.line)) }
        return steps
    }

    private static func step(_ text: String, _ line: Int) -> DocumentationStep {
        if text.contains("# until Ctrl-C") { return DocumentationStep(line: line, action: .endless(text)) }
        let status = text.firstMatch(of: /# exit status (\d+)/).flatMap { Int($0.1) } ?? 0
        return DocumentationStep(line: line, action: .command(text, status: status))
    }
}
