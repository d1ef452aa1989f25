import PushQueue

/// A pause as a status shows it.
package struct PauseStatus: Encodable, Sendable, Equatable {
    package var reason: String
    package var detail: String?
    /// The beginning in milliseconds since 1970, as all times here.
    package var since: Int64?
    package var by: String?

    package init(_ pause: PauseRecord) {
        (reason, detail, since, by) = (pause.reason, pause.detail, pause.since, pause.by)
    }

    /// True if an operator gave no reason: the reason then names the operator.
    package var isReasonless: Bool { by.map { reason == "by \($0)" } ?? false }

    /// The reason, the beginning and the origin.
    package var inWords: String {
        let since = since.map { ", since " + Moment.text($0) }
        let by = isReasonless ? nil : by.map { ", by \($0)" }
        return reason + (since ?? "") + (by ?? "")
    }
}

extension PauseStatus: Shown {
    package static let columns = Columns<Self>(
        "Pause", "A pause.",
        [
            .init("reason", "Reason.", \.reason), .init("detail", "Explanation of the reason.", \.detail),
            .init("since", "Beginning.", as: .time, \.since), .init("by", "Operator.", \.by),
        ])
}
