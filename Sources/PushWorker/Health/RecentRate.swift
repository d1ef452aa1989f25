import NIOCore

/// How many of something there were in a second lately, by looking at a count now and then, without any I/O.
struct RecentRate {
    /// How long what has been is looked back at.
    static let window = TimeAmount.seconds(60)
    /// Looks that come sooner after each other are one.
    static let spacing = TimeAmount.seconds(1)

    private var looks: [(at: NIODeadline, count: Int)] = []

    /// Looks at the count.
    /// - Returns: the rate a second since the last look that is at least a window old, or since the first of all.
    mutating func update(_ count: Int, now: NIODeadline) -> Double {
        if let last = looks.last, now - last.at < Self.spacing {} else { looks.append((now, count)) }
        // One that is older is kept, so that the whole window is seen.
        while looks.count > 1, now - looks[1].at >= Self.window { looks.removeFirst() }
        guard let first = looks.first, now > first.at else { return 0 }
        return Double(count - first.count) / (Double((now - first.at).nanoseconds) / 1e9)
    }
}
