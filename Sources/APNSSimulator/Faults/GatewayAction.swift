import APNS
import LegacyAPNS

/// A rule of the binary gateway, in the form of `--gateway-rule`.
package typealias GatewayRule = Rule<GatewayAction>

/// The effect of a rule on a notification at the binary gateway, or on a connection.
///
/// Rules apply to notifications that pass every check of `GatewayCheck`. With `at=connect`, they apply to connections of clients whose
/// certificate is accepted. The first rule that applies decides.
package struct GatewayAction: RuleAction {
    package enum Answer: Equatable, Sendable {
        /// Sends an error packet and closes the connection.
        case packet(Packet)
        /// Closes the connection without a packet.
        case close
        /// Stops reading and keeps the connection open.
        case hang
        /// Ends the connection with a TCP reset.
        case reset
        /// Accepts the notification, and the feedback service reports that the device no longer has the app.
        case feedback
    }

    /// An error packet, and the way to send it.
    package struct Packet: Equatable, Sendable {
        package var status: GatewayStatus
        package var identifier = Identifier.own
        /// True if the packet's bytes are sent one by one.
        package var isSplit = false
        /// True if only the packet's first three bytes are sent.
        package var isHalf = false
        /// True if the connection then stays open until the client closes it. Everything that arrives is discarded.
        package var lingers = false
    }

    /// The notification that a packet names.
    package enum Identifier: String, CaseIterable, Sendable {
        /// The notification that met the rule; with status 10, the last accepted notification.
        case own
        case zero = "0"
        /// The bitwise complement of the notification's identifier, which the client probably did not send.
        case wrong
    }

    package var answer: Answer
    /// True if the notification counts as accepted. Rules can set it for `packet` with status 10, `close`, `hang` and `reset`.
    package var accepts = false
    /// The delay of the packet, or of the end of the connection. Bytes that arrive in the meantime are discarded.
    package var delay: AnswerDelay?

    package static let points = [RulePoint.notification, .connect]

    package static func conditions(at point: RulePoint) -> [RuleCondition] {
        [.rate, .times, .after] + (point == .notification ? [.prefix] : [])
    }

    package init(_ reader: inout RuleReader, at point: RulePoint) throws(RuleError) {
        answer = try Self.answer(&reader, at: point)
        if point == .notification {
            switch answer {
            case .close: accepts = try reader.flag("accept") ?? true
            case .hang, .reset: accepts = try reader.flag("accept") ?? false
            case .packet(let packet) where packet.status == .shutdown: accepts = try reader.flag("accept") ?? true
            case .feedback: accepts = true
            case .packet: break
            }
        }
        switch answer {
        case .packet, .close, .reset: delay = try reader.delay()
        case .hang, .feedback: break
        }
    }
}

extension GatewayAction {
    private static func answer(_ reader: inout RuleReader, at point: RulePoint) throws(RuleError) -> Answer {
        switch reader.take("answer") {
        case nil: throw reader.error(nil, "has no effect; add answer=")
        case "close": return .close
        case "hang": return .hang
        case "reset": return .reset
        case "feedback" where point == .connect:
            throw reader.error("answer", "feedback applies to notifications; remove at=connect")
        case "feedback": return .feedback
        case let text?:
            guard let status = GatewayStatus(text) else {
                throw reader.error(
                    "answer",
                    "must be a status from 0 to 255, its name such as InvalidToken, close, hang, reset or feedback, "
                        + "not '\(text)'")
            }
            return .packet(try packet(status, &reader, at: point))
        }
    }

    private static func packet(
        _ status: GatewayStatus, _ reader: inout RuleReader, at point: RulePoint
    ) throws(RuleError) -> Packet {
        var packet = GatewayAction.Packet(status: status)
        // Before the first notification, there is no notification to name.
        if point == .connect {
            packet.identifier = .zero
        } else {
            packet.identifier =
                try reader.take("identifier", "must be own, 0 or wrong") { GatewayAction.Identifier(rawValue: $0) }
                ?? .own
        }
        packet.isSplit = try reader.flag("split") ?? false
        packet.isHalf =
            try reader.take("packet", "must be whole or half") { ["whole": false, "half": true][$0] } ?? false
        packet.lingers = try reader.flag("linger") ?? false
        return packet
    }
}

/// The rules' decision on a notification or a connection.
struct GatewayEffect: Equatable {
    var answer: GatewayAction.Answer
    var accepts: Bool
    /// The delay in microseconds.
    var delay: Int64 = 0
    /// The time that the feedback service reports, in milliseconds since 1970; nil for the time of arrival.
    var since: Int64?
}

extension GatewayEffect {
    init(_ action: GatewayAction, _ generator: inout SeededGenerator) {
        self.init(
            answer: action.answer, accepts: action.accepts, delay: action.delay?.draw(&generator) ?? 0)
    }

    /// The effect on the connection of an accepted client; `nil` if no rule applies.
    init?(ofNextConnection script: inout RuleScript<GatewayAction>, _ generator: inout SeededGenerator) {
        guard let action = script.nextConnection(&generator) else { return nil }
        self.init(action, &generator)
    }

    /// The effect on a notification that would be accepted; `nil` if no rule applies.
    /// - Parameter ordinal: the number of the notification on its connection, from 1.
    init?(
        of script: inout RuleScript<GatewayAction>, on token: SimulatedToken, ordinal: Int,
        _ generator: inout SeededGenerator
    ) {
        let event = RuleEvent(point: .notification, target: .device(token), ordinal: ordinal, connection: 0)
        guard let action = script.first(for: event, &generator) else { return nil }
        self.init(action, &generator)
    }

    /// Returns the outcome for the recording.
    /// - Parameter isSimple: true if the notification came with command 0, which has no error packets.
    func outcome(isSimple: Bool) -> ReceivedNotification.Outcome {
        switch answer {
        // The packet names the last accepted notification, which is not this one.
        case .packet(let packet) where packet.status == .shutdown && !accepts: .dropped
        case .packet(let packet): .refused(packet.status, isSimple: isSimple && packet.status != .shutdown)
        case .close: .closed
        case .hang: .silenced
        case .reset: .reset
        case .feedback: .acceptedByGateway
        }
    }
}

extension GatewayStatus {
    /// Reads a number from 0 to 255, or a name such as `InvalidToken`.
    init?(_ text: String) {
        if let code = UInt8(text) {
            self.init(code: code)
        } else if let code = (UInt8.min ... .max).first(where: { GatewayStatus(code: $0).name == text }) {
            self.init(code: code)
        } else {
            return nil
        }
    }

    /// The status in the account, such as `8 InvalidToken`.
    var label: String {
        if case .other(let code) = self { "\(code)" } else { "\(code) \(name)" }
    }

    /// Returns the error packet: command 8, the status, and the identifier of a notification.
    func packet(identifier: UInt32) -> [UInt8] { [8, code] + withUnsafeBytes(of: identifier.bigEndian) { Array($0) } }
}
