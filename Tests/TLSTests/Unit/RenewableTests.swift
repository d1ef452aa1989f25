import Foundation
import TestSupport
import Testing

@testable import TLS

@Suite("A value made from files")
struct RenewableTests {
    private struct Refused: Error {}

    private func renewable(_ paths: [String]) throws -> Renewable<String> {
        try Renewable(paths.map(SecretSource.file)) { contents in
            let texts = contents.map { String(decoding: $0, as: UTF8.self) }
            // The contents must match, like a certificate and its key, which are replaced one after the other.
            guard Set(texts.map(\.last)).count == 1 else { throw Refused() }
            return texts.joined(separator: " ")
        }
    }

    @Test("is made again when they change, and kept while they are unusable")
    func changes() async throws {
        let workshop = try OpenSSLWorkshop()
        try workshop.write(Array("a1".utf8), to: "certificate")
        try workshop.write(Array("b1".utf8), to: "key")
        let value = try renewable(["certificate", "key"].map(workshop.path))
        #expect(value.current == "a1 b1" && value.takeChange() == nil)
        try workshop.write(Array("a2".utf8), to: "certificate")
        try await eventually("the pair that does not match is reported") {
            if case .unusable(let error) = value.takeChange() { error is Refused } else { false }
        }
        #expect(value.current == "a1 b1")
        try workshop.write(Array("b2".utf8), to: "key")
        try await eventually("the new pair is used") { value.current == "a2 b2" }
        if case .renewed = value.takeChange() {} else { Issue.record("the change is not reported") }
        #expect(value.takeChange() == nil)
        try FileManager.default.removeItem(atPath: workshop.path("key"))
        try await eventually("the missing file is reported") {
            if case .unusable(let error) = value.takeChange() { "\(error)".contains("No such file") } else { false }
        }
        #expect(value.current == "a2 b2")
    }

    @Test("follows a directory that a symbolic link names, as Kubernetes replaces a Secret")
    func links() async throws {
        let workshop = try OpenSSLWorkshop()
        let manager = FileManager.default
        for (name, text) in [("old", "1"), ("new", "2")] {
            try manager.createDirectory(atPath: workshop.path(name), withIntermediateDirectories: false)
            try workshop.write(Array(text.utf8), to: "\(name)/key")
        }
        try manager.createSymbolicLink(atPath: workshop.path("data"), withDestinationPath: "old")
        try manager.createSymbolicLink(atPath: workshop.path("key"), withDestinationPath: "data/key")
        let value = try renewable([workshop.path("key")])
        #expect(value.current == "1")
        try manager.createSymbolicLink(atPath: workshop.path("next"), withDestinationPath: "new")
        #expect(rename(workshop.path("next"), workshop.path("data")) == 0)
        try await eventually("the new one is used") { value.current == "2" }
    }

    @Test("cannot be made without its files")
    func missing() { #expect(throws: SecretSource.Unreadable.self) { try renewable(["/nowhere/key"]) } }

    @Test("does not change without files")
    func fixed() {
        let value = Renewable("x")
        #expect(value.current == "x" && value.takeChange() == nil && value.sources.isEmpty)
    }
}

@Suite("The validity of a certificate")
struct CertificateValidityTests {
    @Test(
        "is a problem before its begin, after its end, and in its last thirty days",
        arguments: [
            (99, true, "is not valid before 1970-01-01"), (100, nil, ""), (7_407_999, nil, ""),
            (7_408_000, false, "expires in 30 days, on "), (9_900_000, false, "expires in 1 day, on "),
            (9_999_999, false, "expires in less than a day, on "), (10_000_001, true, "expired on 1970-04-26"),
        ])
    func problems(_ now: Int, _ isError: Bool?, _ text: String) throws {
        let validity = CertificateValidity(notBefore: 100, notAfter: 10_000_000)
        let problems = validity.problems(now: Int64(now), advice: "replace it")
        #expect(problems.map(\.isError) == (isError.map { [$0] } ?? []))
        #expect(problems.allSatisfy { $0.predicate.hasPrefix(text) }, "\(problems)")
        if let end = problems.first, !text.contains("before") { #expect(end.predicate.hasSuffix("; replace it")) }
    }

    @Test("is not judged without dates")
    func unknown() { #expect(CertificateValidity(notBefore: nil, notAfter: nil).problems(now: 5, advice: "").isEmpty) }
}
