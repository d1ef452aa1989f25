import NIOCore

/// Tells a server that floods from one that answers, by bytes alone.
///
/// A frame has at least nine bytes (RFC 9113 §4.1), so a bound on bytes that belong to no answer bounds PING, SETTINGS,
/// RST_STREAM, WINDOW_UPDATE, PRIORITY, CONTINUATION, empty DATA and frames of unknown kinds at once, and costs an addition
/// for each read instead of a call for each frame. A leaky bucket: what is received fills it, time and the ends of
/// requests empty it.
struct FloodGauge {
    /// What may come that belongs to no request.
    static let burst = 256 * 1024
    /// How much of that is forgotten in a second: some hundred PINGs' worth, or 1,800 of the smallest frames.
    static let leak = 16 * 1024
    /// What a request's answer may have: header fields and a body, each up to what we keep of them.
    static let answer = 32 * 1024

    private(set) var level = 0
    private var leakedAt = NIODeadline.distantPast

    mutating func received(_ bytes: Int) { level += bytes }

    mutating func requestEnded() { level = max(0, level - Self.answer) }

    /// To be called now and then.
    mutating func check(now: NIODeadline) {
        // The first call only starts the clock.
        defer { leakedAt = now }
        guard leakedAt > .distantPast else { return }
        let milliseconds = min((now - leakedAt).nanoseconds / 1_000_000, 3_600_000)
        level = max(0, level - Int(milliseconds) * Self.leak / 1000)
    }

    /// Whether more came than answers to so many requests can account for.
    func isOverflowing(inFlight: Int) -> Bool { level > Self.burst + Self.answer * max(inFlight, 0) }
}
