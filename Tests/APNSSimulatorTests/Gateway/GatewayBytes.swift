@testable import APNSSimulator

/// Frames of the binary protocol, encoded independently of the code under test.
enum GatewayBytes {
    static let token: [UInt8] = (0..<32).map { $0 &* 7 &+ 1 }
    static let payload = Array(#"{"aps":{"alert":"x"}}"#.utf8)

    static func big(_ number: some FixedWidthInteger) -> [UInt8] { withUnsafeBytes(of: number.bigEndian) { Array($0) } }

    /// Command 0.
    static func simple(token: [UInt8] = token, payload: [UInt8] = payload) -> [UInt8] {
        [0] + big(UInt16(token.count)) + token + big(UInt16(payload.count)) + payload
    }

    /// Command 1.
    static func enhanced(
        _ identifier: UInt32, expiration: UInt32 = 0, token: [UInt8] = token, payload: [UInt8] = payload
    ) -> [UInt8] { [1] + big(identifier) + big(expiration) + simple(token: token, payload: payload).dropFirst() }

    static func item(_ id: UInt8, _ data: [UInt8]) -> [UInt8] { [id] + big(UInt16(data.count)) + data }

    /// A notification with command 2 and these items.
    static func frame(_ items: [[UInt8]]) -> [UInt8] {
        let items = items.flatMap { $0 }
        return [2] + big(UInt32(items.count)) + items
    }

    /// A notification with command 2, as a client writes it.
    static func frame(
        _ identifier: UInt32, token: [UInt8] = token, payload: [UInt8] = payload, expiration: UInt32 = 0,
        priority: UInt8 = 10
    ) -> [UInt8] {
        frame([
            item(1, token), item(2, payload), item(3, big(identifier)), item(4, big(expiration)), item(5, [priority]),
        ])
    }

    /// A notification with command 2 to a token of equal bytes.
    static func frame(_ identifier: UInt32, to byte: UInt8) -> [UInt8] { frame(identifier, token: token(byte)) }

    /// An error packet.
    static func packet(_ status: UInt8, _ identifier: UInt32) -> [UInt8] { [8, status] + big(identifier) }

    /// A token of equal bytes.
    static func token(_ byte: UInt8) -> [UInt8] { Array(repeating: byte, count: 32) }
}

/// Copies a notification, because its bytes are valid only during a call.
struct KeptNotification: Equatable {
    var command: UInt8
    var identifier: UInt32?
    var expiration: UInt32?
    var priority: UInt8?
    var token: [UInt8]?
    var payload: [UInt8]?

    init(
        _ command: UInt8, identifier: UInt32? = nil, expiration: UInt32? = nil, priority: UInt8? = nil,
        token: [UInt8]? = nil, payload: [UInt8]? = nil
    ) {
        (self.command, self.identifier, self.expiration) = (command, identifier, expiration)
        (self.priority, self.token, self.payload) = (priority, token, payload)
    }

    init(_ notification: GatewayNotification) {
        self.init(
            notification.command, identifier: notification.identifier, expiration: notification.expiration,
            priority: notification.priority, token: notification.token.map { Array($0) },
            payload: notification.payload.map { Array($0) })
    }
}
