import Foundation
import TestSupport
import Testing

@testable import APNS

@Suite("A provider token")
struct ProviderTokenTests {
    private func key() throws -> SigningKey {
        try SigningKey(pem: Data(contentsOf: URL(filePath: TestCertificates.path("AuthKey_ABC123DEFG.p8"))))
    }

    private func decode(_ part: Substring) throws -> Data {
        var text = String(part).replacing("-", with: "+").replacing("_", with: "/")
        while text.utf8.count % 4 != 0 { text += "=" }
        return try #require(Data(base64Encoded: text))
    }

    @Test("is a JWT with Apple's header and claims, its time a number")
    func structure() throws {
        let token = try ProviderToken(
            key: key(), keyID: "ABC123DEFG", teamID: "TEAM123456", issuedAt: 1_792_800_000)
        let parts = token.jwt.split(separator: ".", omittingEmptySubsequences: false)
        try #require(parts.count == 3)
        #expect(String(decoding: try decode(parts[0]), as: UTF8.self) == #"{"alg":"ES256","kid":"ABC123DEFG"}"#)
        #expect(String(decoding: try decode(parts[1]), as: UTF8.self) == #"{"iss":"TEAM123456","iat":1792800000}"#)
        #expect(try decode(parts[2]).count == 64)
        #expect(token.jwt.utf8.allSatisfy { "-_.".utf8.contains($0) || ($0 | 0x20) &- 0x61 < 26 || $0 &- 0x30 < 10 })
        #expect(token.issuedAt == 1_792_800_000)
    }

    @Test("is made once, and anew at 50 minutes")
    func renewal() throws {
        let source = try ProviderTokenSource(key: key(), keyID: "ABC123DEFG", teamID: "TEAM123456")
        let first = try source.token(now: 1000)
        #expect(try source.token(now: 1000 + 3000 - 1) == first)
        let second = try source.token(now: 1000 + 3000)
        #expect(second != first)
        #expect(second.issuedAt == 4000)
    }

    @Test("is the same for all threads, and made anew once")
    func threads() async throws {
        let source = try ProviderTokenSource(key: key(), keyID: "ABC123DEFG", teamID: "TEAM123456")
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

    @Test("of two lanes that were both refused is made anew once")
    func refusedTwice() throws {
        let source = try ProviderTokenSource(key: key(), keyID: "ABC123DEFG", teamID: "TEAM123456")
        let old = try source.token(now: 0)
        #expect(source.refused(issuedAt: old.issuedAt, now: 1500))
        let new = try source.token(now: 1500)
        #expect(new != old)
        // The second lane's refusal of the old token must not throw the new one away.
        #expect(source.refused(issuedAt: old.issuedAt, now: 1501))
        #expect(try source.token(now: 1501) == new)
    }

    @Test("needs identifiers of letters and digits", arguments: ["", "ABC\"DEF", "ABC 123", "ÄBC123DEFG", "A\nB"])
    func identifiers(text: String) throws {
        let key = try key()
        #expect(throws: ProviderTokenSource.InvalidIdentifier.self) {
            try ProviderTokenSource(key: key, keyID: text, teamID: "TEAM123456")
        }
        #expect(throws: ProviderTokenSource.InvalidIdentifier.self) {
            try ProviderTokenSource(key: key, keyID: "ABC123DEFG", teamID: text)
        }
    }
}

@Suite("A provider token's schedule")
struct ProviderTokenScheduleTests {
    @Test("signs at first, and then when the token is 50 minutes old")
    func age() {
        var schedule = ProviderTokenSchedule()
        #expect(schedule.isDue(now: 100))
        schedule.signed(at: 100)
        #expect(!schedule.isDue(now: 100))
        #expect(!schedule.isDue(now: 100 + 2999))
        #expect(schedule.isDue(now: 100 + 3000))
    }

    @Test("signs anew when the clock was set back by more than a minute")
    func clockSetBack() {
        var schedule = ProviderTokenSchedule()
        schedule.signed(at: 10_000)
        #expect(!schedule.isDue(now: 9_940))
        #expect(schedule.isDue(now: 9_939))
    }

    @Test("signs anew after a refusal, but not for a token that was signed just now")
    func refusal() {
        var schedule = ProviderTokenSchedule()
        schedule.signed(at: 0)
        #expect(schedule.refused(now: 59, issuedAt: 0) == false)
        #expect(!schedule.isDue(now: 59))
        #expect(schedule.refused(now: 60, issuedAt: 0) == true)
        #expect(schedule.isDue(now: 60))
        schedule.signed(at: 60)
        #expect(!schedule.isDue(now: 61))
        #expect(schedule.refused(now: 61, issuedAt: 0) == true)
        #expect(!schedule.isDue(now: 61))
    }

    @Test("never lets a token come near an hour, whatever the times at which it is asked")
    func neverTooOld() {
        var generator = SeededGenerator(seed: 3)
        var schedule = ProviderTokenSchedule()
        var now: Int64 = 1_792_800_000
        var signedAt: Int64?
        for _ in 0..<5000 {
            now += Int64.random(in: 0...600, using: &generator)
            if schedule.isDue(now: now) {
                if let signedAt { #expect(now - signedAt >= ProviderTokenSchedule.minimumAge) }
                schedule.signed(at: now)
                signedAt = now
            }
            #expect(now - (signedAt ?? 0) < 3600)
        }
    }
}
