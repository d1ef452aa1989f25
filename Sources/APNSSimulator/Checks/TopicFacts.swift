import APNS

/// The facts about one value of `apns-topic` on one connection.
struct TopicFacts: Sendable, Equatable {
    /// The topic itself.
    let name: String
    /// True if it is not empty and has letters, digits, dots, hyphens and underscores only.
    var isWellFormed: Bool
    /// True if the simulator's list has it, or there is no list.
    var isListed: Bool
    /// True if it belongs to the client's certificate; false without one.
    var isOfCertificate: Bool
    /// The push types whose suffix in Apple's table it has; a bit each.
    private var suffixes: UInt32
    /// The topic, and the bundle identifiers that it can be derived from.
    private var names: [String]

    init(topic: String, listed: Set<String>, certificate: ClientCertificate?) {
        isWellFormed =
            !topic.isEmpty
            && topic.utf8.allSatisfy { byte in
                switch byte {
                case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F: true
                default: false
                }
            }
        name = topic
        isListed = listed.isEmpty
        isOfCertificate = certificate?.listedTopics?.contains(topic) ?? false
        suffixes = 0
        names = [topic]
        for (index, type) in PushType.allCases.enumerated() where topic.hasSuffix(type.topicSuffix) {
            suffixes |= 1 << UInt32(index)
            // An app can push to its bundle identifier and to all topics derived from it.
            let bundle = String(topic.dropLast(type.topicSuffix.count))
            if listed.contains(bundle) || listed.contains(topic) { isListed = true }
            if let certificate, certificate.listedTopics == nil, [bundle, topic].contains(certificate.topic) {
                isOfCertificate = true
            }
            if bundle != topic { names.append(bundle) }
        }
    }

    /// Returns true if the topic, or the app that it is derived from, is one of these.
    func isOne(of topics: Set<String>) -> Bool { names.contains { topics.contains($0) } }

    func ends(for type: PushType) -> Bool {
        guard !type.topicSuffix.isEmpty else { return true }
        guard let index = PushType.allCases.firstIndex(of: type) else { return false }
        return suffixes & 1 << UInt32(index) != 0
    }
}
