import APNS
import Foundation
import LegacyAPNS
import NIOCore
import Operations
import PushJob
import PushQueue
import Testing

/// The products as another package uses them: without `@testable`.
@Suite("The libraries")
struct LibraryTests {
    @Test("the examples of ARCHITECTURE.md run")
    func examples() throws {
        // ARCHITECTURE.md: begin
        var job = JobEncoder(tokens: ["00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"])
        job.id = "order-1742"
        job.shortForms[.alert] = .text("Your order has shipped")
        job.enqueuedAt = Int64(Date().timeIntervalSince1970 * 1000)
        let body = try job.encode()
        // RPUSH push:{default}:jobs <body>

        let decoded = try JobDecoder.decode(body)
        print(decoded.id.map { String(buffer: decoded.text($0)) } ?? "no ID")
        // ARCHITECTURE.md: end
        #expect(decoded.id.map { String(buffer: decoded.text($0)) } == "order-1742")
    }

    @Test("the page shows these lines")
    func page() throws {
        let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../..")
        let source = try String(contentsOf: URL(filePath: #filePath), encoding: .utf8)
        let lines = source.split(separator: "\n").map { $0.trimmingCharacters(in: .whitespaces) }
        let begin = try #require(lines.firstIndex(of: "// ARCHITECTURE.md: begin"))
        let end = try #require(lines.firstIndex(of: "// ARCHITECTURE.md: end"))
        let page = try String(contentsOf: root.appending(path: "ARCHITECTURE.md"), encoding: .utf8)
        for line in lines[(begin + 1)..<end] { #expect(page.contains("\n\(line)\n"), "\(line)") }
    }

    @Test("the page and the package name the same products")
    func products() throws {
        let root = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../..")
        let manifest = try String(contentsOf: root.appending(path: "Package.swift"), encoding: .utf8)
        let products = manifest.matches(of: /\.library\(name: "(\w+)"/).map { String($0.1) }
        let page = try String(contentsOf: root.appending(path: "ARCHITECTURE.md"), encoding: .utf8)
        let heading = try #require(page.firstRange(of: "\n## Libraries\n"))
        let named = page[heading.upperBound...].matches(of: /\n\| `(\w+)` \|/).map { String($0.1) }
        #expect(Set(named) == Set(products) && !products.isEmpty)
    }

    @Test("vocabulary is public: a token, the keys of a queue, a filter of dead letters")
    func vocabulary() throws {
        #expect(
            try DeviceToken("00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0").shortened == "00fc13ad…"
        )
        #expect(APNSEndpoint(gateway: "production") == .productionGateway)
        #expect(try QueueKeys().jobs == "push:{default}:jobs")
        #expect(DeadLetterFilter().isEmpty)
    }
}
