import APNS
import NIOCore

/// The different device tokens of a list, in the list's order.
package final class ListedTokens {
    package struct Refusal: Sendable {
        package let line: Int
        package let problem: String
    }

    /// The tokens, as bytes.
    package let tokens: UniqueTokens
    /// The number of lines that are not tokens.
    package private(set) var refused = 0
    /// The number of tokens that are shorter than Apple's, and the line of the first. They may be user IDs of another column.
    package private(set) var short: (count: Int, line: Int) = (0, 0)

    /// - Parameters:
    ///   - directory: for temporary files, of about 75 bytes for each token.
    ///   - refusal: gets each line that is not a token.
    /// - Throws: ``TokenListFailure``.
    package init(
        _ input: ListInput, _ format: TokenListFormat, in directory: String, refusal: (Refusal) -> Void
    ) throws {
        tokens = try UniqueTokens(in: directory)
        var parser = ListParser(format)
        func read(_ entry: ListParser.Entry, _ line: Int) throws {
            switch entry {
            case .token(let text):
                if try add(text) { return noteLength(text.count, line) }
                // The token is not in hex. It may be in base64.
                let token: DeviceToken
                do throws(DeviceToken.Invalid) {
                    token = try DeviceToken(ByteBuffer(bytes: text))
                } catch {
                    refused += 1
                    return refusal(Refusal(line: line, problem: "\(error)"))
                }
                _ = try token.hex.withUnsafeReadableBytes { try add($0) }
                noteLength(token.hex.readableBytes, line)
            case .refused(let problem):
                refused += 1
                refusal(Refusal(line: line, problem: problem))
            }
        }
        while true {
            let piece = try input.next()
            if piece.isEmpty { break }
            try parser.read(piece, read)
        }
        try parser.finish(read)
        try tokens.finish()
    }

    private func noteLength(_ digits: Int, _ line: Int) {
        if digits < DeviceToken.wholeDigits { short = (short.count + 1, short.count == 0 ? line : short.line) }
    }

    /// Adds a token of hex digits.
    /// - Returns: false for any other text.
    private func add(_ text: UnsafeRawBufferPointer) throws(TokenListFailure) -> Bool {
        guard text.count > 0, text.count <= DeviceToken.maximumDigits, text.count % 2 == 0,
            DeviceToken.areHexDigits(text, capitals: true)
        else { return false }
        let result = withUnsafeTemporaryAllocation(byteCount: text.count / 2, alignment: 1) { bytes in
            for index in 0..<bytes.count {
                bytes[index] = Self.value(text[2 &* index]) << 4 | Self.value(text[2 &* index &+ 1])
            }
            return Result { () throws(TokenListFailure) in try tokens.add(UnsafeRawBufferPointer(bytes)) }
        }
        try result.get()
        return true
    }

    private static func value(_ digit: UInt8) -> UInt8 { digit < 0x40 ? digit & 0x0F : digit & 0x0F &+ 9 }
}
