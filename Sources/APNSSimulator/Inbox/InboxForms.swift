import WebPages

/// The forms of the inbox, which return to a page.
struct InboxForms {
    /// The query of the page.
    let query: [(name: String, value: String?)]

    /// The form that deletes one push.
    func deletion(_ sequence: UInt64) -> HTML {
        """
        <form class="inline" method="post" action="\(Links().path(["inbox", "delete"], query))">\
        <input type="hidden" name="sequence" value="\(sequence)">\
        <button class="small quiet" data-delete aria-label="Delete No. \(sequence)">Delete</button></form>
        """
    }

    /// The forms for the next answer to the device of a push, which are opened by a click.
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
        let all = service.rules.map { ($0.text, false) } + service.gatewayRules.map { ($0.text, true) }
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
