import NIOCore
import Testing

@testable import APNS
@testable import LegacyAPNS

@Suite("A frame for the gateway")
struct GatewayFrameTests {
    private static let token = [UInt8](0..<32)
    private static let tokenHex = token.map { $0 < 16 ? "0" + String($0, radix: 16) : String($0, radix: 16) }.joined()
    private static let payload = #"{"aps":{"alert":"Grüße 🎈𝄞"}}"#

    private func bytes(_ frame: GatewayFrame, expiration: Int64? = 0x0102_0304, priority: UInt8? = 10) throws -> [UInt8]
    {
        var buffer = ByteBuffer()
        let notification = Notification(
            deviceToken: try DeviceToken(Self.tokenHex), payload: ByteBuffer(string: Self.payload),
            topic: ByteBuffer(string: "com.example.app"), priority: priority, expiration: expiration)
        frame.write(notification, identifier: 0xA1B2_C3D4, into: &buffer)
        return Array(buffer.readableBytesView)
    }

    private var length: [UInt8] { [0, UInt8(Self.payload.utf8.count)] }

    @Test("of command 0 has token and payload, with emoji and astral characters unchanged")
    func simple() throws { #expect(try bytes(.simple) == [0, 0, 32] + Self.token + length + Array(Self.payload.utf8)) }

    @Test("of command 1 has identifier and expiration before them")
    func enhanced() throws {
        let head: [UInt8] = [1, 0xA1, 0xB2, 0xC3, 0xD4, 1, 2, 3, 4, 0, 32]
        #expect(try bytes(.enhanced) == head + Self.token + length + Array(Self.payload.utf8))
    }

    @Test("of command 2 has five items, and their length before them")
    func items() throws {
        let items: [UInt8] =
            [1, 0, 32] + Self.token + [2] + length + Array(Self.payload.utf8) + [3, 0, 4, 0xA1, 0xB2, 0xC3, 0xD4]
            + [4, 0, 4, 1, 2, 3, 4, 5, 0, 1, 10]
        #expect(try bytes(.items) == [2, 0, 0, 0, UInt8(items.count)] + items)
    }

    @Test("omits absent fields, and has 0 for an expiration of 0")
    func absent() throws {
        let items: [UInt8] =
            [1, 0, 32] + Self.token + [2] + length + Array(Self.payload.utf8) + [3, 0, 4, 0xA1, 0xB2, 0xC3, 0xD4]
        #expect(try bytes(.items, expiration: nil, priority: nil) == [2, 0, 0, 0, UInt8(items.count)] + items)
        let now = try bytes(.items, expiration: 0, priority: nil)
        #expect(Array(now.suffix(7)) == [4, 0, 4, 0, 0, 0, 0])
    }

    @Test("supports only the priorities 10 and 5", arguments: [(UInt8(10), UInt8(10)), (5, 5), (1, 5)])
    func priorities(given: UInt8, sent: UInt8) throws { #expect(try bytes(.items, priority: given).last == sent) }

    @Test("that is deliberately invalid has neither token nor payload, but an identifier")
    func barrier() {
        var buffer = ByteBuffer()
        GatewayFrame.items.writeBarrier(identifier: 7, into: &buffer)
        #expect(
            Array(buffer.readableBytesView) == [
                2, 0, 0, 0, 20, 1, 0, 0, 2, 0, 0, 3, 0, 4, 0, 0, 0, 7, 4, 0, 4, 0, 0, 0, 0,
            ])
        buffer.clear()
        GatewayFrame.enhanced.writeBarrier(identifier: 7, into: &buffer)
        #expect(Array(buffer.readableBytesView) == [1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0])
    }
}

@Suite("An error packet")
struct GatewayPacketTests {
    @Test("is read once all six bytes have arrived, however they were split", arguments: 0...5)
    func split(at place: Int) throws {
        let bytes: [UInt8] = [8, 8, 0xA1, 0xB2, 0xC3, 0xD4]
        var buffer = ByteBuffer(bytes: bytes.prefix(place))
        #expect(try GatewayPacket.read(from: &buffer) == nil)
        buffer.writeBytes(bytes.dropFirst(place))
        #expect(
            try GatewayPacket.read(from: &buffer)
                == GatewayPacket(status: .invalidToken, identifier: 0xA1B2_C3D4))
    }

    @Test("must begin with 8")
    func command() {
        var buffer = ByteBuffer(bytes: [72])
        #expect(throws: GatewayPacket.UnknownCommand(command: 72)) { try GatewayPacket.read(from: &buffer) }
    }

    @Test("has a documented status, or another one", arguments: UInt8.min...UInt8.max)
    func statuses(code: UInt8) {
        let status = GatewayStatus(code: code)
        #expect(status.code == code)
        let isDocumented = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 128, 255].contains(code)
        #expect((status == .other(code)) == !isDocumented)
        #expect(status.name.allSatisfy { $0.isLetter || $0.isNumber })
    }
}
