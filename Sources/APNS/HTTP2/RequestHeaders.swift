import CNghttp2
import NIOCore

/// The header fields of one request, all of them, in the order in which they are sent.
///
/// Names are static and values stay where they are until the stream closes, so nghttp2 copies neither. Fields whose value
/// repeats are left to HPACK's dynamic table; those that differ with each notification are kept out of it, where they
/// would only push the others out.
struct RequestHeaders: ~Copyable {
    static let maximumCount = 11
    private let fields: UnsafeMutablePointer<nghttp2_nv>

    init() {
        fields = .allocate(capacity: Self.maximumCount)
    }

    deinit {
        fields.deallocate()
    }

    /// Fills in the fields of a request.
    /// - Parameters:
    ///   - slot: holds the notification; its buffers are pointed to.
    ///   - scratch: memory for the values that have to be written, which must live as long as the slot.
    func fill(
        _ slot: UnsafeMutablePointer<RequestSlot>, scratch: UnsafeMutablePointer<UInt8>, authority: HeaderText,
        authorization: HeaderText?
    ) -> (UnsafeMutablePointer<nghttp2_nv>, Int)? {
        guard let notification = slot.pointee.notification else { return nil }
        var count = 0
        var scratch = scratch
        add(":method", "POST", repeats: true, &count)
        add(":scheme", "https", repeats: true, &count)
        add(":authority", authority.bytes, repeats: true, &count)
        if let broadcast = notification.broadcast {
            add(broadcast, notification, scratch: &scratch, authorization: authorization, &count)
            return (fields, count)
        }
        add(":path", Self.path(notification.deviceToken, slot, scratch: &scratch), repeats: false, &count)
        if let authorization { add("authorization", authorization.bytes, repeats: true, &count) }
        if notification.topic.readableBytes > 0 {
            add("apns-topic", Self.bytes(notification.topic), repeats: true, &count)
        }
        if let unknown = notification.unknownPushType {
            add("apns-push-type", Self.bytes(unknown.name), repeats: true, &count)
        } else {
            add("apns-push-type", notification.pushType.headerValue, repeats: true, &count)
        }
        if let priority = notification.priority {
            add("apns-priority", Self.text(priority: priority), repeats: true, &count)
        }
        if let expiration = notification.expiration {
            add("apns-expiration", Self.write(expiration, to: &scratch), repeats: false, &count)
        }
        if let collapseID = notification.collapseID {
            add("apns-collapse-id", Self.bytes(collapseID), repeats: false, &count)
        }
        if let apnsID = notification.apnsID {
            apnsID.write(to: scratch)
            add("apns-id", UnsafeBufferPointer(start: scratch, count: APNSID.textLength), repeats: false, &count)
        }
        return (fields, count)
    }

    /// Adds the fields that a broadcast has after `:authority`: its priority and expiration are required, and it has no
    /// topic, for the path names the app.
    ///
    /// Source: Apple, "Sending broadcast push notification requests to APNs".
    private func add(
        _ broadcast: BroadcastTarget, _ notification: Notification, scratch: inout UnsafeMutablePointer<UInt8>,
        authorization: HeaderText?, _ count: inout Int
    ) {
        add(":path", Self.bytes(broadcast.path), repeats: true, &count)
        if let authorization { add("authorization", authorization.bytes, repeats: true, &count) }
        add("apns-channel-id", Self.bytes(broadcast.channelID), repeats: false, &count)
        add("apns-push-type", notification.pushType.headerValue, repeats: true, &count)
        add("apns-priority", Self.text(priority: notification.priority ?? 10), repeats: true, &count)
        add("apns-expiration", Self.write(notification.expiration ?? 0, to: &scratch), repeats: false, &count)
        if let requestID = notification.apnsID {
            requestID.write(to: scratch)
            add(
                "apns-request-id", UnsafeBufferPointer(start: scratch, count: APNSID.textLength), repeats: false,
                &count)
        }
    }

