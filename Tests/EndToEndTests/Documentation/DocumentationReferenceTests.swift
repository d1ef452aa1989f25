import Foundation
import Operations
import TestSupport
import Testing

@testable import PushWorker
@testable import apns_worker

extension EndToEnd {
    @Suite("The documentation's generated tables")
    struct DocumentationReferenceTests {
        @Test("match the code; UPDATE_DOCS=1 writes them", arguments: DocumentationPage.names)
        func tables(name: String) async throws {
            let page = try DocumentationPage(name)
            var text = ""
            var rest = page.text[...]
            while let start = rest.firstMatch(of: /<!-- generated: ([a-z-]+) -->\n/) {
                guard let end = rest[start.range.upperBound...].firstRange(of: "<!-- end -->") else {
                    throw DocumentationError(description: "\(name): the table \(start.1) has no end")
                }
                text += rest[..<start.range.upperBound]
                text +=
                    "\n" + (try await DocumentationTables.table(String(start.1))).trimmingCharacters(in: .newlines)
                    + "\n\n"
                rest = rest[end.lowerBound...]
            }
            text += rest
            guard text != page.text else { return }
            if ProcessInfo.processInfo.environment["UPDATE_DOCS"] != nil {
                try text.write(to: Repository.root.appending(path: name), atomically: true, encoding: .utf8)
            } else {
                let old = Set(page.lines), new = text.split(separator: "\n").filter { !old.contains($0) }
                Issue.record(
                    "\(name) differs; run UPDATE_DOCS=1 scripts/test e2e DocumentationReference: \(new.prefix(3))")
            }
        }

        @Test("of metrics have every metric of the source")
        func metrics() throws {
            let folder = Repository.root.appending(path: "Sources/PushWorker/Process/WorkerMetric.swift")
            let source = try String(contentsOf: folder, encoding: .utf8)
            #expect(source.matches(of: /static let \w+ = metric\(/).count == WorkerMetric.all.count)
            #expect(Set(WorkerMetric.all.map(\.name)).count == WorkerMetric.all.count)
        }

        @Test("of JSON have a meaning for each member, which occurs once")
        func json() throws {
            let things = HelpTopic.things
            #expect(Set(things.map(\.name)).count == things.count)
            for thing in things {
                #expect(Set(thing.all.map(\.name)).count == thing.all.count, "\(thing.name)")
                for member in thing.all {
                    #expect(
                        member.meaning.hasSuffix(".") || member.meaning.hasSuffix(":"), "\(thing.name).\(member.name)")
                }
            }
            let schemas = "{\(ShownMembers.schemas(things).joined(separator: ","))}"
            let known = try #require(try JSONSerialization.jsonObject(with: Data(schemas.utf8)) as? [String: Any])
            #expect(Set(known.keys) == Set(things.map(\.name)))
            let references = schemas.matches(of: /#\/components\/schemas\/(\w+)/).map { String($0.1) }
            #expect(Set(references).isSubset(of: known.keys))
        }

        @Test("The rules for Prometheus match the table of problems; UPDATE_DOCS=1 writes them.")
        func alerts() throws {
            let text = AlertRules.text
            guard try DeployFolder.text(AlertRules.path) != text else { return }
            if ProcessInfo.processInfo.environment["UPDATE_DOCS"] != nil {
                try text.write(to: DeployFolder.url(AlertRules.path), atomically: true, encoding: .utf8)
            } else {
                Issue.record("\(AlertRules.path) differs; run UPDATE_DOCS=1 scripts/test e2e DocumentationReference")
            }
        }
    }
}
