/// Tells tokens that are bad from an app that is: without any I/O.
///
/// A worker that is pointed at the wrong environment, or has the wrong topic, gets `BadDeviceToken` or
/// `DeviceTokenNotForTopic` for tokens that are good elsewhere. So the word of APNs counts as long as it also takes
/// notifications of the app now and then; a token that is called bad while none is taken is tried again later, and when most
/// are called bad, the app is paused instead.
struct BadTokenGuard {
    enum Judgement: Equatable {
        /// The token is bad.
        case mark
        /// It cannot be told yet: try again.
        case hold
        /// It is the app.
        case trip
    }

    /// Answers that are looked back at.
    private static let window = 32
    /// Bad ones below which nothing is concluded.
    private static let fewest = 8
    /// Bad ones in a row, after which the next is not believed. A random few of good lists' tokens are bad; that so many
    /// of them follow each other is rare, and being tried again does them no harm.
    private static let longestRun = 2

    /// The share of bad answers, from 0 to 1, above which it is the app. At 1, every token's word is taken.
    let maximumShare: Double
    /// The last answers, the newest in the lowest bit; a bad one is set.
    private var answers: UInt64 = 0
    private var count = 0
    private var run = 0

    init(maximumShare: Double = 0.5) {
        self.maximumShare = maximumShare
    }

    /// APNs took a notification, or knew its token.
    mutating func good() {
        answers <<= 1
        if count < Self.window { count += 1 }
        run = 0
    }

    /// APNs called a token bad.
    mutating func bad() -> Judgement {
        guard maximumShare < 1 else { return .mark }
        answers = answers << 1 | 1
        if count < Self.window { count += 1 }
        run += 1
        let bad = (answers & (1 << UInt64(count) - 1)).nonzeroBitCount
        if bad >= Self.fewest, Double(bad) > Double(count) * maximumShare { return .trip }
        return run > Self.longestRun || bad == count ? .hold : .mark
    }

    /// The app has been paused or has changed: what was seen before says nothing any more.
    mutating func startAfresh() { self = BadTokenGuard(maximumShare: maximumShare) }
}
