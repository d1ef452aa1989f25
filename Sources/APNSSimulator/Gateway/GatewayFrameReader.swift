/// Takes what a client sends, split anywhere, and finds the notifications in it.
///
/// Notifications are handed out where they lie, without a copy, except the one that a read ends within.
struct GatewayFrameReader {
    /// The beginning of a frame whose rest has not come; never more than that one frame.
    private(set) var rest: [UInt8] = []

    /// Hands out the notifications that are whole.
    /// - Throws: ``GatewayFault`` at the first byte that cannot be understood, after those before it were handed out.
    ///   Nothing may be read afterwards.
    mutating func read(
        _ bytes: UnsafeRawBufferPointer, _ body: (GatewayNotification) -> Void
    ) throws(GatewayFault) {
        let bytes = bytes.bindMemory(to: UInt8.self)
        var offset = 0
        while !rest.isEmpty {
            let length = try rest.withUnsafeBufferPointer { (frame) throws(GatewayFault) in
                try ReceivedFrame.length(frame)
            }
            if length <= rest.count {
                try rest.withUnsafeBufferPointer { (frame) throws(GatewayFault) in
                    body(try ReceivedFrame.notification(frame))
                }
                rest.removeAll(keepingCapacity: true)
                break
            }
            guard offset < bytes.count else { return }
            let count = min(length - rest.count, bytes.count - offset)
            rest += bytes[offset..<offset + count]
            offset += count
        }
        while offset < bytes.count {
            let ahead = UnsafeBufferPointer(rebasing: bytes[offset...])
            let length = try ReceivedFrame.length(ahead)
            guard length <= ahead.count else {
                rest += ahead
                return
            }
            body(try ReceivedFrame.notification(UnsafeBufferPointer(rebasing: ahead[..<length])))
            offset += length
        }
    }
}
