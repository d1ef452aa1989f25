import APNS
import NIOCore
import PushJob

/// The device tokens of a job without repetitions, so that a device named twice gets one notification.
///
/// Repetitions are found when the job is claimed. So they are neither sent, counted, deferred nor retried. Malformed tokens are not
/// compared.
struct DistinctTokens: IteratorProtocol, Sequence {
    private var tokens: JobTokens.Iterator
    /// The positions of the remaining repetitions, in order.
    private var repetitions: ArraySlice<Int>
    /// The token that was put back.
    private var returned: JobField?
    /// The position of the last returned token in the job's list, beginning with 1.
    private(set) var position = 0
    /// The number of distinct tokens.
    let count: Int

    init(_ tokens: JobTokens, of job: Job) {
        self.tokens = tokens.makeIterator()
        repetitions = tokens.count < 2 ? [] : Self.repetitions(in: tokens, of: job)[...]
        count = tokens.count - repetitions.count
    }

    mutating func next() -> JobField? {
        if let token = returned {
            returned = nil
            return token
        }
        while let token = tokens.next() {
            position += 1
            guard repetitions.first == position - 1 else { return token }
            repetitions.removeFirst()
        }
        return nil
    }

    /// Makes the last token the next one again.
    mutating func putBack(_ token: JobField) { returned = token }

    // MARK: Finding repetitions

    /// A slot of the hash table.
    private struct Place {
        var hash: UInt64
        var token: JobField
    }

    private static func repetitions(in tokens: JobTokens, of job: Job) -> [Int] {
        var size = 4
        while size < tokens.count * 2 { size *= 2 }
        // One allocation per job: tokens are compared in place, not copied.
        return withUnsafeTemporaryAllocation(of: Place?.self, capacity: size) { table in
            table.initialize(repeating: nil)
            var repetitions: [Int] = []
            for (position, token) in tokens.enumerated() {
                guard let hash = hash(of: token, in: job) else { continue }
                var index = Int(truncatingIfNeeded: hash >> 32) & (size - 1)
                while let place = table[index] {
                    if place.hash == hash, isSame(place.token, token, in: job) {
                        repetitions.append(position)
                        break
                    }
                    index = (index + 1) & (size - 1)
                }
                if table[index] == nil { table[index] = Place(hash: hash, token: token) }
            }
            return repetitions
        }
    }

    /// Returns the hash of a token; `nil` if the token is malformed. All spellings of a token have the same hash.
    private static func hash(of token: JobField, in job: Job) -> UInt64? {
        // Nearly all tokens have 64 hex digits.
        if token.length == 64, !token.hasEscapes {
            let fast = job.body.withUnsafeReadableBytes { bytes in
                Self.hash(of: UnsafeRawBufferPointer(rebasing: bytes[token.offset..<token.offset + token.length]))
            }
            if let fast { return fast }
        }
        guard let hex = try? DeviceToken(job.text(token)).hex else { return nil }
        return hex.withUnsafeReadableBytes { Self.hash(of: $0) }
    }

    /// Returns the hash of hex digits in any case; `nil` if there are other characters.
    private static func hash(of digits: UnsafeRawBufferPointer) -> UInt64? {
        var hash: UInt64 = 0
        guard DeviceToken.areHexDigits(digits, capitals: true) else { return nil }
        func add(_ word: UInt64) {
            hash = (hash ^ (word | 0x2020_2020_2020_2020)) &* 0x9E37_79B9_7F4A_7C15
            hash ^= hash >> 29
        }
        var offset = 0
        while offset + 8 <= digits.count {
            add(digits.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
            offset += 8
        }
        var rest: UInt64 = 0
        for byte in digits[offset...] { rest = rest << 8 | UInt64(byte) }
        add(rest)
        return hash
    }

    private static func isSame(_ one: JobField, _ other: JobField, in job: Job) -> Bool {
        guard let one = try? DeviceToken(job.text(one)), let other = try? DeviceToken(job.text(other)) else {
            return false
        }
        return one == other
    }
}

extension DeviceToken {
    /// Returns the token in hex, or the original text if it is malformed.
    static func plain(_ text: ByteBuffer) -> ByteBuffer {
        do throws(DeviceToken.Invalid) { return try DeviceToken(text).hex } catch { return text }
    }
}

extension Job {
    /// The device token or channel of a job with only one recipient.
    var recipient: ByteBuffer? {
        if let channel { return text(channel) }
        return token.map { DeviceToken.plain(text($0)) }
    }
}