    private static func text(priority: UInt8) -> StaticString { priority == 5 ? "5" : priority == 1 ? "1" : "10" }

    private func add(_ name: StaticString, _ value: StaticString, repeats: Bool, _ count: inout Int) {
        add(
            name, UnsafeBufferPointer(start: value.utf8Start, count: value.utf8CodeUnitCount), repeats: repeats, &count)
    }

    private func add(_ name: StaticString, _ value: UnsafeBufferPointer<UInt8>, repeats: Bool, _ count: inout Int) {
        let noCopy = UInt8(NGHTTP2_NV_FLAG_NO_COPY_NAME.rawValue | NGHTTP2_NV_FLAG_NO_COPY_VALUE.rawValue)
        let noIndex = repeats ? 0 : UInt8(NGHTTP2_NV_FLAG_NO_INDEX.rawValue)
        fields[count] = nghttp2_nv(
            name: UnsafeMutablePointer(mutating: name.utf8Start),
            value: UnsafeMutablePointer(mutating: value.baseAddress),
            namelen: name.utf8CodeUnitCount, valuelen: value.count, flags: noCopy | noIndex)
        count += 1
    }

    private static func path(
        _ token: DeviceToken, _ slot: UnsafeMutablePointer<RequestSlot>, scratch: inout UnsafeMutablePointer<UInt8>
    ) -> UnsafeBufferPointer<UInt8> {
        let prefix: StaticString = "/3/device/"
        guard token.hex.readableBytes <= RequestSlots.shortToken else {
            var path = ByteBuffer(staticString: prefix)
            path.writeImmutableBuffer(token.hex)
            slot.pointee.longPath = path
            return bytes(path)
        }
        scratch.update(from: prefix.utf8Start, count: prefix.utf8CodeUnitCount)
        let count = token.hex.withUnsafeReadableBytes { hex in
            // There is no address where there is no token.
            if let digits = hex.baseAddress {
                UnsafeMutableRawPointer(scratch + prefix.utf8CodeUnitCount).copyMemory(
                    from: digits, byteCount: hex.count)
            }
            return prefix.utf8CodeUnitCount + hex.count
        }
        defer { scratch += count }
        return UnsafeBufferPointer(start: scratch, count: count)
    }

    private static func write(
        _ number: Int64, to scratch: inout UnsafeMutablePointer<UInt8>
    ) -> UnsafeBufferPointer<UInt8> {
        var digits = 1
        var power: Int64 = 10
        while digits < 19, number >= power {
            digits += 1
            power = digits < 19 ? power * 10 : .max
        }
        var rest = max(number, 0)
        for position in stride(from: digits - 1, through: 0, by: -1) {
            scratch[position] = 0x30 + UInt8(rest % 10)
            rest /= 10
        }
        defer { scratch += digits }
        return UnsafeBufferPointer(start: scratch, count: digits)
    }

    /// The bytes of a buffer that the slot keeps alive, at the address where they stay as long as it does: a `ByteBuffer`
    /// moves its bytes only when it is written to, and the slot's never is.
    private static func bytes(_ buffer: ByteBuffer) -> UnsafeBufferPointer<UInt8> {
        buffer.withUnsafeReadableBytesWithStorageManagement { bytes, _ in
            UnsafeBufferPointer(start: bytes.baseAddress?.assumingMemoryBound(to: UInt8.self), count: bytes.count)
        }
    }
}

/// Bytes of a header value at an address that never moves, so that nghttp2 need not copy them for each request.
///
/// Immutable after `init`, and freed when the last reference goes: that makes it safe to share between threads.
final class HeaderText: @unchecked Sendable {
    let bytes: UnsafeBufferPointer<UInt8>

    init(_ text: String) {
        let copy = UnsafeMutableBufferPointer<UInt8>.allocate(capacity: max(text.utf8.count, 1))
        _ = copy.initialize(from: text.utf8)
        bytes = UnsafeBufferPointer(start: copy.baseAddress, count: text.utf8.count)
    }

    deinit {
        bytes.deallocate()
    }
}
