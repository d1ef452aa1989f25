import TLS

/// The contents of an Apple push certificate.
///
/// Sources: Apple, "Establishing a certificate-based connection to APNs" and "Sending notification requests to APNs"
/// (the topics of extensions …6.3.4 and …6.3.6); Apple Worldwide Developer Relations, Certification Practice Statement
/// (…6.3.1 and …6.3.2). The encoding of the list of topics is not documented; it is inferred from Apple's certificates.
public struct APNSCertificate: Sendable, Equatable {
    public struct Topic: Sendable, Equatable {
        /// The topic's name, such as `com.example.app.voip`. It is not checked: a certificate can contain any characters.
        public let name: String
        /// The uses of the topic, such as `app`, `voip` or `complication`; empty if the certificate lists none.
        public let types: [String]
    }

    /// The topics: the subject's user ID first, then the topics of the extensions.
    public let topics: [Topic]
    /// The environments that the certificate is marked for; empty if it is marked for none.
    public let environments: Set<APNSEnvironment>
    public let commonName: String?
    /// In seconds since 1970; nil if the date cannot be read.
    public let notBefore: Int64?
    /// In seconds since 1970; nil if the date cannot be read.
    public let notAfter: Int64?

    package enum Extension {
        package static let development = "1.2.840.113635.100.6.3.1"
        package static let production = "1.2.840.113635.100.6.3.2"
        static let voIP = "1.2.840.113635.100.6.3.4"
        package static let topics = "1.2.840.113635.100.6.3.6"
    }

    public init(_ identity: TLSIdentity) {
        commonName = identity.commonName
        notBefore = identity.notBefore
        notAfter = identity.notAfter
        (topics, environments) = Self.contents(userID: identity.userID, identity.certificateExtension)
    }

    public init(_ peer: TLSPeerCertificate) {
        commonName = peer.commonName
        notBefore = nil
        notAfter = peer.notAfter
        (topics, environments) = Self.contents(userID: peer.userID) { peer.extensions[$0] }
    }

    private static func contents(
        userID: String?, _ value: (_ oid: String) -> [UInt8]?
    ) -> (topics: [Topic], environments: Set<APNSEnvironment>) {
        var environments: Set<APNSEnvironment> = []
        if value(Extension.development) != nil { environments.insert(.sandbox) }
        if value(Extension.production) != nil { environments.insert(.production) }
        let listed = [Extension.topics, Extension.voIP].flatMap { oid in value(oid).flatMap(topics(der:)) ?? [] }
        return (merged(userID: userID, listed), environments)
    }

    /// True if the certificate lists the topics that it may send to. Otherwise, only the subject's user ID names its app.
    public var listsTopics: Bool { topics.count > 1 || topics.contains { !$0.types.isEmpty } }

    public func allows(topic: String) -> Bool { topics.contains { $0.name == topic } }

    /// Reads the value of a topics extension: a SEQUENCE of topics, each a UTF8String followed by a SEQUENCE of its types.
    /// - Returns: nil if it is malformed.
    static func topics(der: [UInt8]) -> [Topic]? {
        do throws(DERReader.Malformed) {
            var outer = DERReader(der)
            guard let list = try outer.next(), list.tag == DERReader.Tag.sequence, try outer.next() == nil
            else { return nil }
            var topics: [Topic] = []
            var elements = DERReader(list.contents)
            while let element = try elements.next() {
                switch element.tag {
                case DERReader.Tag.utf8String:
                    guard let name = String(validating: element.contents, as: UTF8.self) else { return nil }
                    topics.append(Topic(name: name, types: []))
                case DERReader.Tag.sequence:
                    let types = try strings(in: element)
                    if let last = topics.popLast() { topics.append(Topic(name: last.name, types: last.types + types)) }
                default: continue
                }
            }
            return topics
        } catch {
            return nil
        }
    }

    private static func strings(in sequence: DERReader.Element) throws(DERReader.Malformed) -> [String] {
        var strings: [String] = []
        var elements = DERReader(sequence.contents)
        while let element = try elements.next() {
            guard element.tag == DERReader.Tag.utf8String else { continue }
            guard let text = String(validating: element.contents, as: UTF8.self) else { throw DERReader.Malformed() }
            strings.append(text)
        }
        return strings
    }

    /// Returns the topics without duplicates: the user ID first, with its types from the list.
    private static func merged(userID: String?, _ listed: [Topic]) -> [Topic] {
        var merged = (userID ?? "").isEmpty ? [] : [Topic(name: userID ?? "", types: [])]
        var places = Dictionary(uniqueKeysWithValues: merged.map { ($0.name, 0) })
        for topic in listed where !topic.name.isEmpty {
            guard let place = places[topic.name] else {
                places[topic.name] = merged.count
                merged.append(topic)
                continue
            }
            let known = merged[place].types
            merged[place] = Topic(name: topic.name, types: known + topic.types.filter { !known.contains($0) })
        }
        return merged
    }
}

extension TLSIdentity {
    public var apns: APNSCertificate { APNSCertificate(self) }
}
