/// The frames of the binary protocol, as the server reads them.
///
/// Source: Apple, "Binary Provider API" (Local and Remote Notification Programming Guide, archived), for command 2 and
/// its items; "Legacy Information" of the same guide for commands 0 and 1. All numbers are big-endian.
enum ReceivedFrame {
    /// Longer tokens of commands 0 and 1 are refused before they have arrived (100 bytes; a device's token has 32).
    static let maximumTokenLength = 100
    /// The largest contents of a frame of command 2: all five items, with the longest payload that its length field can
    /// express.
    static let maximumLength = 5 * 3 + maximumTokenLength + 65_535 + 4 + 4 + 1

    /// Returns the length of the frame or, while it is unknown, the number of bytes needed to continue.
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
        guard tokenLength <= maximumTokenLength else {
            throw GatewayFault(
                kind: .tokenTooLong(tokenLength), identifier: headerLength == 1 ? 0 : bytes.number(at: 1),
                isSimple: headerLength == 1)
        }
        let payload = token + tokenLength + 2
        guard bytes.count >= payload else { return payload }
        return payload + Int(bytes.number(at: payload - 2, as: UInt16.self))
    }

    /// Parses a frame.
    /// - Parameter bytes: exactly one whole frame.
    static func notification(_ bytes: UnsafeBufferPointer<UInt8>) throws(GatewayFault) -> GatewayNotification {
        var notification = GatewayNotification(command: bytes[0])
        switch bytes[0] {
        case 2: try takeItems(UnsafeBufferPointer(rebasing: bytes[5...]), &notification)
        case 1:
            notification.identifier = bytes.number(at: 1)
            notification.expiration = bytes.number(at: 5)
            takeTokenAndPayload(bytes, at: 9, &notification)
        default: takeTokenAndPayload(bytes, at: 1, &notification)
        }
        return notification
    }

    private static func takeTokenAndPayload(
        _ bytes: UnsafeBufferPointer<UInt8>, at offset: Int, _ notification: inout GatewayNotification
    ) {
        let token = offset + 2
        let payload = token + Int(bytes.number(at: offset, as: UInt16.self)) + 2
        notification.token = UnsafeBufferPointer(rebasing: bytes[token..<payload - 2])
        notification.payload = UnsafeBufferPointer(rebasing: bytes[payload...])
    }

    private static func takeItems(
        _ bytes: UnsafeBufferPointer<UInt8>, _ notification: inout GatewayNotification
    ) throws(GatewayFault) {
        var offset = 0
        var seen: UInt8 = 0
        while offset < bytes.count {
            // The client can identify the notification if its identifier precedes the fault.
            func fault(_ kind: GatewayFault.Kind) -> GatewayFault {
                GatewayFault(kind: kind, identifier: notification.identifier ?? 0)
            }
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
            case 1: notification.token = UnsafeBufferPointer(rebasing: bytes[start..<offset])
            case 2: notification.payload = UnsafeBufferPointer(rebasing: bytes[start..<offset])
            case 3, 4:
                guard length == 4 else { throw fault(.wrongLength(id)) }
                if id == 3 {
                    notification.identifier = bytes.number(at: start)
                } else {
                    notification.expiration = bytes.number(at: start)
                }
            default:
                guard length == 1 else { throw fault(.wrongLength(id)) }
                guard bytes[start] == 10 || bytes[start] == 5 else { throw fault(.badPriority(bytes[start])) }
                notification.priority = bytes[start]
            }
        }
    }
}

extension UnsafeBufferPointer<UInt8> {
    /// Reads a big-endian number.
    fileprivate func number<Number: FixedWidthInteger>(at offset: Int, as type: Number.Type = Number.self) -> Number {
        Number(bigEndian: UnsafeRawBufferPointer(self).loadUnaligned(fromByteOffset: offset, as: type))
    }
}
