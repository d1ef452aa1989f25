/// The status in the binary gateway's error packet. It concerns the notification that the packet names.
///
/// Source: Apple's archived "Local and Remote Notification Programming Guide", "Binary Provider API", table "Codes in
/// error-response packet".
public enum GatewayStatus: Sendable, Hashable, CustomStringConvertible {
    case noError
    case processingError
    case missingDeviceToken
    case missingTopic
    case missingPayload
    case invalidTokenSize
    case invalidTopicSize
    case invalidPayloadSize
    case invalidToken
    /// The gateway is closing the connection; the named notification is the last that it accepted.
    case shutdown
    /// The gateway could not parse what it received.
    case protocolError
    case unknown
    /// A status that Apple does not document.
    case other(UInt8)

    public init(code: UInt8) {
        self = Self.documented.first { $0.code == code }?.status ?? .other(code)
    }

    /// The second byte of an error packet.
    public var code: UInt8 {
        if case .other(let code) = self { return code }
        return Self.documented.first { $0.status == self }?.code ?? 255
    }

    /// The code in counters and records, in the style of the reasons of APNs' HTTP/2 interface.
    public var name: String {
        if case .other(let code) = self { return "GatewayStatus\(code)" }
        return Self.documented.first { $0.status == self }?.name ?? "UnknownError"
    }

    public var description: String { "\(name) (status \(code))" }

    public static let documented: [(code: UInt8, status: GatewayStatus, name: String)] = [
        (0, .noError, "NoError"), (1, .processingError, "ProcessingError"),
        (2, .missingDeviceToken, "MissingDeviceToken"), (3, .missingTopic, "MissingTopic"),
        (4, .missingPayload, "MissingPayload"), (5, .invalidTokenSize, "InvalidTokenSize"),
        (6, .invalidTopicSize, "InvalidTopicSize"), (7, .invalidPayloadSize, "InvalidPayloadSize"),
        (8, .invalidToken, "InvalidToken"), (10, .shutdown, "Shutdown"), (128, .protocolError, "ProtocolError"),
        (255, .unknown, "UnknownError"),
    ]
}
