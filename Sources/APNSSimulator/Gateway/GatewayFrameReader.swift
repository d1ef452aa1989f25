/// Finds the notifications in a client's bytes, which can be split anywhere.
///
/// Notifications are passed on in place; only one that is split between two reads is copied.
struct GatewayFrameReader {
    /// The beginning of an incomplete frame; never more than one frame.
    private(set) var rest: [UInt8] = []

    /// Passes the complete notifications to the body.
    /// - Throws: ``GatewayFault`` at the first invalid byte, after the notifications before it were passed on. Do not
    ///   call this again afterwards.
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
