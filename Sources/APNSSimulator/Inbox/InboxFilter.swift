import Hummingbird
import PushJob
import WebPages

/// The notifications that a page of the inbox shows.
struct InboxFilter: Sendable {
    /// A part of the device token or the channel.
    var token = ""
    /// A part of the payload, the token, the topic, the `apns-id` or the push type.
    var text = ""
    var answer = ""
    var pushType = ""
    /// The page begins below this number in the recording; `nil` for the newest.
    var before: UInt64?
    /// The number of the push in the preview; `nil` for the newest.
    var open: UInt64?
    var view = View.all

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

    static let pageSize = 50

    static let pushTypes: [(value: String, title: String)] =
        [("", "any")] + PushType.allCases.map { ($0.name, $0.name) }

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
        open = view == .all ? UInt64(value("open")) : nil
    }

    var isEmpty: Bool { [token, text, answer, pushType].allSatisfy(\.isEmpty) }

    func matches(_ notification: ReceivedNotification) -> Bool {
        if !token.isEmpty,
            ![notification.token, notification.channel].contains(where: { $0?.lowercased().contains(token) ?? false })
        {
            return false
        }
        if !pushType.isEmpty, notification.preview.kind.name != pushType { return false }
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

    var query: [(name: String, value: String?)] {
        func given(_ text: String) -> String? { text.isEmpty ? nil : text }
        return [
            ("token", given(token)), ("text", given(text)), ("answer", given(answer)), ("type", given(pushType)),
            ("before", before.map { "\($0)" }), ("open", open.map { "\($0)" }),
            ("view", view == .all ? nil : view.rawValue),
        ]
    }

    var path: String { Links().path([], query) }
}
