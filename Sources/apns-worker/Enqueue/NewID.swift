import NIOCore
import PushJob

/// IDs for jobs whose producers gave none.
enum NewID {
    /// Returns 24 hex digits, like those of Ruby's `SecureRandom.hex(12)` for Sidekiq.
    static func make() -> String {
        (0..<12).map { _ in
            let byte = UInt8.random(in: 0...255)
            return String(byte >> 4, radix: 16) + String(byte & 15, radix: 16)
        }.joined()
    }

    /// Inserts an ID into a job that has none, before its other members, which are unchanged.
    static func insert(_ id: String, into job: ByteBuffer, as format: JobFormat) -> ByteBuffer {
        let bytes = job.readableBytesView
        guard let brace = bytes.firstIndex(of: UInt8(ascii: "{")) else { return job }
        var text = ByteBuffer()
        text.reserveCapacity(job.readableBytes + id.utf8.count + 12)
        text.writeBytes(bytes[...brace])
        text.writeString("\"\(format == .native ? "id" : "jid")\":\"\(id)\",")
        text.writeBytes(bytes[(brace + 1)...])
        return text
    }
}

/// Writes a job in the way of Sidekiq's client.
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
