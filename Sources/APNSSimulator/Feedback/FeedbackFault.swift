/// A scripted fault of the feedback service: how connections are served that it meets.
public struct FeedbackFault: Equatable, Sendable {
    /// It meets the first so many connections; nil meets all.
    public var times: Int?
    /// How long to wait between pieces.
    public var slow: AnswerDelay?
    /// How many bytes a piece has, anything in this range; one record if nil.
    public var pieces: ClosedRange<Int>?
    /// After how many bytes it ends, in the middle of a record perhaps. What was begun to be sent is forgotten.
    public var cut: Int?
    /// Whether the connection stays open when all is said.
    public var hangs = false

    /// Reads a fault such as `slow=10ms,pieces=1..7` or `cut=50,times=1`.
    /// - Throws: ``FaultRuleError`` naming the rule and the key.
    public init(_ text: String) throws(FaultRuleError) {
        var reader = try RuleReader(text)
        times = try reader.count("times")
        slow = try reader.take("slow", "must be a time such as 10ms or 10ms±5ms, up to an hour") { AnswerDelay($0) }
        pieces = try reader.take("pieces", "must be a number of bytes from 1, or a range such as 1..7", Self.range)
        cut = try reader.take("cut", "must be a whole number of bytes") { Int($0).flatMap { $0 >= 0 ? $0 : nil } }
        hangs = try reader.flag("hang") ?? false
        try reader.finish()
        guard slow != nil || pieces != nil || cut != nil || hangs else {
            throw reader.error(nil, "does nothing; give it slow=, pieces=, cut= or hang=true")
        }
    }

    private static func range(_ text: String) -> ClosedRange<Int>? {
        let ends = text.split(separator: ".", omittingEmptySubsequences: false)
        let numbers = ends.compactMap { Int($0) }
        switch ends.count {
        case 1: return numbers.count == 1 && numbers[0] >= 1 ? numbers[0]...numbers[0] : nil
        case 3:
            guard numbers.count == 2, ends[1].isEmpty, numbers[0] >= 1, numbers[0] <= numbers[1] else { return nil }
            return numbers[0]...numbers[1]
        default: return nil
        }
    }
}

/// The faults in force: the first that has not met all its connections decides.
struct FeedbackScript: Sendable {
    private let faults: [FeedbackFault]
    private var met: [Int]

    init(_ faults: [FeedbackFault]) {
        self.faults = faults
        met = Array(repeating: 0, count: faults.count)
    }

    /// How the next connection is served; nil for as it should be.
    mutating func next() -> FeedbackFault? {
        for index in faults.indices {
            if let times = faults[index].times, met[index] >= times { continue }
            met[index] += 1
            return faults[index]
        }
        return nil
    }
}
