import Foundation
import TestSupport
import Testing

@testable import APNS

@Suite("A provider token of another worker")
struct SharedProviderTokenTests {
    private let key: SigningKey
    private let now: Int64 = 1_792_800_000

    init() throws {
        key = try .example()
    }

    private func encode(_ bytes: some Sequence<UInt8>) -> String {
        Data(bytes).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }

    /// Returns a correctly signed token with any header and claims.
    private func signed(header: String, claims: String, with other: SigningKey? = nil) throws -> String {
        let text = "\(encode(header.utf8)).\(encode(claims.utf8))"
        return try "\(text).\(encode((other ?? key).signES256(Array(text.utf8))))"
    }

    private func read(_ jwt: String) throws(ProviderToken.Untrusted) -> ProviderToken {
        try ProviderToken(jwt: jwt.utf8, key: key, keyID: "ABC123DEFG", teamID: "TEAM123456")
    }

    private func untrusted(_ jwt: String) -> ProviderToken.Untrusted? {
        #expect(throws: ProviderToken.Untrusted.self) { try read(jwt) }
    }

    private let header = #"{"alg":"ES256","kid":"ABC123DEFG"}"#
    private let claims = #"{"iss":"TEAM123456","iat":1792800000}"#

    @Test("is the one that was signed there, with its age")
    func roundTrip() throws {
        for _ in 0..<50 {
            let token = try ProviderToken(key: key, keyID: "ABC123DEFG", teamID: "TEAM123456", issuedAt: now)
            #expect(try read(token.jwt) == token)
        }
        let foreign = #"{ "typ": "JWT", "kid": "ABC123DEFG", "alg": "ES256" }"#
        #expect(try read(signed(header: foreign, claims: #"{"iat":5,"iss":"TEAM123456","x":[1]}"#)).issuedAt == 5)
    }

