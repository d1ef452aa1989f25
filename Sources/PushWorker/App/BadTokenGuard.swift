/// Distinguishes bad tokens from a misconfigured app. No I/O.
///
/// A worker that uses the wrong environment or topic gets `BadDeviceToken` or `DeviceTokenNotForTopic` for tokens that
/// are valid elsewhere. So such an answer is believed only while APNs also accepts notifications of the app. A token
/// refused while none are accepted is tried again later; if most are refused, the app is paused instead.
struct BadTokenGuard {
    enum Judgement: Equatable {
        /// The token is bad.
        case mark
        /// Not certain yet: try again later.
        case hold
        /// The app is at fault.
        case trip
    }

    /// The number of recent answers that are considered.
    private static let window = 32
    /// The number of bad answers below which nothing is concluded.
    private static let fewest = 8
    /// The number of consecutive bad answers after which the next is not believed. Good lists contain a few bad tokens
    /// at random places, so longer runs are rare, and another try does those tokens no harm.
    private static let longestRun = 2

    /// The share of bad answers, from 0 to 1, above which the app is at fault. At 1 every bad answer is believed.
    let maximumShare: Double
    /// The last answers, the newest in the lowest bit; 1 is a bad answer.
    private var answers: UInt64 = 0
    private var count = 0
    private var run = 0

    init(maximumShare: Double = 0.5) {
        self.maximumShare = maximumShare
    }

    /// Records that APNs accepted a notification or its token.
    mutating func recordGood() {
        answers <<= 1
        if count < Self.window { count += 1 }
        run = 0
    }

    /// Records that APNs reported a bad token.
    /// - Parameter isRepeated: true for a token that APNs reported before, and that was held. While APNs accepts others,
    ///   its second report says nothing new about the app. It must not count again: the held tokens of a list return
    ///   together after the list's end, when no accepted ones come between them.
    mutating func recordBad(isRepeated: Bool = false) -> Judgement {
        guard maximumShare < 1 else { return .mark }
        if isRepeated, hasAccepted { return .mark }
        answers = answers << 1 | 1
        if count < Self.window { count += 1 }
        run += 1
        let bad = recentlyBad
        if bad >= Self.fewest, Double(bad) > Double(count) * maximumShare { return .trip }
        return run > Self.longestRun || bad == count ? .hold : .mark
    }

    /// The number of bad answers among those that are considered.
    private var recentlyBad: Int { (answers & (1 << UInt64(count) - 1)).nonzeroBitCount }

    /// True if APNs accepted any of the notifications that are considered.
    private var hasAccepted: Bool { recentlyBad < count }

    /// Discards past answers, because the app has been paused or has changed.
    mutating func reset() { self = BadTokenGuard(maximumShare: maximumShare) }
}
