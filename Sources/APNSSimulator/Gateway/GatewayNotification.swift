import LegacyAPNS

/// One notification in a client's bytes. It is valid only as long as these bytes.
///
/// Source: Apple's archived "Local and Remote Notification Programming Guide", "Binary Provider API" for command 2 and its items, and
/// "Legacy Information" for commands 0 and 1. All numbers are big-endian.
struct GatewayNotification {
    /// The maximum length of a frame of command 2: all five items, with the longest payload that the length field allows.
    static let maximumLength = 5 * 3 + GatewayFrame.tokenSizes.upperBound + 65_535 + 4 + 4 + 1

    /// The command: 0, 1 or 2.
    var command: UInt8
    /// The identifier; nil in command 0, and in frames without an identifier.
    var identifier: UInt32?
    /// The expiration in seconds since 1970; 0 to deliver now or never. nil if missing.
    var expiration: UInt32?
    /// 10 or 5; nil if missing.
    var priority: UInt8?
    /// nil or empty if missing.
    var token: UnsafeBufferPointer<UInt8>?
    /// nil or empty if missing.
    var payload: UnsafeBufferPointer<UInt8>?
}

/// Bytes that are not a notification. Nothing after them on the connection can be parsed.
struct GatewayFault: Error, Equatable {
    enum Kind: Equatable {
        case unknownCommand(UInt8)
        /// A token that is longer than any device's token. The fault is found before the rest of the frame has arrived.
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
    /// The notification's identifier; 0 if the fault precedes the identifier.
    var identifier: UInt32 = 0
    /// True if the client used command 0, which has no error packets.
    var isSimple = false

    var status: GatewayStatus {
        if case .tokenTooLong = kind { .invalidTokenSize } else { .protocolError }
    }
}

extension GatewayNotification {
    /// Returns the length of a frame. If the bytes are too few to know it, returns the number of bytes that are needed to continue.
    static func length(_ bytes: UnsafeBufferPointer<UInt8>) throws(GatewayFault) -> Int {
        switch bytes[0] {
        case 0: return try lengthWithoutItems(bytes, headerLength: 1)
        case 1: return try lengthWithoutItems(bytes, headerLength: 9)
        case 2:
            guard bytes.count >= 5 else { return 5 }
            let length = Int(bytes.number(at: 1, as: UInt32.self))
            guard length <= maximumLength else { throw GatewayFault(kind: .frameTooLong(length)) }
            return 5 + length
        default: throw GatewayFault(kind: .unknownCommand(bytes[0]))
        }
    }

    private static func lengthWithoutItems(
        _ bytes: UnsafeBufferPointer<UInt8>, headerLength: Int
    ) throws(GatewayFault) -> Int {
        let token = headerLength + 2
        guard bytes.count >= token else { return token }
        let tokenLength = Int(bytes.number(at: headerLength, as: UInt16.self))
        // A token that is too long is refused before it has arrived.
        guard tokenLength <= GatewayFrame.tokenSizes.upperBound else {
            throw GatewayFault(
                kind: .tokenTooLong(tokenLength), identifier: headerLength == 1 ? 0 : bytes.number(at: 1),
                isSimple: headerLength == 1)
        }
        let payload = token + tokenLength + 2
        guard bytes.count >= payload else { return payload }
        return payload + Int(bytes.number(at: payload - 2, as: UInt16.self))
    }

    /// - Parameter bytes: exactly one complete frame.
    init(frame bytes: UnsafeBufferPointer<UInt8>) throws(GatewayFault) {
        command = bytes[0]
        switch command {
        case 2: try takeItems(UnsafeBufferPointer(rebasing: bytes[5...]))
        case 1:
            identifier = bytes.number(at: 1)
            expiration = bytes.number(at: 5)
            takeTokenAndPayload(bytes, at: 9)
        default: takeTokenAndPayload(bytes, at: 1)
        }
    }

    private mutating func takeTokenAndPayload(_ bytes: UnsafeBufferPointer<UInt8>, at offset: Int) {
        let start = offset + 2
        let end = start + Int(bytes.number(at: offset, as: UInt16.self))
        token = UnsafeBufferPointer(rebasing: bytes[start..<end])
        payload = UnsafeBufferPointer(rebasing: bytes[(end + 2)...])
    }

    private mutating func takeItems(_ bytes: UnsafeBufferPointer<UInt8>) throws(GatewayFault) {
        var offset = 0
        var seen: UInt8 = 0
        while offset < bytes.count {
            guard bytes.count - offset >= 3 else { throw fault(.leftover) }
            let id = bytes[offset]
            guard (1...5).contains(id) else { throw fault(.unknownItem(id)) }
            guard seen & 1 << id == 0 else { throw fault(.duplicateItem(id)) }
            seen |= 1 << id
            let start = offset + 3
            let length = Int(bytes.number(at: offset + 1, as: UInt16.self))
            guard length <= bytes.count - start else { throw fault(.itemTooLong(id)) }
            offset = start + length
            switch id {
            case 1: token = UnsafeBufferPointer(rebasing: bytes[start..<offset])
            case 2: payload = UnsafeBufferPointer(rebasing: bytes[start..<offset])
            case 3, 4:
                guard length == 4 else { throw fault(.wrongLength(id)) }
                if id == 3 { identifier = bytes.number(at: start) } else { expiration = bytes.number(at: start) }
            default:
                guard length == 1 else { throw fault(.wrongLength(id)) }
                guard bytes[start] == 10 || bytes[start] == 5 else { throw fault(.badPriority(bytes[start])) }
                priority = bytes[start]
            }
        }
    }

    // The identifier is known if it precedes the fault.
    private func fault(_ kind: GatewayFault.Kind) -> GatewayFault {
        GatewayFault(kind: kind, identifier: identifier ?? 0)
    }
}

extension UnsafeBufferPointer<UInt8> {
    /// Reads a big-endian number.
    fileprivate func number<Number: FixedWidthInteger>(at offset: Int, as type: Number.Type = Number.self) -> Number {
        Number(bigEndian: UnsafeRawBufferPointer(self).loadUnaligned(fromByteOffset: offset, as: type))
    }
}

/// Finds the notifications in a client's bytes, which may be split anywhere.
///
/// Notifications are passed on in place. Only a notification that is split between two reads is copied.
struct GatewayFrameReader {
    /// The beginning of an incomplete frame; never more than one frame.
    private(set) var rest: [UInt8] = []

    /// Passes the complete notifications to the body.
    /// - Throws: ``GatewayFault`` at the first invalid byte, after the notifications before it were passed on. The reader must not be used
    ///   afterwards.
    mutating func read(
        _ bytes: UnsafeRawBufferPointer, _ body: (GatewayNotification) -> Void
    ) throws(GatewayFault) {
        let bytes = bytes.bindMemory(to: UInt8.self)
        var offset = 0
        while !rest.isEmpty {
            let length = try rest.withUnsafeBufferPointer { (frame) throws(GatewayFault) in
                try GatewayNotification.length(frame)
            }
            if length <= rest.count {
                try rest.withUnsafeBufferPointer { (frame) throws(GatewayFault) in
                    body(try GatewayNotification(frame: frame))
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
            let length = try GatewayNotification.length(ahead)
            guard length <= ahead.count else {
                rest += ahead
                return
            }
            body(try GatewayNotification(frame: UnsafeBufferPointer(rebasing: ahead[..<length])))
            offset += length
        }
    }
}
