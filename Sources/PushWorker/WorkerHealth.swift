/// Whether a worker can do its work, and what keeps it from that.
public struct WorkerHealth: Sendable, Equatable {
    /// What is wrong, a sentence each; the same one once, however many lanes have it.
    public private(set) var problems: [String]

    /// Whether jobs that come now can be sent.
    public var isReady: Bool { problems.isEmpty }

    init(problems: [String] = []) {
        self.problems = []
        for problem in problems where !self.problems.contains(problem) { self.problems.append(problem) }
    }
}
