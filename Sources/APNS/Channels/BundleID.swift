/// An app's bundle identifier, fit to stand in a path.
public struct BundleID: Hashable, Sendable, CustomStringConvertible {
    /// Such as `com.example.app`.
    public let description: String

    /// What is wrong with one.
    public struct Invalid: Error, Equatable, Sendable, CustomStringConvertible {
        /// What is wrong and what to do.
        public let description: String
    }

    /// Takes a bundle identifier, or the topic of Live Activities that is made from it.
    ///
    /// Apple has letters, digits, hyphens and dots in bundle identifiers ("CFBundleIdentifier"); underscores mean nothing in a
    /// path either, and are let through. Anything else could make another path of it.
    public init(topic: String) throws(Invalid) {
        let suffix = PushType.liveactivity.topicSuffix
        let text = topic.hasSuffix(suffix) ? String(topic.dropLast(suffix.count)) : topic
        let isPlain = text.utf8.allSatisfy { byte in
            byte &- 0x30 < 10 || (byte | 0x20) &- 0x61 < 26 || byte == 0x2D || byte == 0x2E || byte == 0x5F
        }
        guard isPlain, (1...255).contains(text.utf8.count), !text.utf8.allSatisfy({ $0 == 0x2E }) else {
            throw Invalid(
                description: "the topic of a broadcast has to be the app's bundle identifier, "
                    + "made of letters, digits, hyphens, dots and underscores, such as com.example.app")
        }
        description = text
    }
}
