import WebPages

/// The forms of the inbox. After a form is sent, the browser returns to the page with ``query``.
struct InboxForms {
    let query: [(name: String, value: String?)]

    func deletion(_ sequence: UInt64, _ title: HTML = "Delete") -> HTML {
        """
        <form class="inline" method="post" action="\(Links().path(["inbox", "delete"], query))">\
        <input type="hidden" name="sequence" value="\(sequence)">\
        <button class="small quiet" data-delete aria-label="Delete No. \(sequence)">\(title)</button></form>
        """
    }

    /// The forms for the next answer to the device of a push, in a collapsed element.
    func nextAnswers(_ notification: ReceivedNotification, id: String) -> HTML {
        let buttons = buttons(notification)
        guard !buttons.isEmpty else { return "" }
        return "<details id=\"\(id)\"><summary>Next answer for this token</summary>\(buttons)</details>"
    }

    /// The forms for the next answer to a device; empty if there is no valid device token.
    func buttons(_ notification: ReceivedNotification) -> HTML {
        guard let token = notification.token, SimulatedToken(hex: token) != nil else { return "" }
        let short = String(token.prefix(8))
        let answers = NextAnswer.all(notification.transport).map { answer -> HTML in
            """
            <button class="small" name="answer" value="\(answer.value)" \
            aria-label="Next answer for \(short)…: \(answer.title)">\(answer.title)</button>
            """
        }
        let hidden: HTML = "<input type=\"hidden\" name=\"token\" value=\"\(token)\">"
        return """
            <div class="actions next"><span class="muted">Next answer for \(short)…:</span>
            <form method="post" action="\(Links().path(["inbox", "next"], query))">\(hidden)\
            <input type="hidden" name="transport" value="\(notification.transport.rawValue)">\(answers)</form>
            <form method="post" action="\(Links().path(["inbox", "forget"], query))">\(hidden)\
            <button class="small" aria-label="Undo the next answers for \(short)…">Undo</button></form></div>
            """
    }

    /// The rules, each with a form that removes it.
    func rules(_ service: SimulatedService) -> HTML {
        let all = service.rules.all.map { ($0.text, false) } + service.gatewayRules.all.map { ($0.text, true) }
        let rows = all.map { text, isGateway -> [HTML] in
            [
                "<code>\(text)</code>", isGateway ? "gateway" : "HTTP/2",
                """
                <form method="post" action="\(Links().path(["inbox", "remove"], query))">\
                <input type="hidden" name="rule" value="\(text)">\
                <input type="hidden" name="isGateway" value="\(isGateway ? "true" : "false")">\
                <button class="small" aria-label="Remove the rule \(text)">Remove</button></form>
                """,
            ]
        }
        return """
            <h2>Rules</h2>
            \(Elements.list(
                "Rules",
                [.init("Rule"), .init("Interface", .key), .init("<span class=\"hidden\">Action</span>", .key)], rows,
                empty: Elements.empty("No rules: every valid request is accepted.")))
            """
    }
}

/// An answer that a button of the inbox gives to the next notification for a device.
struct NextAnswer: Sendable {
    let value: String
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

    /// The buttons omit slow and lost answers, because the gateway does not acknowledge what it accepts.
    private static let gateway = [
        NextAnswer("8", "8 InvalidToken", "answer=8"), NextAnswer("1", "1 ProcessingError", "answer=1"),
        NextAnswer("10", "10 Shutdown", "answer=10"),
        NextAnswer("feedback", "accepted, then in feedback", "answer=feedback"),
        NextAnswer("hang", "no answer", "answer=hang"), NextAnswer("close", "connection closed", "answer=close"),
    ]

    static func all(_ transport: ReceivedNotification.Transport) -> [NextAnswer] {
        transport == .http2 ? http2 : gateway
    }

    /// - Throws: ``RuleError``.
    func apply(
        to token: SimulatedToken, _ transport: ReceivedNotification.Transport, _ service: SimulatedService
    ) throws {
        // The prefix only makes the rule readable, and has at most 64 digits. The pending rule's token selects the notification.
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
