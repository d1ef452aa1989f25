import NIOCore
import PushJob

/// The header fields of a request, in the order of sending.
///
/// Source: Apple, "Sending notification requests to APNs" and "Sending broadcast push notification requests to APNs".
enum RequestHeaders {
    private static let path: StaticString = "/3/device/"

    /// Returns an upper bound for the size of a request's fields in bytes.
    static func bound(
        _ slot: UnsafeMutablePointer<RequestSlot>, authority: UnsafeBufferPointer<UInt8>,
        authorization: UnsafeBufferPointer<UInt8>?
    ) -> Int {
        // 512 bytes cover names, numbers, the ID and other values of known size.
        var count = 512 + authority.count + (authorization?.count ?? 0)
        count += slot.pointee.notification?.deviceToken.hex.readableBytes ?? 0
        count += slot.pointee.notification?.topic.readableBytes ?? 0
        count += slot.pointee.notification?.collapseID?.readableBytes ?? 0
        count += slot.pointee.notification?.unknownPushType?.name.readableBytes ?? 0
        if let broadcast = slot.pointee.notification?.broadcast {
            count += broadcast.path.readableBytes + broadcast.channelID.readableBytes
        }
        return count
    }

    static func write(
        _ slot: UnsafeMutablePointer<RequestSlot>, authority: UnsafeBufferPointer<UInt8>,
        authorization: UnsafeBufferPointer<UInt8>?, _ encoder: inout HPACKEncoder, _ writer: inout ByteWriter
    ) {
        encoder.writeStatic(HPACKEncoder.methodPOST, &writer)
        encoder.writeStatic(HPACKEncoder.schemeHTTPS, &writer)
        encoder.writeRepeated(.authority, authority, &writer)
        if let broadcast = slot.pointee.notification?.broadcast {
            return write(broadcast, slot, authorization: authorization, &encoder, &writer)
        }
        slot.pointee.notification?.deviceToken.hex.withUnsafeReadableBytes { hex in
            encoder.writePath(path.bytes, hex.bindMemory(to: UInt8.self), &writer)
        }
        if let authorization { encoder.writeUnindexed(.authorization, authorization, &writer) }
        slot.pointee.notification?.topic.withUnsafeReadableBytes { topic in
            if topic.count > 0 { encoder.writeRepeated(.topic, topic.bindMemory(to: UInt8.self), &writer) }
        }
        if let unknown = slot.pointee.notification?.unknownPushType {
            unknown.name.withUnsafeReadableBytes {
                encoder.writeRepeated(.pushType, $0.bindMemory(to: UInt8.self), &writer)
            }
        } else if let type = slot.pointee.notification?.pushType {
            let name = type.row.name
            encoder.writeRepeated(.pushType, name.bytes, &writer)
        }
        if let priority = slot.pointee.notification?.priority {
            encoder.writeRepeated(.priority, text(priority: priority).bytes, &writer)
        }
        if let expiration = slot.pointee.notification?.expiration { encoder.write(.expiration, expiration, &writer) }
        slot.pointee.notification?.collapseID?.withUnsafeReadableBytes {
            encoder.write(.collapseID, $0.bindMemory(to: UInt8.self), &writer)
        }
        if let apnsID = slot.pointee.notification?.apnsID { encoder.write(.id, apnsID, &writer) }
    }

    /// Writes the fields of a broadcast after `:authority`. Its priority and expiration are required, and it has no
    /// topic, because the path names the app.
    private static func write(
        _ broadcast: BroadcastTarget, _ slot: UnsafeMutablePointer<RequestSlot>,
        authorization: UnsafeBufferPointer<UInt8>?, _ encoder: inout HPACKEncoder, _ writer: inout ByteWriter
    ) {
        broadcast.path.withUnsafeReadableBytes {
            encoder.writeRepeated(.path, $0.bindMemory(to: UInt8.self), &writer)
        }
        if let authorization { encoder.writeUnindexed(.authorization, authorization, &writer) }
        broadcast.channelID.withUnsafeReadableBytes {
            encoder.write(.channelID, $0.bindMemory(to: UInt8.self), &writer)
        }
        let type = slot.pointee.notification?.pushType ?? .alert
        encoder.writeRepeated(.pushType, type.row.name.bytes, &writer)
        encoder.writeRepeated(.priority, text(priority: slot.pointee.notification?.priority ?? 10).bytes, &writer)
        encoder.write(.expiration, slot.pointee.notification?.expiration ?? 0, &writer)
        if let requestID = slot.pointee.notification?.apnsID { encoder.write(.requestID, requestID, &writer) }
    }

    private static func text(priority: UInt8) -> StaticString { priority == 5 ? "5" : priority == 1 ? "1" : "10" }
}

/// A header value at an address that never changes, so that it need not be copied for each request.
///
/// Immutable after `init`, and freed with the last reference, so sharing it between threads is safe.
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
