import Foundation
import TLS
import TestSupport
import Testing

@testable import APNS

@Suite("A provider token")
struct ProviderTokenTests {
    private func source() throws -> ProviderTokenSource {
        try ProviderTokenSource(key: .example(), keyID: "ABC123DEFG", teamID: "TEAM123456")
    }

    private func decode(_ part: Substring) throws -> [UInt8] { try #require(Base64.decodeURL(part.utf8)) }

    @Test("is a JWT with Apple's header and claims, and a numeric time")
    func structure() throws {
        let token = try ProviderToken(
            key: .example(), keyID: "ABC123DEFG", teamID: "TEAM123456", issuedAt: 1_792_800_000)
        let parts = token.jwt.split(separator: ".", omittingEmptySubsequences: false)
        try #require(parts.count == 3)
        #expect(String(decoding: try decode(parts[0]), as: UTF8.self) == #"{"alg":"ES256","kid":"ABC123DEFG"}"#)
        #expect(String(decoding: try decode(parts[1]), as: UTF8.self) == #"{"iss":"TEAM123456","iat":1792800000}"#)
        #expect(try decode(parts[2]).count == 64)
        #expect(token.jwt.utf8.allSatisfy { "-_.".utf8.contains($0) || ($0 | 0x20) &- 0x61 < 26 || $0 &- 0x30 < 10 })
        #expect(token.issuedAt == 1_792_800_000)
    }

    @Test("is signed once, and again after 50 minutes")
    func renewal() throws {
        let source = try source()
        let first = try source.token(now: 1000)
        #expect(try source.token(now: 1000 + 3000 - 1) == first)
        let second = try source.token(now: 1000 + 3000)
        #expect(second != first)
        #expect(second.issuedAt == 4000)
    }

    @Test("is the same for all threads, and renewed once")
    func threads() async throws {
        let source = try source()
        for now: Int64 in [5000, 8000, 11000] {
            let tokens = try await withThrowingTaskGroup(of: Set<String>.self) { group in
                for _ in 0..<8 {
                    group.addTask { Set(try (0..<50).map { _ in try source.token(now: now).jwt }) }
                }
                return try await group.reduce(into: Set<String>()) { $0.formUnion($1) }
            }
            #expect(tokens.count == 1)
        }
    }

    @Test("of two lanes that were both refused is renewed once")
    func refusedTwice() throws {
        let source = try source()
        let old = try source.token(now: 0)
        #expect(source.refused(issuedAt: old.issuedAt, now: 1500))
        let new = try source.token(now: 1500)
        #expect(new != old)
        // The second lane's refusal of the old token must not discard the new one.
        #expect(source.refused(issuedAt: old.issuedAt, now: 1501))
        #expect(try source.token(now: 1501) == new)
    }

    @Test("does not show its JWT when printed, nor does its source")
    func printed() throws {
        let source = try source()
        let token = try source.token(now: 1_792_800_000)
        for subject in [token, source, [token], (try SigningKey.example(), token)] as [Any] {
            for text in try shownTexts(of: subject) {
                for part in token.jwt.split(separator: ".") { #expect(!text.contains(part), "\(text)") }
            }
        }
        #expect("\(token)".contains("ABC123DEFG"))
    }

    @Test("needs identifiers of letters and digits", arguments: ["", "ABC\"DEF", "ABC 123", "ÄBC123DEFG", "A\nB"])
    func identifiers(text: String) throws {
        let key = try SigningKey.example()
        #expect(throws: ProviderTokenSource.InvalidIdentifier.self) {
            try ProviderTokenSource(key: key, keyID: text, teamID: "TEAM123456")
        }
        #expect(throws: ProviderTokenSource.InvalidIdentifier.self) {
            try ProviderTokenSource(key: key, keyID: "ABC123DEFG", teamID: text)
        }
    }
}
