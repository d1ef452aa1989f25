import APNS

extension GatewayRule {
    /// Reads a rule such as `prefix=dead,answer=8` or `at=connect,answer=close,times=2`.
    ///
    /// Keys that say what it meets (all must agree; without any, every notification): `at` (`connect` for
    /// connections), `prefix`, `rate`, `times`, `after`. Keys that say what happens: `answer` (a status by number or
    /// name, `close`, `hang`, `reset`, `feedback`), and details of it: `accept`, `delay`, `identifier`, `packet`,
    /// `split`, `linger`.
    /// - Throws: ``FaultRuleError`` naming the rule and the key.
    public init(_ text: String) throws(FaultRuleError) {
        var reader = try RuleReader(text)
        point = try reader.take("at", "must be connect or notification") { Point(rawValue: $0) } ?? .notification
        rate = try reader.rate()
        times = try reader.count("times")
        after = try reader.count("after")
        answer = try reader.gatewayAnswer(at: point)
        if point == .notification {
            prefix = try reader.prefix()
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
        try reader.finish()
        self.text = reader.written
    }
}

extension RuleReader {
    fileprivate mutating func gatewayAnswer(at point: GatewayRule.Point) throws(FaultRuleError) -> GatewayRule.Answer {
        switch take("answer") {
        case nil: throw error(nil, "does nothing; give it answer=")
        case "close": return .close
        case "hang": return .hang
        case "reset": return .reset
        case "feedback" where point == .connect:
            throw error("answer", "feedback is about a notification; take at=connect away")
        case "feedback": return .feedback
        case let text?:
            guard let status = GatewayStatus(text) else {
                throw error(
                    "answer",
                    "must be a status from 0 to 255, its name such as InvalidToken, close, hang, reset or feedback, "
                        + "not '\(text)'")
            }
            return .packet(try packet(status, at: point))
        }
    }

    private mutating func packet(
        _ status: GatewayStatus, at point: GatewayRule.Point
    ) throws(FaultRuleError) -> GatewayRule.Packet {
        var packet = GatewayRule.Packet(status: status)
        // Before the first notification there is none that it could name.
        if point == .connect {
            packet.identifier = .zero
        } else {
            packet.identifier =
                try take("identifier", "must be own, 0 or wrong") { GatewayRule.Identifier(rawValue: $0) } ?? .own
        }
        packet.isSplit = try flag("split") ?? false
        packet.isHalf =
            try take("packet", "must be whole or half") { ["whole": false, "half": true][$0] } ?? false
        packet.lingers = try flag("linger") ?? false
        return packet
    }
}
