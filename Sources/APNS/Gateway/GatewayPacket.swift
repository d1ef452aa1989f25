import NIOCore

/// The only thing that the gateway ever says: which item it stopped at, and why. Everything behind that was dropped.
struct GatewayPacket: Equatable {
    var status: GatewayStatus
    /// The item's, as it was sent.
    var identifier: UInt32

    /// One byte command 8, one byte status, four bytes identifier.
    static let size = 6
    private static let command: UInt8 = 8

    enum Failure: Error, Equatable, CustomStringConvertible {
        case unknownCommand(UInt8)

        var description: String {
            switch self {
            case .unknownCommand(let command): "an error packet begins with 8, and \(command) came"
            }
        }
    }

    /// Takes a packet out of what has come; `nil` as long as it is not all there.
    static func read(from buffer: inout ByteBuffer) throws(Failure) -> GatewayPacket? {
        guard let command: UInt8 = buffer.getInteger(at: buffer.readerIndex) else { return nil }
        guard command == Self.command else { throw .unknownCommand(command) }
        guard buffer.readableBytes >= size, var packet = buffer.readSlice(length: size) else { return nil }
        packet.moveReaderIndex(forwardBy: 1)
        guard let status: UInt8 = packet.readInteger(), let identifier: UInt32 = packet.readInteger() else {
            return nil
        }
        return GatewayPacket(status: GatewayStatus(code: status), identifier: identifier)
    }
}
