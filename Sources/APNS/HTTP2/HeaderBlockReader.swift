import Glibc
import NIOCore

/// A header block while it is read (RFC 9113 §4.3, §8.1).
struct HeaderBlock {
    let stream: Int32
    let endsStream: Bool
    /// True for fields that follow the answer's body.
    let isTrailer: Bool
    fileprivate var hasStatus = false
    /// True for an interim response (RFC 9110 §15.2), which is not the answer yet.
    fileprivate var isInterim = false
    fileprivate var hasOtherFields = false
    /// True if a field is malformed (RFC 9113 §8.1.1).
    fileprivate var hasMalformedField = false
    fileprivate var continuations = 0
    /// The size of the block's fields in bytes. A stream that has ended has no slot that could count it.
    fileprivate var size: Int32 = 0

    /// Header fields of 16 KiB never need more CONTINUATION frames.
    static let maximumContinuations = 64
    /// The maximum size in bytes of a response's header fields, including those of interim responses.
    static let maximumSize: Int32 = 16 * 1024

    init(stream: Int32, endsStream: Bool, isTrailer: Bool) {
        (self.stream, self.endsStream, self.isTrailer) = (stream, endsStream, isTrailer)
    }

    /// True if the complete block is malformed. An answer consists of interim responses, one final response, a body, and trailers (RFC 9113
    /// §8.1).
    var isMalformed: Bool {
        hasMalformedField || !(hasStatus || isTrailer) || (isTrailer && !endsStream) || (isInterim && endsStream)
    }
}

/// Reads header blocks into the slots of their requests: checks and keeps the fields of answers (RFC 9113 §8).
struct HeaderBlockReader: ~Copyable {
    /// True if `apns-unique-id` is read from answers.
    var keepsUniqueIDs = false
    /// The fields of the final response that have no place in the slot; `nil` if they are not kept. Of a repeated field, only the last
    /// value is kept.
    var fields: [String: String]?
    /// The block that CONTINUATION frames will complete, if there is one.
    private(set) var incomplete: HeaderBlock?
    private(set) var decoder = HPACKDecoder()
    /// The beginning of a field that the next CONTINUATION completes. At most two strings of ``HPACKDecoder/maximumStringSize``.
    private var partial: [UInt8] = []

    /// Returns the incomplete block for its next CONTINUATION (§6.10).
    func continued() throws(HTTP2Violation) -> HeaderBlock {
        guard var block = incomplete else { throw .connection(.protocolError, "it sent CONTINUATION without HEADERS") }
        block.continuations += 1
        guard block.continuations <= HeaderBlock.maximumContinuations else {
            throw .flood("it sent header fields in more than \(HeaderBlock.maximumContinuations) frames")
        }
        return block
    }

    /// Reads a part of a block. Blocks of streams that have ended are read too, because they change HPACK's table
    /// (§4.3).
    /// - Parameters:
    ///   - isLast: true for the block's last part.
    ///   - slot: the slot of the block's stream; `nil` if the stream has ended.
    /// - Returns: the block if it is complete.
    mutating func read(
        _ fragment: UnsafeBufferPointer<UInt8>, isLast: Bool, of block: HeaderBlock,
        into slot: UnsafeMutablePointer<RequestSlot>?
    ) throws(HTTP2Violation) -> HeaderBlock? {
        var block = block
        if partial.isEmpty {
            try readFields(fragment, isLast, of: slot, &block)
        } else {
            var bytes: [UInt8] = []
            swap(&bytes, &partial)
            bytes.append(contentsOf: fragment)
            try bytes.withUnsafeBufferPointer { (bytes) throws(HTTP2Violation) in
                try readFields(bytes, isLast, of: slot, &block)
            }
        }
        incomplete = isLast ? nil : block
        return isLast ? block : nil
    }

    private mutating func readFields(
        _ bytes: UnsafeBufferPointer<UInt8>, _ isLast: Bool, of slot: UnsafeMutablePointer<RequestSlot>?,
        _ block: inout HeaderBlock
    ) throws(HTTP2Violation) {
        var rest = bytes
        while let field = try nextField(&rest, isLast) { try take(field, of: slot, &block) }
        if !isLast { partial = Array(rest) }
    }

    private mutating func nextField(
        _ rest: inout UnsafeBufferPointer<UInt8>, _ isLast: Bool
    ) throws(HTTP2Violation) -> HPACKField? {
        do throws(HPACKViolation) {
            if let field = try decoder.next(&rest) { return field }
            if isLast { try decoder.end(rest) }
            return nil
        } catch {
            throw .connection(.compressionError, "its header fields cannot be decoded: \(error.rawValue)")
        }
    }

