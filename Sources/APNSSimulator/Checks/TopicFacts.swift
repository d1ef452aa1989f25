import APNS

/// What there is to know about one value of `apns-topic` on one connection, worked out once.
struct TopicFacts: Sendable, Equatable {
    /// Letters, digits, dots, hyphens and underscores, and not empty.
    var isWellFormed: Bool
    /// The simulator's list names it, or there is no list.
    var isListed: Bool
    /// It belongs to the client's certificate; false without one.
    var isOfCertificate: Bool
    /// For which push types it ends as Apple's table asks; a bit for each.
    private var suffixes: UInt32

    init(topic: String, listed: Set<String>, certificateTopic: String?) {
        isWellFormed =
            !topic.isEmpty
            && topic.utf8.allSatisfy { byte in
                switch byte {
                case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F: true
                default: false
                }
            }
        isListed = listed.isEmpty
        isOfCertificate = false
        suffixes = 0
        for (index, type) in PushType.allCases.enumerated() where topic.hasSuffix(type.topicSuffix) {
            suffixes |= 1 << UInt32(index)
            // An app may push to its bundle identifier and to all that is derived from it.
            let bundle = String(topic.dropLast(type.topicSuffix.count))
            if listed.contains(bundle) || listed.contains(topic) { isListed = true }
            if bundle == certificateTopic || topic == certificateTopic { isOfCertificate = true }
        }
    }

    func ends(for type: PushType) -> Bool {
        guard !type.topicSuffix.isEmpty else { return true }
        guard let index = PushType.allCases.firstIndex(of: type) else { return false }
        return suffixes & 1 << UInt32(index) != 0
    }
}
