/// An answer that a button of the inbox gives to the next notification for a device.
struct NextAnswer: Sendable {
    let value: String
    /// The button's text.
    let title: String
    /// The rule, without the keys that select the notification.
    private let effect: String

    private init(_ value: String, _ title: String, _ effect: String) {
        (self.value, self.title, self.effect) = (value, title, effect)
    }

    private static let http2 = [
        NextAnswer("410", "410 Unregistered", "answer=410"), NextAnswer("429", "429 TooManyRequests", "answer=429"),
        NextAnswer("503", "503 ServiceUnavailable", "answer=503"), NextAnswer("slow", "after 5 s", "delay=5s"),
        NextAnswer("silence", "no answer", "answer=silence"), NextAnswer("drop", "connection lost", "answer=drop"),
    ]

    /// The gateway does not acknowledge what it accepts, so its answers can be neither slow nor lost.
    private static let gateway = [
        NextAnswer("8", "8 InvalidToken", "answer=8"), NextAnswer("1", "1 ProcessingError", "answer=1"),
        NextAnswer("10", "10 Shutdown", "answer=10"),
        NextAnswer("feedback", "accepted, then in feedback", "answer=feedback"),
        NextAnswer("hang", "no answer", "answer=hang"), NextAnswer("close", "connection closed", "answer=close"),
    ]

    static func all(_ transport: ReceivedNotification.Transport) -> [NextAnswer] {
        transport == .http2 ? http2 : gateway
    }

    /// Makes this the answer to the next notification for a device.
    /// - Throws: ``RuleError``.
    func apply(
        to token: SimulatedToken, _ transport: ReceivedNotification.Transport, _ service: SimulatedService
    ) throws {
        // A rule's prefix has at most 64 digits; the pending rule's token selects the notification.
        let rule = "prefix=\(token.hex.prefix(64)),times=1,\(effect)"
        switch transport {
        case .http2:
            let rule = try FaultRule(rule)
            service.state.withLock { $0.rules.addPending(rule, for: token) }
        case .gateway:
            let rule = try GatewayRule(rule)
            service.state.withLock { $0.gatewayRules.addPending(rule, for: token) }
        }
    }
}