    @Test("with another key's or team's names is refused, though the signature is right")
    func names() throws {
        for header in [
            #"{"alg":"ES256","kid":"ABC123DEFH"}"#, #"{"alg":"none","kid":"ABC123DEFG"}"#, #"{"alg":"ES256"}"#,
            #"{"alg":"HS256","kid":"ABC123DEFG"}"#, #"{"kid":"ABC123DEFG"}"#, "{}", "[]", "", "null",
        ] { #expect(untrusted(try signed(header: header, claims: claims)) == .wrongHeader, "\(header)") }
        for claims in [
            #"{"iss":"TEAM123457","iat":1792800000}"#, #"{"iss":"TEAM123456"}"#, #"{"iat":1792800000}"#, "{}", "",
            #"{"iss":"TEAM123456","iat":"1792800000"}"#, #"{"iss":"TEAM123456","iat":1792800000.5}"#,
            #"{"iss":"TEAM123456","iat":1e30}"#, #"{"iss":"TEAM123456","iat":null}"#,
            #"{"iss":"TEAM123456","iat":true}"#,
            #"{"iss":["TEAM123456"],"iat":1792800000}"#,
        ] { #expect(untrusted(try signed(header: header, claims: claims)) == .wrongClaims, "\(claims)") }
    }

    @Test("that this key did not sign is refused")
    func foreignKey() throws {
        let other = try signed(header: header, claims: claims, with: .example("client-key.pem"))
        #expect(untrusted(other) == .wrongSignature)
        let token = try signed(header: header, claims: claims)
        let parts = token.split(separator: ".")
        let later = encode(#"{"iss":"TEAM123456","iat":1792899999}"#.utf8)
        #expect(untrusted("\(parts[0]).\(later).\(parts[2])") == .wrongSignature)
        let zero = encode([UInt8](repeating: 0, count: 64))
        #expect(untrusted("\(parts[0]).\(parts[1]).\(zero)") == .wrongSignature)
    }

    @Test("changed in any character is refused")
    func changed() throws {
        let bytes = Array(try signed(header: header, claims: claims).utf8)
        for position in bytes.indices {
            for replacement in Array("A_-.=+ \n\0".utf8) + [0xFF] where replacement != bytes[position] {
                var changed = bytes
                changed[position] = replacement
                #expect(throws: ProviderToken.Untrusted.self) {
                    try ProviderToken(jwt: changed, key: key, keyID: "ABC123DEFG", teamID: "TEAM123456")
                }
            }
        }
        for length in 0..<bytes.count {
            #expect(throws: ProviderToken.Untrusted.self) {
                try ProviderToken(jwt: bytes[..<length], key: key, keyID: "ABC123DEFG", teamID: "TEAM123456")
            }
        }
    }

    @Test("that is not a token is refused")
    func garbage() throws {
        let token = try signed(header: header, claims: claims)
        for text in [
            "", ".", "..", "...", "a.b.c", "\(token).", ".\(token)", " \(token)", "\(token)\n", "bearer \(token)",
        ] { #expect(untrusted(text) == .notToken, "\(text.count) characters") }
        #expect(untrusted(String(repeating: "A", count: 1 << 20)) == .notToken)
        let padding = String(repeating: " ", count: 3000)
        #expect(untrusted(try signed(header: header, claims: claims + padding)) == .notToken)
    }

    @Test("is mentioned without being shown")
    func messages() throws {
        let token = try signed(header: header, claims: #"{"iss":"OTHER12345","iat":1}"#)
        let error = try #require(untrusted(token))
        #expect(!"\(error)".contains("OTHER12345") && !"\(error)".contains(token))
    }
}

@Suite("A fleet's provider tokens")
struct FleetTokenTests {
    private func source(teamID: String = "TEAM123456") throws -> ProviderTokenSource {
        try ProviderTokenSource(key: .example(), keyID: "ABC123DEFG", teamID: teamID)
    }

    @Test("are the same once each worker has read the one that was shared first")
    func agreement() throws {
        let (first, second) = (try source(), try source())
        #expect(first.isDue(now: 1000) && second.isDue(now: 1002))
        let shared = try first.sign(now: 1000)
        #expect(first.adopt(shared, now: 1000))
        // The second source made a candidate too late.
        let late = try second.sign(now: 1002)
        #expect(try second.adopt(second.read(jwt: shared.jwt.utf8), now: 1002))
        #expect(try first.token(now: 1003) == shared)
        #expect(try second.token(now: 1003) == shared)
        #expect(try second.token(now: 1003) != late)
        #expect(!first.isDue(now: 3999) && !second.isDue(now: 3999))
        #expect(first.isDue(now: 4000) && second.isDue(now: 4000))
    }

    @Test("that are only candidates change nothing")
    func candidate() throws {
        let source = try source()
        let own = try source.token(now: 1000)
        _ = try source.sign(now: 1500)
        #expect(try source.token(now: 1500) == own)
    }

    @Test("come only from the configured key and team")
    func foreign() throws {
        let source = try source()
        let other = try self.source(teamID: "TEAM999999").sign(now: 1000)
        #expect(!source.adopt(other, now: 1000))
        #expect(source.isDue(now: 1000))
        #expect(throws: ProviderToken.Untrusted.wrongClaims) { try source.read(jwt: other.jwt.utf8) }
    }

    @Test("replace one that was refused, which is never used again")
    func refused() throws {
        let (first, second) = (try source(), try source())
        let old = try first.sign(now: 1000)
        #expect(first.adopt(old, now: 1000) && second.adopt(old, now: 1000))
        #expect(first.refused(issuedAt: 1000, now: 2000))
        #expect(!first.adopt(old, now: 2000))
        let new = try first.sign(now: 2000)
        #expect(first.adopt(new, now: 2000) && second.adopt(new, now: 2001))
        #expect(!first.adopt(old, now: 2002))
        #expect(try first.token(now: 2002) == new)
        #expect(try second.token(now: 2002) == new)
    }
}
