/// A text of feedback records: a line each, the device token's hex digits, a space, and the time in seconds since 1970.
public enum FeedbackFile {
    /// What is wrong with a line.
    public struct Failure: Error, Equatable, CustomStringConvertible {
        /// Which line, from 1.
        public let line: Int
        /// What would be right.
        public let problem: String

        /// Both.
        public var description: String { "line \(line): \(problem)" }
    }

    /// Reads it; empty lines say nothing.
    /// - Throws: ``Failure`` with the number of the line, never with the token.
    public static func records(_ text: String) throws(Failure) -> [FeedbackRecord] {
        var records: [FeedbackRecord] = []
        for (index, line) in text.split(omittingEmptySubsequences: false, whereSeparator: \.isNewline)
            .enumerated()
        {
            let words = line.split { $0 == " " || $0 == "\t" }
            if words.isEmpty { continue }
            guard words.count == 2 else {
                throw Failure(line: index + 1, problem: "must be a device token, a space and seconds since 1970")
            }
            guard let token = SimulatedToken(hex: words[0]) else {
                throw Failure(line: index + 1, problem: "the device token must be 64 to 200 hex digits, an even number")
            }
            guard let seconds = UInt32(words[1]) else {
                throw Failure(line: index + 1, problem: "the time must be seconds since 1970, not '\(words[1])'")
            }
            records.append(FeedbackRecord(token: token, seconds: seconds))
        }
        return records
    }
}
