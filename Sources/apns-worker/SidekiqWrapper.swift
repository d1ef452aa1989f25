import NIOCore
import PushQueue

/// Writes a job as Sidekiq's client would.
struct SidekiqWrapper {
    let queue: String
    let className: String

    /// - Parameters:
    ///   - job: a JSON object; it goes into the arguments byte for byte.
    ///   - now: in milliseconds since 1970.
    func wrap(_ job: ByteBuffer, at now: Int64) -> ByteBuffer {
        // 24 hex digits, as `SecureRandom.hex(12)` gives them.
        let id = (0..<12).map { _ in
            let byte = UInt8.random(in: 0...255)
            return String(byte >> 4, radix: 16) + String(byte & 15, radix: 16)
        }.joined()
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
