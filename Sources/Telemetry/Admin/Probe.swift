/// What a probe of the process finds: whether all is well, and what is not.
public struct Probe: Sendable, Equatable {
    /// Something that is wrong.
    public struct Problem: Sendable, Equatable {
        /// What is wrong, in a sentence.
        public var sentence: String
        /// For how many seconds it has been so.
        public var seconds: Int

        /// Tells of a problem; see the members.
        public init(_ sentence: String, seconds: Int) {
            self.sentence = sentence
            self.seconds = seconds
        }
    }

    /// The answer in a word or two, such as `ready` or `draining`.
    public var word: String
    /// Whether all is well: then the probe is answered with 200, else with 503.
    public var isGood: Bool
    /// What is wrong.
    public var problems: [Problem]

    /// Makes an answer; see the members.
    public init(_ word: String, isGood: Bool, problems: [Problem] = []) {
        self.word = word
        self.isGood = isGood
        self.problems = problems
    }

    /// The word, and a line for each problem.
    public var text: String {
        var text = "\(word)\n"
        for problem in problems { text += "- \(problem.sentence) (for \(problem.seconds) s)\n" }
        return text
    }
}
