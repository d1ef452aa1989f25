import APNS

/// One notification as it stands in the bytes that a client sent; it may not be kept longer than they are.
struct GatewayNotification {
    /// 0, 1 or 2.
    var command: UInt8
    /// Nil in command 0, and in a frame without it.
    var identifier: UInt32?
    /// Seconds since 1970; 0 for now or never. Nil where there is none.
    var expiration: UInt32?
    /// 10 or 5; nil where there is none.
    var priority: UInt8?
    /// Nil or empty where there is none.
    var token: UnsafeBufferPointer<UInt8>?
    /// Nil or empty where there is none.
    var payload: UnsafeBufferPointer<UInt8>?
}

/// Bytes that are no notification, after which nothing on the connection can be understood any more.
struct GatewayFault: Error, Equatable {
    enum Kind: Equatable {
        case unknownCommand(UInt8)
        /// A token longer than any device's, found before the rest of the frame came.
        case tokenTooLong(Int)
        case frameTooLong(Int)
        case unknownItem(UInt8)
        case duplicateItem(UInt8)
        /// An item that goes beyond its frame.
        case itemTooLong(UInt8)
        /// An item of a fixed length with another.
        case wrongLength(UInt8)
        case badPriority(UInt8)
        /// One or two bytes at the end of a frame, which are no item.
        case leftover
    }

    var kind: Kind
    /// The notification's identifier, or 0 where that was not read yet.
    var identifier: UInt32 = 0
    /// True if the client spoke the command that knows no error packets.
    var isSimple = false

    var status: GatewayStatus {
        if case .tokenTooLong = kind { .invalidTokenSize } else { .protocolError }
    }
}
