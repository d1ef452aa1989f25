/// The extensions by which Apple's push certificates say what they are for.
///
/// Source: Apple Worldwide Developer Relations, Certification Practice Statement (…6.3.1 and …6.3.2); Apple,
/// "Establishing a certificate-based connection to APNs". How the list of topics is built is not documented; it is made as
/// Apple's certificates have it: a topic, and behind it a list of what it is for.
enum PushCertificateExtensions {
    private static let development = "1.2.840.113635.100.6.3.1"
    private static let production = "1.2.840.113635.100.6.3.2"
    private static let topics = "1.2.840.113635.100.6.3.6"

    private static let null: [UInt8] = [0x05, 0x00]
    private static let utf8String: UInt8 = 0x0C
    private static let sequence: UInt8 = 0x30

    /// The extensions of a certificate for an app in both environments, each with its value in DER.
    static func make(bundleID: String, otherTopics: [String] = []) -> [(oid: String, der: [UInt8])] {
        let derived = [
            (bundleID, "app"), (bundleID + ".voip", "voip"), (bundleID + ".complication", "complication"),
        ]
        let list = (derived + otherTopics.map { ($0, "app") }).flatMap { topic, type in
            element(utf8String, Array(topic.utf8)) + element(sequence, element(utf8String, Array(type.utf8)))
        }
        return [(development, null), (production, null), (topics, element(sequence, list))]
    }

    /// Tag, length and contents (X.690 §8.1).
    private static func element(_ tag: UInt8, _ contents: [UInt8]) -> [UInt8] {
        guard contents.count > 127 else { return [tag, UInt8(contents.count)] + contents }
        var length: [UInt8] = []
        var rest = contents.count
        while rest > 0 {
            length.insert(UInt8(rest & 0xFF), at: 0)
            rest >>= 8
        }
        return [tag, 0x80 | UInt8(length.count)] + length + contents
    }
}
