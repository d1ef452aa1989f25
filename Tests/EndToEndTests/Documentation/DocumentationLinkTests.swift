import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The documentation's links")
    struct DocumentationLinkTests {
        @Test("lead to files and headings that exist", arguments: DocumentationPage.names)
        func links(name: String) throws {
            let page = try DocumentationPage(name)
            let folder = Repository.root.appending(path: name).deletingLastPathComponent()
            var isInBlock = false
            for (index, line) in page.lines.enumerated() {
                if line.hasPrefix("```") { isInBlock.toggle() }
                guard !isInBlock else { continue }
                for match in line.matches(of: /\]\(([^)\s]+)\)/) where !match.1.contains("://") {
                    let parts = match.1.split(separator: "#", maxSplits: 1, omittingEmptySubsequences: false)
                    let target =
                        parts[0].isEmpty
                        ? Repository.root.appending(path: name)
                        : folder.appending(path: String(parts[0])).standardized
                    #expect(
                        FileManager.default.fileExists(atPath: target.path),
                        "\(name):\(index + 1): there is no \(match.1)")
                    guard parts.count == 2, target.pathExtension == "md" else { continue }
                    let path = String(target.path.dropFirst(Repository.root.path.count + 1))
                    let anchors = try DocumentationPage(path).anchors
                    #expect(anchors.contains(String(parts[1])), "\(name):\(index + 1): no heading is \(match.1)")
                }
            }
        }

        @Test("the map in docs/README.md names every page")
        func map() throws {
            let map = try DocumentationPage("docs/README.md").text
            for name in DocumentationPage.names where name.hasPrefix("docs/") && name != "docs/README.md" {
                #expect(map.contains("(\(name.dropFirst(5)))"), "docs/README.md does not name \(name)")
            }
        }

        @Test("README has at most 160 lines")
        func length() throws { #expect(try DocumentationPage("README.md").lines.count <= 160) }
    }
}
