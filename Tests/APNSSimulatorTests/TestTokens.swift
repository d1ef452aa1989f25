import Foundation
import TestSupport

/// Generates provider tokens as clients do.
enum TestTokens {
    static let keyID = "ABC123DEFG"
    static let teamID = "TEAM123456"
    static var now: Int { Int(Date().timeIntervalSince1970) }

    static func base64URL(_ bytes: some Sequence<UInt8>) -> String {
        Data(bytes).base64EncodedString().replacing("+", with: "-").replacing("/", with: "_").replacing("=", with: "")
    }

    /// Returns a well-formed token with an invalid signature.
    static func unsigned(
        keyID: String = keyID, issuedAt: Int = now, algorithm: String = "ES256", team: String = "\"TEAM123456\""
    ) -> String {
        let header = base64URL("{\"alg\":\"\(algorithm)\",\"kid\":\"\(keyID)\"}".utf8)
        let claims = base64URL("{\"iss\":\(team),\"iat\":\(issuedAt)}".utf8)
        return "\(header).\(claims).\(base64URL(repeatElement(7, count: 64)))"
    }

    /// Returns a token signed by the openssl program with the key of `scripts/make-certs`.
    static func signed(
        keyID: String = keyID, teamID: String = teamID, issuedAt: Int = now, keyFile: String = "AuthKey_ABC123DEFG.p8"
    ) throws -> String {
        let unsigned = unsigned(keyID: keyID, issuedAt: issuedAt, team: "\"\(teamID)\"")
        let text = unsigned.split(separator: ".").prefix(2).joined(separator: ".")
        let workshop = try OpenSSLWorkshop()
        try workshop.write(text.utf8, to: "text")
        try workshop.openssl(
            "dgst", "-sha256", "-sign", try TestCertificates.path(keyFile), "-out", "signature", "text")
        return text + "." + base64URL(raw(try workshop.read("signature")))
    }

    // Converts SEQUENCE { INTEGER r, INTEGER s } to 32 bytes each.
    private static func raw(_ der: [UInt8]) -> [UInt8] {
        var position = 2
        var numbers: [UInt8] = []
        for _ in 0..<2 {
            let length = Int(der[position + 1])
            let number = der[position + 2..<position + 2 + length].drop { $0 == 0 }
            numbers += [UInt8](repeating: 0, count: 32 - number.count) + number
            position += 2 + length
        }
        return numbers
    }
}
