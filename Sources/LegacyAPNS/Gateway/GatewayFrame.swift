import APNS
import NIOCore

/// The encoding of a notification: one of the three commands of the binary protocol.
///
/// Source: Apple's archived "Local and Remote Notification Programming Guide", "Binary Provider API" and, for commands
/// 0 and 1, "Legacy Information". All numbers are big-endian.
public enum GatewayFrame: String, Sendable, CaseIterable {
    /// Command 0: token and payload. It has no identifier, so an error does not name the notification.
    case simple
    /// Command 1: with identifier and expiration.
    case enhanced
    /// Command 2: a list of items, including a priority.
    case items

    /// The maximum number of bytes of a frame in addition to its token and payload.
    static let overhead = 29

    /// True if an error packet can name the notification.
    var hasIdentifier: Bool { self != .simple }

    /// The sizes of device tokens in bytes ("Binary Provider API": "Up to 100 bytes"). No device has a token shorter
    /// than 32 bytes, and a token of a wrong size makes the gateway close the connection.
    public static let tokenSizes = 32...100

    /// Appends a notification's frame. The caller must have rejected values that do not fit the protocol's fields.
    func write(_ notification: borrowing Notification, identifier: UInt32, into buffer: inout ByteBuffer) {
        write(
            token: notification.deviceToken, payload: notification.payload, identifier: identifier,
            expiration: notification.expiration, priority: notification.priority, into: &buffer)
    }

    /// Appends a barrier: an item that every gateway rejects, because it has neither token nor payload. The error packet about it proves
    /// that everything before it was accepted.
    func writeBarrier(identifier: UInt32, into buffer: inout ByteBuffer) {
        write(
            token: .none, payload: ByteBuffer(), identifier: identifier, expiration: 0, priority: nil, into: &buffer)
    }

    private func write(
        token: DeviceToken, payload: ByteBuffer, identifier: UInt32, expiration: Int64?, priority: UInt8?,
        into buffer: inout ByteBuffer
    ) {
        let expiry = UInt32(clamping: expiration ?? 0)
        let tokenSize = token.hex.readableBytes / 2
        switch self {
        case .simple:
            buffer.writeInteger(UInt8(0))
            buffer.writeField(token)
            buffer.writeField(payload)
        case .enhanced:
            buffer.writeMultipleIntegers(UInt8(1), identifier, expiry)
            buffer.writeField(token)
            buffer.writeField(payload)
        case .items:
            let length =
                3 + tokenSize + 3 + payload.readableBytes + 7 + (expiration == nil ? 0 : 7) + (priority == nil ? 0 : 4)
            buffer.writeMultipleIntegers(UInt8(2), UInt32(clamping: length), UInt8(1))
            buffer.writeField(token)
            buffer.writeInteger(UInt8(2))
            buffer.writeField(payload)
            buffer.writeMultipleIntegers(UInt8(3), UInt16(4), identifier)
            if expiration != nil { buffer.writeMultipleIntegers(UInt8(4), UInt16(4), expiry) }
            // The gateway supports no other priorities.
            if let priority { buffer.writeMultipleIntegers(UInt8(5), UInt16(1), priority >= 10 ? 10 : UInt8(5)) }
        }
    }
}

extension ByteBuffer {
    /// Writes a length of two bytes, then the payload.
    fileprivate mutating func writeField(_ payload: ByteBuffer) {
        writeInteger(UInt16(clamping: payload.readableBytes))
        writeImmutableBuffer(payload)
    }

    /// Writes a length of two bytes, then the token's bytes.
    fileprivate mutating func writeField(_ token: DeviceToken) {
        let size = token.hex.readableBytes / 2
        writeInteger(UInt16(clamping: size))
        writeWithUnsafeMutableBytes(minimumWritableBytes: size) { bytes in
            token.hex.withUnsafeReadableBytes { digits in
                for index in 0..<size {
                    bytes[index] = Self.value(digits[2 * index]) << 4 | Self.value(digits[2 * index + 1])
                }
            }
            return size
        }
    }

    /// Returns the value of a lower-case hex digit.
    private static func value(_ digit: UInt8) -> UInt8 { digit < 0x3A ? digit &- 0x30 : digit &- 0x57 }
}

/// An error packet, the gateway's only message: the item that it stopped at, and the status. It dropped everything that was sent after the
/// item.
struct GatewayPacket: Equatable {
    var status: GatewayStatus
    /// The item's identifier, as it was sent.
    var identifier: UInt32

    /// The size in bytes: one byte for the command (8), one for the status, and four for the identifier.
    static let size = 6
    private static let command: UInt8 = 8

    struct UnknownCommand: Error, Equatable, CustomStringConvertible {
        let command: UInt8

        var description: String { "an error packet must begin with 8, not \(command)" }
    }

    /// Removes and returns a packet; `nil` if it is incomplete.
    static func read(from buffer: inout ByteBuffer) throws(UnknownCommand) -> GatewayPacket? {
        guard let command: UInt8 = buffer.getInteger(at: buffer.readerIndex) else { return nil }
        guard command == Self.command else { throw UnknownCommand(command: command) }
        guard buffer.readableBytes >= size, var packet = buffer.readSlice(length: size) else { return nil }
        packet.moveReaderIndex(forwardBy: 1)
        guard let status: UInt8 = packet.readInteger(), let identifier: UInt32 = packet.readInteger() else {
            return nil
        }
        return GatewayPacket(status: GatewayStatus(code: status), identifier: identifier)
    }
}
