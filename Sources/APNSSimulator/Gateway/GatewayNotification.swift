import APNS
import LegacyAPNS

/// One notification within the bytes that a client sent; valid only as long as those bytes.
struct GatewayNotification {
    /// 0, 1 or 2.
    var command: UInt8
    /// nil in command 0, and in frames without one.
    var identifier: UInt32?
    /// Seconds since 1970; 0 to deliver now or never. nil if missing.
    var expiration: UInt32?
    /// 10 or 5; nil if missing.
    var priority: UInt8?
    /// nil or empty if missing.
    var token: UnsafeBufferPointer<UInt8>?
    /// nil or empty if missing.
    var payload: UnsafeBufferPointer<UInt8>?
}

/// Bytes that are not a notification; nothing after them on the connection can be parsed.
struct GatewayFault: Error, Equatable {
    enum Kind: Equatable {
        case unknownCommand(UInt8)
        /// A token longer than any device's, found before the rest of the frame arrived.
        case tokenTooLong(Int)
        case frameTooLong(Int)
        case unknownItem(UInt8)
        case duplicateItem(UInt8)
        /// An item that extends beyond its frame.
        case itemTooLong(UInt8)
        /// An item of a fixed length that has another length.
        case wrongLength(UInt8)
        case badPriority(UInt8)
        /// One or two bytes at the end of a frame, too few for an item.
        case leftover
    }

    var kind: Kind
    /// The notification's identifier; 0 if it had not been read yet.
    var identifier: UInt32 = 0
    /// True if the client used command 0, which has no error packets.
    var isSimple = false

    var status: GatewayStatus {
        if case .tokenTooLong = kind { .invalidTokenSize } else { .protocolError }
    }
}
