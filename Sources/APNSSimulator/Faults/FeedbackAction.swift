/// A rule of the feedback service, in the form of `--feedback-fault`.
package typealias FeedbackRule = Rule<FeedbackAction>

/// The way in which the feedback service serves a connection.
package struct FeedbackAction: RuleAction {
    /// The wait between pieces.
    package var slow: AnswerDelay?
    /// The size of a piece in bytes is a random number of this range; `nil` for one record.
    package var pieces: ClosedRange<Int>?
    /// The connection ends after this many bytes, possibly within a record. The service deletes a record when it begins to
    /// send it, so a record that is cut is lost.
    package var cut: Int?
    /// True if the connection stays open when everything has been sent.
    package var hangs = false

    package static let points = [RulePoint.connect]

    package static func conditions(at point: RulePoint) -> [RuleCondition] { [.times] }

    package init(_ reader: inout RuleReader, at point: RulePoint) throws(RuleError) {
        slow = try reader.take("slow", "must be \(AnswerDelay.form)") { AnswerDelay($0) }
        pieces = try reader.take("pieces", "must be a number of bytes, at least 1, or a range such as 1..7", Self.range)
        cut = try reader.take("cut", "must be a whole number of bytes") { Int($0).flatMap { $0 >= 0 ? $0 : nil } }
        hangs = try reader.flag("hang") ?? false
        guard slow != nil || pieces != nil || cut != nil || hangs else {
            throw reader.error(nil, "has no effect; add slow=, pieces=, cut= or hang=true")
        }
    }

    private static func range(_ text: String) -> ClosedRange<Int>? {
        let ends = text.split(separator: "..", omittingEmptySubsequences: false).map { Int($0) }
        guard ends.count <= 2, let first = ends[0], let last = ends[ends.count - 1], 1 <= first, first <= last else {
            return nil
        }
        return first...last
    }
}
