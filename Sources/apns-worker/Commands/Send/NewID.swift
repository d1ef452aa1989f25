import NIOCore
import PushJob

/// IDs for jobs without an ID.
enum NewID {
    /// Returns 24 hex digits, like those of Ruby's `SecureRandom.hex(12)` for Sidekiq.
    static func make() -> String {
        // Few numbers, because each costs a system call.
        withUnsafeBytes(of: (UInt64.random(in: 0 ... .max), UInt32.random(in: 0 ... .max))) { $0.hex }
    }

    static func insert(_ id: String, into job: ByteBuffer, as format: JobFormat) -> ByteBuffer {
        insert(format == .native ? "id" : "jid", "\"\(id)\"", into: job)
    }

    /// Inserts a member at the beginning of an object that lacks it, or replaces its null value. The other bytes stay unchanged.
    /// - Parameter value: JSON.
    static func insert(_ name: String, _ value: String, into job: ByteBuffer) -> ByteBuffer {
        let null = job.withUnsafeReadableBytes { bytes in try? nullValue(of: name, in: bytes) }
        let bytes = job.readableBytesView
        var text = ByteBuffer()
        text.reserveCapacity(job.readableBytes + name.utf8.count + value.utf8.count + 4)
        if let null {
            text.writeBytes(bytes.prefix(null.lowerBound))
            text.writeString(value)
            text.writeBytes(bytes.dropFirst(null.upperBound))
        } else if let brace = bytes.firstIndex(of: UInt8(ascii: "{")) {
            text.writeBytes(bytes[...brace])
            text.writeString("\"\(name)\":\(value),")
            text.writeBytes(bytes[(brace + 1)...])
        }
        return text
    }

    /// Returns the range of a member's value, if the value is null.
    private static func nullValue(
        of wanted: String, in bytes: UnsafeRawBufferPointer
    ) throws(JSONError) -> Range<Int>? {
        var scanner = JSONScanner(bytes)
        try scanner.begin()
        var more = try scanner.enterObject()
        while more {
            let name = try scanner.name()
            let isWanted = JSONText.withCharacters(of: name, in: bytes) { $0.elementsEqual(wanted.utf8) }
            let start = scanner.offset
            let isNull = scanner.next == UInt8(ascii: "n")
            try scanner.skipValue()
            if isWanted, isNull { return start..<scanner.offset }
            more = try scanner.nextMember()
        }
        return nil
    }
}

/// Writes a job as Sidekiq's client does.
struct SidekiqWrapper {
    let queue: String
    let className: String

    /// - Parameters:
    ///   - job: a JSON object, which is copied into the arguments byte for byte.
    ///   - id: Sidekiq's `jid`.
    ///   - now: the time in milliseconds since 1970.
    func wrap(_ job: ByteBuffer, id: String, at now: Int64) -> ByteBuffer {
        let time = "\(now / 1000).\(String(now % 1000 + 1000).dropFirst())"
        var text = ByteBuffer(string: #"{"class":"#)
        text.writeJSONString(className)
        text.writeString(#","queue":"#)
        text.writeJSONString(queue)
        text.writeString(#","args":["#)
        text.writeImmutableBuffer(job)
        text.writeString(#"],"retry":true,"jid":"\#(id)","created_at":\#(time),"enqueued_at":\#(time)}"#)
        return text
    }
}
