import NIOCore
import PrintableText
import PushJob
import PushQueue

/// Selects jobs: those that match one value of each kind that is given.
package struct JobFilter: Sendable, Equatable {
    /// The states of the jobs; empty for all.
    package var states: Set<StoredJob.State> = []
    /// Keys, as ``StoredJob/key``.
    package var keys: Set<String> = []
    /// Ids of jobs.
    package var ids: Set<String> = []
    /// Device tokens in lower-case hex, or channels.
    package var tokens: Set<String> = []
    /// Names of apps, as jobs name them.
    package var apps: Set<String> = []
    /// Topics, as jobs name them.
    package var topics: Set<String> = []
    /// Campaigns.
    package var campaigns: Set<String> = []
    /// Reasons of the last failure; a `*` at the end matches any ending.
    package var reasons: [String] = []
    /// Texts that occur in the producer's bytes, ignoring the case of ASCII letters.
    package var texts: [String] = []
    /// The range of the times at which they were enqueued or, if that is unknown, first claimed, in milliseconds since
    /// 1970. Jobs of unknown age do not match a range.
    package var since: Int64?
    package var until: Int64?
    /// The time before which the next attempt is due, in milliseconds since 1970.
    package var dueBefore: Int64?

    /// All jobs.
    package init() {}

    /// True if all jobs of the states match.
    package var matchesAll: Bool {
        var stateless = self
        stateless.states = []
        return stateless == JobFilter()
    }

    /// True if jobs are chosen by their ids alone.
    package var isOfIDs: Bool {
        var other = self
        other.ids = []
        return !ids.isEmpty && other == JobFilter()
    }

    /// True if jobs must be decoded to know whether they match.
    var readsJobs: Bool {
        !(ids.isEmpty && tokens.isEmpty && apps.isEmpty && topics.isEmpty && campaigns.isEmpty) || since != nil
            || until != nil
    }

    /// Returns true if jobs of a state can match.
    package func includes(_ state: StoredJob.State) -> Bool { states.isEmpty || states.contains(state) }

    /// Returns true if a job matches.
    /// - Parameter now: Redis' time in milliseconds since 1970.
    package func matches(_ job: StoredJob, now: Int64) -> Bool {
        guard includes(job.state) else { return false }
        if matchesAll { return true }
        if let dueBefore, (job.due ?? now) >= dueBefore { return false }
        if since != nil || until != nil {
            guard let at = job.enqueuedAt, at >= since ?? .min, at <= until ?? .max else { return false }
        }
        for (wanted, value) in [(ids, job.id), (apps, job.app), (topics, job.topic), (campaigns, job.campaign)]
        where !wanted.isEmpty {
            guard let value, wanted.contains(String(buffer: value)) else { return false }
        }
        if !reasons.isEmpty {
            guard let reason = job.failure?.reason, matches(reason: reason) else { return false }
        }
        if !tokens.isEmpty, !job.tokens.contains(where: matches(token:)) { return false }
        if !texts.isEmpty, !matches(text: job.original) { return false }
        return keys.isEmpty || keys.contains(job.key)
    }

    private func matches(reason: String) -> Bool {
        reasons.contains { $0 == reason || ($0.hasSuffix("*") && reason.hasPrefix($0.dropLast())) }
    }

    private func matches(token: ByteBuffer) -> Bool {
        let text = String(buffer: token)
        return tokens.contains(text) || tokens.contains(TokenText.normalized(text))
    }

    private func matches(text original: ByteBuffer) -> Bool {
        original.withUnsafeReadableBytes { bytes in
            texts.contains { text in Array(text.utf8).withUnsafeBytes { bytes.contains(ignoringCase: $0) } }
        }
    }
}

