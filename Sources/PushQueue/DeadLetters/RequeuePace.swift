import NIOCore

/// How fast letters are requeued: so many a second, in small portions, and never more at once because there was a pause.
public struct RequeuePace: Sendable {
    /// How many portions a second has, unless there is less than one letter for each.
    private static let portions = 10

    private let interval: TimeAmount
    private let portion: Int
    /// When the next portion is due.
    private var next = NIODeadline.distantPast

    /// - Parameter perSecond: letters a second, from 1; `nil` for as fast as it goes.
    public init(perSecond: Int?) {
        guard let perSecond, perSecond > 0 else {
            (interval, portion) = (.zero, .max)
            return
        }
        portion = max(1, perSecond / Self.portions)
        interval = .nanoseconds(1_000_000_000 * Int64(portion) / Int64(perSecond))
    }

    /// Asks for a portion.
    /// - Returns: how many letters may be moved now, and how long to wait before, if that is not yet.
    public func portion(at now: NIODeadline) -> (letters: Int, wait: TimeAmount) {
        (portion, max(.zero, next - now))
    }

    /// A portion has been moved, or a part of one.
    public mutating func moved(_ letters: Int, at now: NIODeadline) {
        guard portion != .max, letters > 0 else { return }
        let share = Double(interval.nanoseconds) * Double(letters) / Double(portion)
        // What was late is not made up for by a burst.
        next = max(next, now - interval) + .nanoseconds(Int64(share))
    }
}
