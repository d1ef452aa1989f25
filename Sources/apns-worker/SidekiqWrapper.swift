import FoundationEssentials
import NIOCore
import PushQueue

/// Writes a job as Sidekiq's client would.
struct SidekiqWrapper {
    let queue: String
    let className: String

    /// - Parameter job: a JSON object; it goes into the arguments byte for byte.
    func wrap(_ job: ByteBuffer) -> ByteBuffer {
        // 24 hex digits, as `SecureRandom.hex(12)` gives them.
        let id = (0..<12).map { _ in
            let byte = UInt8.random(in: 0...255)
            return String(byte >> 4, radix: 16) + String(byte & 15, radix: 16)
        }.joined()
        let now = Int64(Date().timeIntervalSince1970 * 1000)
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