/// Device tokens as producers write them.
package enum TokenText {
    /// Returns a token in lower-case hex. The text is hex, perhaps with spaces or angle brackets, or base64.
    package static func normalized(_ text: String) -> String {
        let plain = text.utf8.filter { $0 != 0x20 && $0 != 0x3C && $0 != 0x3E }
        let isHex = plain.allSatisfy { $0 &- 0x30 < 10 || ($0 | 0x20) &- 0x61 < 6 }
        if isHex { return String(decoding: plain, as: UTF8.self).lowercased() }
        guard let bytes = base64(plain) else { return text }
        let digits = Array("0123456789abcdef".utf8)
        return String(decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
    }

    /// Returns true for the hex digits of a device token: of 1 to 1,024 bytes.
    package static func isToken(_ hex: String) -> Bool {
        (2...2048).contains(hex.utf8.count) && hex.utf8.count.isMultiple(of: 2) && hex.isHexadecimal
    }

    /// Returns true for the beginning of a token, as it is shown to people: eight digits, or with an ellipsis.
    package static func isShortened(_ text: String) -> Bool {
        text.hasSuffix("…") || text.hasSuffix("...") || text.utf8.count == 8 && text.isHexadecimal
    }

    /// Returns the ways in which producers may write a token.
    /// - Parameter hex: lower-case hex.
    package static func forms(ofHex hex: String) -> [String] {
        let digits = hex.utf8.compactMap(JSONText.hexValue)
        let bytes = stride(from: 0, to: digits.count - 1, by: 2).map { digits[$0] << 4 | digits[$0 + 1] }
        let plain = base64(of: bytes)
        let url = plain.map { $0 == "+" ? "-" : $0 == "/" ? "_" : $0 }
        let padding = String(repeating: "=", count: (4 - plain.count % 4) % 4)
        return [hex] + [plain, String(url)].flatMap { padding.isEmpty ? [$0] : [$0, $0 + padding] }
    }

    private static func base64(of bytes: [UInt8]) -> String {
        let characters = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/".utf8)
        var text: [UInt8] = []
        for start in stride(from: 0, to: bytes.count, by: 3) {
            let some = bytes[start..<min(start + 3, bytes.count)]
            let bits = some.reduce(UInt32(0)) { $0 << 8 | UInt32($1) } << UInt32(8 * (3 - some.count))
            for index in 0...some.count { text.append(characters[Int(bits >> UInt32(18 - 6 * index) & 63)]) }
        }
        return String(decoding: text, as: UTF8.self)
    }

    /// Decodes either alphabet, with or without padding.
    private static func base64(_ text: [UInt8]) -> [UInt8]? {
        var (bytes, bits, count): ([UInt8], UInt32, UInt32) = ([], 0, 0)
        for byte in text.reversed().drop(while: { $0 == UInt8(ascii: "=") }).reversed() {
            let value: UInt8
            switch byte {
            case UInt8(ascii: "A")...UInt8(ascii: "Z"): value = byte - UInt8(ascii: "A")
            case UInt8(ascii: "a")...UInt8(ascii: "z"): value = byte - UInt8(ascii: "a") + 26
            case UInt8(ascii: "0")...UInt8(ascii: "9"): value = byte - UInt8(ascii: "0") + 52
            case UInt8(ascii: "+"), UInt8(ascii: "-"): value = 62
            case UInt8(ascii: "/"), UInt8(ascii: "_"): value = 63
            default: return nil
            }
            bits = bits << 6 | UInt32(value)
            count += 6
            if count >= 8 {
                count -= 8
                bytes.append(UInt8(truncatingIfNeeded: bits >> count))
            }
        }
        return bytes
    }
}

extension UnsafeRawBufferPointer {
    /// Returns true if a text occurs, ignoring the case of ASCII letters.
    fileprivate func contains(ignoringCase text: UnsafeRawBufferPointer) -> Bool {
        guard let first = text.first.map(Self.lowered) else { return true }
        guard count >= text.count else { return false }
        for start in 0...(count - text.count) where Self.lowered(self[start]) == first {
            var length = 1
            while length < text.count, Self.lowered(self[start + length]) == Self.lowered(text[length]) { length += 1 }
            if length == text.count { return true }
        }
        return false
    }

    private static func lowered(_ byte: UInt8) -> UInt8 { byte &- 0x41 < 26 ? byte | 0x20 : byte }
}
