import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("docs/apns.md")
    struct DocumentationTests {
        /// A Markdown table of a page. A row has its cells by the names of the columns.
        private struct Table {
            let columns: [String]
            var rows: [[String]] = []
        }

        private func tables() throws -> [Table] {
            let page = try Repository.text("docs/apns.md")
            var tables: [Table] = []
            var isInTable = false
            for line in page.split(separator: "\n", omittingEmptySubsequences: false) {
                guard line.hasPrefix("|") else {
                    isInTable = false
                    continue
                }
                let cells = line.dropFirst().dropLast().split(separator: "|", omittingEmptySubsequences: false).map {
                    $0.trimmingCharacters(in: .whitespaces)
                }
                if !isInTable {
                    tables.append(Table(columns: cells))
                } else if !cells.allSatisfy({ $0.allSatisfy { "-:".contains($0) } }) {
                    #expect(cells.count == tables[tables.count - 1].columns.count, "another number of columns: \(line)")
                    tables[tables.count - 1].rows.append(cells)
                }
                isInTable = true
            }
            return tables
        }

        /// Returns all tests as `Suite.function`. In a file with several types, each function counts as a test of each type.
        private func tests() throws -> Set<String> {
            let folder = Repository.path("Tests")
            var tests: Set<String> = []
            let files = try FileManager.default.subpathsOfDirectory(atPath: folder).filter {
                $0.hasSuffix("Tests.swift")
            }
            for file in files {
                let text = try String(contentsOfFile: "\(folder)/\(file)", encoding: .utf8)
                var types: [Substring] = []
                var functions: [Substring] = []
                let declarations = ["func ", "struct ", "class ", "enum ", "extension "]
                for line in text.split(separator: "\n") where declarations.contains(where: { line.contains($0) }) {
                    let words = line.split { !$0.isLetter && !$0.isNumber && $0 != "_" }
                    for (word, name) in zip(words, words.dropFirst()) {
                        if ["struct", "class", "enum"].contains(word) { types.append(name) }
                        if word == "func" { functions.append(name) }
                    }
                    if words.first == "extension", let name = words.dropFirst().prefix(2).last { types.append(name) }
                }
                for type in types { tests.formUnion(functions.map { "\(type).\($0)" }) }
            }
            return tests
        }

        @Test("each row of the truth tables names tests that exist")
        func testsExist() throws {
            let tests = try tests()
            let truths = try tables().filter { $0.columns.last == "test" }
            #expect(truths.count >= 6)
            for row in truths.flatMap(\.rows) {
                let names = (row.last ?? "").matches(of: /`([^`]+)`/).map { String($0.1) }
                #expect(!names.isEmpty, "no test: \(row[0])")
                // `#expect` on `tests` would print thousands of names.
                let missing = names.filter { !tests.contains($0) }
                #expect(missing.isEmpty, "\(row[0]): there is no such test")
            }
        }

        @Test("each question of scripts/apns-probe belongs to a row, and --list prints it with its answer")
        func rowsOfQuestions() async throws {
            let program = """
                import runpy, sys
                for question in runpy.run_path(sys.argv[1])["QUESTIONS"]: print(question.row or question.expected)
                """
            let probe = try ChildProcess(
                "/usr/bin/python3", ["-c", program, Repository.path("scripts/apns-probe")])
            guard try await probe.wait() == .exited(0) else { throw probe.failure("failed") }
            let known = Set(try tables().flatMap(\.rows).map { $0[0].replacing("`", with: "") })
            let rows = probe.output.split(separator: "\n").map(String.init)
            #expect(rows.count > 40)
            for row in rows { #expect(known.contains(row), "there is no row \(row)") }

            let list = try ChildProcess(Repository.path("scripts/apns-probe"), ["--list"])
            guard try await list.wait() == .exited(0) else { throw list.failure("failed") }
            let questions = list.output.split(separator: "\n").map { $0.split(separator: "\t") }
            #expect(questions.count == rows.count)
            for question in questions { #expect(question.count == 3, "\(question)") }
        }
    }
}