    private mutating func take(
        _ field: HPACKField, of slot: UnsafeMutablePointer<RequestSlot>?, _ block: inout HeaderBlock
    ) throws(HTTP2Violation) {
        // Counted as in §6.5.2. The server knows the limit from SETTINGS, but need not respect it.
        let size = Int32(clamping: field.name.count + field.value.count + HPACKDynamicTable.overhead)
        block.size += size
        slot?.pointee.headerSize += size
        guard max(block.size, slot?.pointee.headerSize ?? 0) <= HeaderBlock.maximumSize else {
            throw .connection(
                .enhanceYourCalm, "an answer's header fields are larger than \(HeaderBlock.maximumSize) bytes")
        }
        guard let slot, !block.hasMalformedField else { return }
        block.hasMalformedField =
            field.name.first == UInt8(ascii: ":")
            ? !takeStatus(field.name, field.value, of: slot, &block)
            : !takeField(field.name, field.value, of: slot, &block)
    }

    /// Reads `:status`, the only pseudo-header field of answers: once, and before all other fields (§8.3, §8.3.2).
    /// - Returns: false if it is malformed.
    private func takeStatus(
        _ name: UnsafeBufferPointer<UInt8>, _ value: UnsafeBufferPointer<UInt8>,
        of slot: UnsafeMutablePointer<RequestSlot>, _ block: inout HeaderBlock
    ) -> Bool {
        guard name.equals(":status"), !block.hasStatus, !block.hasOtherFields, !block.isTrailer,
            value.count == 3, let status = value.decimal, status >= 100, status != 101
        else { return false }
        block.hasStatus = true
        block.isInterim = status < 200
        if !block.isInterim { slot.pointee.status = Int32(status) }
        return true
    }

    /// - Returns: false if the field is malformed (§8.2).
    private mutating func takeField(
        _ name: UnsafeBufferPointer<UInt8>, _ value: UnsafeBufferPointer<UInt8>,
        of slot: UnsafeMutablePointer<RequestSlot>, _ block: inout HeaderBlock
    ) -> Bool {
        block.hasOtherFields = true
        guard block.hasStatus || block.isTrailer, name.isFieldName, value.isFieldValue else { return false }
        // Only the fields of the final response are kept, but all must be valid.
        let isKept = !block.isInterim && !block.isTrailer
        switch name.count {
        case 2 where name.equals("te"): return value.equals("trailers")
        case 7 where isKept && name.equals("apns-id"): slot.pointee.hasID = true
        // §8.2.2: fields about an HTTP/1 connection.
        case 7 where name.equals("upgrade"), 10 where name.equals("connection"),
            10 where name.equals("keep-alive"), 16 where name.equals("proxy-connection"),
            17 where name.equals("transfer-encoding"):
            return false
        case 11 where isKept && name.equals("retry-after"):
            slot.pointee.retryAfter = RetryAfter.seconds(value) ?? -1
        case 14 where name.equals("content-length"):
            guard let length = value.decimal, slot.pointee.contentLength < 0 || slot.pointee.contentLength == length
            else {
                return false
            }
            if isKept { slot.pointee.contentLength = length }
        case 14 where isKept && keepsUniqueIDs && name.equals("apns-unique-id"):
            slot.pointee.uniqueID = APNSID(value)
        case _ where isKept && fields != nil:
            fields?[String(decoding: name, as: UTF8.self)] = String(decoding: value, as: UTF8.self)
        default: break
        }
        return true
    }
}

extension UnsafeBufferPointer<UInt8> {
    package func equals(_ text: StaticString) -> Bool {
        guard let baseAddress, count == text.utf8CodeUnitCount else { return isEmpty && text.utf8CodeUnitCount == 0 }
        return memcmp(baseAddress, text.utf8Start, count) == 0
    }

    /// The value of a decimal number of at most 18 digits; `nil` for other text.
    package var decimal: Int64? {
        guard count > 0, count <= 18 else { return nil }
        var value: Int64 = 0
        for byte in self {
            let digit = byte &- 0x30
            guard digit < 10 else { return nil }
            value = value * 10 + Int64(digit)
        }
        return value
    }

    /// True for a token without upper-case letters (§8.2.1, RFC 9110 §5.6.2).
    fileprivate var isFieldName: Bool {
        count > 0
            && allSatisfy { byte in
                switch byte {
                case 0x61...0x7A, 0x30...0x39, 0x2D: true
                case 0x21, 0x23...0x27, 0x2A, 0x2B, 0x2E, 0x5E...0x60, 0x7C, 0x7E: true
                default: false
                }
            }
    }

    /// True if there is no NUL, line feed or carriage return, and no white space at either end (§8.2.1).
    fileprivate var isFieldValue: Bool {
        guard let first, let last else { return true }
        func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }
        return !isSpace(first) && !isSpace(last) && allSatisfy { $0 != 0 && $0 != 0x0A && $0 != 0x0D }
    }
}
