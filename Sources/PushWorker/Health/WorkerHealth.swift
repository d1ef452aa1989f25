/// Whether a worker can do its work, and what keeps it from that.
public struct WorkerHealth: Sendable, Equatable {
    /// Something that keeps it from its work.
    public struct Problem: Sendable, Equatable {
        /// What is wrong, in a sentence.
        public var sentence: String
        /// For how many seconds it has been so.
        public var seconds: Int
    }

    /// What is wrong; the same thing once, with its longest time, however many lanes have it.
    public private(set) var details: [Problem] = []
    /// Whether the worker is ending, and takes no more jobs.
    public var isDraining = false

    /// What is wrong, a sentence each.
    public var problems: [String] { details.map(\.sentence) }

    /// Whether jobs that come now can be sent.
    public var isReady: Bool { details.isEmpty }

    init(_ problems: [Problem] = []) {
        for problem in problems { add(problem) }
    }

    mutating func add(_ problem: Problem) {
        guard let known = details.firstIndex(where: { $0.sentence == problem.sentence }) else {
            return details.append(problem)
        }
        details[known].seconds = max(details[known].seconds, problem.seconds)
    }
}
