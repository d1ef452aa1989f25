import Hummingbird
import WebPages

/// The notifications that a page of the inbox shows.
struct InboxFilter: Sendable {
    /// A part of the device token or the channel.
    var token = ""
    /// A part of the payload, the token, the topic, the `apns-id` or the push type.
    var text = ""
    var answer = ""
    var pushType = ""
    /// Shows notifications below this number in the recording; `nil` for the newest.
    var before: UInt64?
    var view = View.all

    /// The arrangements of the pushes.
    enum View: String, CaseIterable, Sendable {
        case all, devices, activities

        var title: HTML {
            switch self {
            case .all: "All pushes"
            case .devices: "By device"
            case .activities: "Live Activities"
            }
        }
    }

    /// The number of notifications on a page.
    static let pageSize = 50

    static let pushTypes: [(value: String, title: String)] =
        [("", "any")] + PushPreview.Kind.allCases.filter { $0 != .unknown }.map { ($0.rawValue, $0.rawValue) }

    init() {}

    /// Reads a query. Invalid values are ignored, because users can edit them.
    init(_ request: Request) {
        let query = (try? URLEncodedFormDecoder().decode([String: String].self, from: request.uri.query ?? "")) ?? [:]
        func value(_ name: String) -> String { String((query[name] ?? "").prefix(2048)) }
        token = value("token").lowercased().filter { !$0.isWhitespace }
        text = value("text")
        answer = value("answer")
        pushType = value("type")
        view = View(rawValue: value("view")) ?? .all
        before = view == .all ? UInt64(value("before")) : nil
    }

    var isEmpty: Bool { [token, text, answer, pushType].allSatisfy(\.isEmpty) }

    func matches(_ notification: ReceivedNotification) -> Bool {
        if !token.isEmpty,
            ![notification.token, notification.channel].contains(where: { $0?.lowercased().contains(token) ?? false })
        {
            return false
        }
        if !pushType.isEmpty, notification.preview.kind.rawValue != pushType { return false }
        switch answer {
        case "": break
        case "accepted": if !notification.accepted { return false }
        case "refused": if notification.accepted { return false }
        case "lost": if notification.hasAnswer { return false }
        default:
            guard case .answered(let status, _) = notification.outcome, "\(status)" == answer else { return false }
        }
        return text.isEmpty || notification.contains(text)
    }

    /// The query of this filter.
    var query: [(name: String, value: String?)] {
        func given(_ text: String) -> String? { text.isEmpty ? nil : text }
        return [
            ("token", given(token)), ("text", given(text)), ("answer", given(answer)), ("type", given(pushType)),
            ("before", before.map { "\($0)" }), ("view", view == .all ? nil : view.rawValue),
        ]
    }

    /// The path of the page.
    var path: String { Links().path([], query) }
}

// Texts about a notification.
extension ReceivedNotification {
    var preview: PushPreview {
        PushPreview(
            payload: payload, pushType: pushType, topic: topic, priority: priority, expiration: expiration,
            collapseID: collapseID)
    }

    /// Returns true if a search for a text finds the notification. Case does not matter.
    func contains(_ text: String) -> Bool {
        let wanted = text.lowercased()
        let names = [token, channel, topic, apnsID, pushType ?? preview.kind.rawValue]
        return names.contains { $0?.lowercased().contains(wanted) ?? false } || PayloadText.contains(text, in: payload)
    }

    /// True if the sender gets an answer, or needs none because the gateway accepted.
    var hasAnswer: Bool { if case .answered = outcome { true } else { false } }

    /// True if the notification was accepted and the sender knows.
    var isSuccess: Bool { accepted && hasAnswer }

    /// The answer, such as `410 Unregistered` or `no answer`.
    var answerText: String {
        let text =
            switch outcome {
            case .answered(0, _) where transport == .gateway: "accepted"
            case .answered(let status, let reason): "\(status)" + (reason.map { " \($0)" } ?? "")
            case .reset: transport == .http2 ? "stream reset" : "connection reset"
            case .goAway: "GOAWAY, not processed"
            case .dropped: transport == .http2 ? "connection lost" : "discarded with the connection"
            case .silenced: "no answer"
            case .closed: "connection closed"
            }
        return accepted && !hasAnswer ? text + ", but accepted" : text
    }

    /// The delay of the answer, such as `41 ms`; `nil` if there was none.
    var delayText: String? {
        guard answerDelay >= 1000, hasAnswer else { return nil }
        let milliseconds = answerDelay / 1000
        return milliseconds < 1000 ? "\(milliseconds) ms" : "\(milliseconds / 1000).\(milliseconds % 1000 / 100) s"
    }

    /// Returns true for another attempt to send the same notification: the same `apns-id`, or the same payload for the
    /// same device.
    func isAttempt(of other: ReceivedNotification) -> Bool {
        if let apnsID, apnsID == other.apnsID { return true }
        return token != nil && token == other.token && topic == other.topic && payload == other.payload
    }
}
