import NIOCore

/// The place of a member's value in a job's body: an offset and a length, in eight bytes.
///
/// For a string, the quotes are excluded. Read it with ``Job/text(_:)`` or ``Job/bytes(_:)``.
public struct JobField: Equatable, Sendable {
    let start: UInt32
    /// The top bit is set if there are escapes; no body is too long for the other bits.
    let lengthAndFlag: UInt32

    static var escapesFlag: UInt32 { 1 << 31 }
    static let maximumLength = Int(Int32.max)

    init(_ range: Range<Int>, hasEscapes: Bool = false) {
        start = UInt32(truncatingIfNeeded: range.lowerBound)
        lengthAndFlag = UInt32(truncatingIfNeeded: range.count) | (hasEscapes ? Self.escapesFlag : 0)
    }

    init(_ string: JSONString) {
        self.init(string.range, hasEscapes: string.hasEscapes)
    }

    /// Fails for a text that can't be an id.
    init?(id: JSONString?, in bytes: UnsafeRawBufferPointer) {
        guard let id, MemberRules.isIdentifier(id, in: bytes) else { return nil }
        self.init(id)
    }

    /// The number of bytes in the job's body before it.
    public var offset: Int { Int(start) }

    /// Its length in bytes, as written.
    public var length: Int { Int(lengthAndFlag & ~Self.escapesFlag) }

    /// True if a string has escape sequences, so that its characters differ from its bytes.
    public var hasEscapes: Bool { lengthAndFlag & Self.escapesFlag != 0 }

    var range: Range<Int> { offset..<(offset + length) }

    /// Returns a string's characters: a slice without a copy if it is written without escapes.
    func text(in body: ByteBuffer) -> ByteBuffer {
        guard hasEscapes else { return bytes(in: body) }
        var text = ByteBuffer()
        body.withUnsafeReadableBytes { bytes in
            let raw = UnsafeRawBufferPointer(rebasing: bytes[range])
            _ = text.writeWithUnsafeMutableBytes(minimumWritableBytes: raw.count) { JSONText.unescape(raw, into: $0) }
        }
        return text
    }

    /// Returns the bytes as written: a slice without a copy.
    func bytes(in body: ByteBuffer) -> ByteBuffer {
        // A copy with moved indexes would be wrong: NIO considers two buffers of the same length equal if they share storage and slice,
        // even if their indexes differ.
        guard let slice = body.getSlice(at: body.readerIndex + offset, length: length) else {
            preconditionFailure("a field of another job was asked for: \(range) of \(body.readableBytes) bytes")
        }
        return slice
    }
}

/// Properties of a job that need one bit. The values of short forms stay in the body, where ``PayloadComposer`` finds them.
struct JobTraits: OptionSet, Sendable {
    let rawValue: UInt64

    /// The payload is composed of short forms.
    static let shortForms = JobTraits(rawValue: 1)
    static let truncate = JobTraits(rawValue: 2)
    static let collapseDuplicates = JobTraits(rawValue: 4)
    /// The short form `mdm` is present.
    static let mdm = JobTraits(rawValue: 8)
    static let keepResult = JobTraits(rawValue: 16)
    static let urgent = JobTraits(rawValue: 32)
    static let production = JobTraits(rawValue: 64)
    static let sandbox = JobTraits(rawValue: 128)
    /// The payload is an empty array, as PHP writes an empty object.
    static let emptyPayload = JobTraits(rawValue: 256)

    /// A member other than a short form has an invalid value. The job is sent nevertheless.
    static func ignored(_ member: JobMember) -> JobTraits { JobTraits(rawValue: 1 &<< (32 &+ UInt64(member.rawValue))) }
}

extension JobTraits {
    /// The trait for the name of an environment, as this worker or another system spells it, in upper or lower case.
    init?(environment text: UnsafeRawBufferPointer) {
        guard text.count <= 11 else { return nil }
        switch String(decoding: text, as: UTF8.self).lowercased() {
        case "production", "prod": self = .production
        case "sandbox", "development", "dev": self = .sandbox
        default: return nil
        }
    }
}
