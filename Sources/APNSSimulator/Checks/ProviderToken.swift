import FoundationEssentials

/// The contents of a provider token (a JWT), before its signature is verified.
///
/// Source: Apple, "Establishing a token-based connection to APNs": header `alg` ES256 and `kid`, claims `iss` (the
/// team) and `iat` (seconds since 1970), signed with ECDSA over P-256 and SHA-256.
struct ProviderToken: Equatable, Sendable {
    let keyID: String
    let teamID: String
    let issuedAt: Int64
    /// The signed bytes: the encoded header and claims with the dot between them.
    let signed: [UInt8]
    /// r and s, 32 bytes each.
    let signature: [UInt8]

    private struct Header: Decodable {
        let alg: String
        let kid: String
    }

    private struct Claims: Decodable {
        let iss: String
        let iat: Double
    }

    /// - Parameter compact: the token's three parts, as they follow `bearer `.
    /// - Returns: nil unless the token has the form that Apple describes.
    init?(compact: [UInt8]) {
        let parts = compact.split(separator: 0x2E, omittingEmptySubsequences: false)
        guard parts.count == 3, let header = Base64URL.decode(parts[0]), let claims = Base64URL.decode(parts[1]),
            let signature = Base64URL.decode(parts[2]), signature.count == 64
        else { return nil }
        let decoder = JSONDecoder()
        // The error in the JSON does not matter: APNs answers InvalidProviderToken to all of them.
        guard let header = try? decoder.decode(Header.self, from: Data(header)), header.alg == "ES256",
            !header.kid.isEmpty, let claims = try? decoder.decode(Claims.self, from: Data(claims)),
            !claims.iss.isEmpty, claims.iat >= 0, claims.iat < 1e12
        else { return nil }
        keyID = header.kid
        teamID = claims.iss
        issuedAt = Int64(claims.iat)
        signed = Array(compact.prefix(parts[0].count + 1 + parts[1].count))
        self.signature = signature
    }
}

/// Base64 with the alphabet for URLs and without padding (RFC 7515, section 2).
enum Base64URL {
    static func decode(_ text: some Collection<UInt8>) -> [UInt8]? {
        guard text.count % 4 != 1 else { return nil }
        var bytes: [UInt8] = []
        bytes.reserveCapacity(text.count * 3 / 4)
        var bits: UInt32 = 0
        var held = 0
        for character in text {
            let value: UInt8
            switch character {
            case 0x41...0x5A: value = character - 0x41
            case 0x61...0x7A: value = character - 0x61 + 26
            case 0x30...0x39: value = character - 0x30 + 52
            case 0x2D: value = 62
            case 0x5F: value = 63
            default: return nil
            }
            bits = bits << 6 | UInt32(value)
            held += 6
            if held >= 8 {
                held -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> UInt32(held)))
            }
        }
        return bytes
    }
}
