/// One line of what a check of a configuration found.
public struct CheckVerdict: Sendable, Equatable, Encodable {
    /// How it is.
    public enum Level: String, Sendable, Encodable {
        case ok
        /// It works, and somebody should know.
        case warning
        /// It does not work.
        case failure
    }

    /// How it is.
    public var level: Level
    /// What was looked at, such as `redis` or `app shop`.
    public var subject: String
    /// What was found and, where it is bad, what to do.
    public var sentence: String

    /// Makes a verdict.
    public init(_ level: Level, _ subject: String, _ sentence: String) {
        self.level = level
        self.subject = subject
        self.sentence = sentence
    }
}
