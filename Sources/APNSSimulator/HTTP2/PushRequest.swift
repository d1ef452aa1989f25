import APNS
import PushJob

/// The parts of a request that the checks need.
struct PushRequest {
    enum Method {
        case post, get, delete, other
    }

    enum Path {
        case other
        case withoutToken
        /// A device. ``token`` is nil if the token in the path is malformed.
        case device
        /// This and the next two paths name an app; see ``bundleID``.
        case broadcast
        case channels
        case allChannels
    }

    /// A header that can occur only once: absent, malformed, or a value.
    enum Field<Value> {
        case absent, bad
        case value(Value)

        var value: Value? { if case .value(let value) = self { value } else { nil } }

        /// Reads an occurrence of the header. Only the first counts.
        mutating func read(_ hasDuplicates: inout Bool, _ value: () -> Value?) {
            guard case .absent = self else { return hasDuplicates = true }
            self = value().map { .value($0) } ?? .bad
        }
    }

    /// Source: Apple, "Sending notification requests to APNs", `apns-collapse-id`; in bytes.
    private static let maximumCollapseIDLength = 64

    var method = Method.other
    var path = Path.other
    /// The app in the path; empty for other paths.
    var bundleID: [UInt8] = []
    var channelID = Field<[UInt8]>.absent
    var token: SimulatedToken?
    var hasDuplicates = false
    /// ``Field/bad`` if the client has a certificate: the header is then ignored.
    var authorization = Field<Result<ProviderGrant, Refusal>>.absent
    var id = Field<APNSID>.absent
    var expiration = Field<Int64>.absent
    /// The length of the value, in bytes.
    var collapseID = Field<Int>.absent
    var priority = Field<Int>.absent
    var pushType = Field<PushType>.absent
    var topic = Field<TopicFacts>.absent
    var bodyLength = 0

    /// True if the request is about a channel, not about a device. Its id is then the `apns-request-id`.
    var isAboutChannels: Bool { isManagement || path == .broadcast }

    var isManagement: Bool { path == .channels || path == .allChannels }

    /// Processes one header.
    /// - Parameter idText: receives the `apns-id` or `apns-request-id`. The answer repeats it as it was written.
    mutating func take(
        name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>, of credentials: ClientCredentials,
        idText: UnsafeMutablePointer<UInt8>
    ) {
        // Nearly all header names differ in length, so most cost only one comparison.
        switch name.count {
        case 5 where name.equals(":path"): take(path: value)
        case 7:
            if name.equals("apns-id") {
                // Pseudo-header fields come first (RFC 9113 §8.3), so the path is known here.
                if !isAboutChannels { take(id: value, idText) }
            } else if name.equals(":method") {
                method =
                    value.equals("POST")
                    ? .post : value.equals("GET") ? .get : value.equals("DELETE") ? .delete : .other
            }
        case 10 where name.equals("apns-topic"): topic.read(&hasDuplicates) { credentials.topic(value) }
        case 13:
            if name.equals("authorization") {
                authorization.read(&hasDuplicates) { credentials.authorization(value) }
            } else if name.equals("apns-priority") {
                priority.read(&hasDuplicates) { Self.priority(value) }
            }
        case 14 where name.equals("apns-push-type"):
            pushType.read(&hasDuplicates) {
                // Apple's own sample of a broadcast has this spelling.
                value.equals("Liveactivity") ? .liveactivity : PushType(bytes: UnsafeRawBufferPointer(value))
            }
        case 15 where name.equals("apns-expiration"): expiration.read(&hasDuplicates) { value.decimal }
        case 15 where name.equals("apns-channel-id"):
            channelID.read(&hasDuplicates) { ChannelRegistry.isID(value) ? Array(value) : nil }
        case 15 where name.equals("apns-request-id"):
            if isAboutChannels { take(id: value, idText) }
        case 16 where name.equals("apns-collapse-id"):
            collapseID.read(&hasDuplicates) { value.count <= Self.maximumCollapseIDLength ? value.count : nil }
        default: break
        }
    }

    private mutating func take(id value: UnsafeBufferPointer<UInt8>, _ idText: UnsafeMutablePointer<UInt8>) {
        id.read(&hasDuplicates) {
            guard let id = APNSID(value) else { return nil }
            if let text = value.baseAddress { idText.update(from: text, count: APNSID.textLength) }
            return id
        }
    }

    private mutating func take(path value: UnsafeBufferPointer<UInt8>) {
        let prefix: StaticString = "/3/device/"
        let length = prefix.utf8CodeUnitCount
        if value.count > length, UnsafeBufferPointer(rebasing: value[..<length]).equals(prefix) {
            path = .device
            token = SimulatedToken(digits: UnsafeBufferPointer(rebasing: value[length...]))
        } else if value.equals("/3/device/") || value.equals("/3/device") {
            path = .withoutToken
        } else {
            take(appPath: value)
        }
    }

    // Source: Apple, "Sending broadcast push notification requests to APNs" and "Sending channel management requests to
    // APNs".
    private mutating func take(appPath value: UnsafeBufferPointer<UInt8>) {
        let parts = value.split(separator: UInt8(ascii: "/"), omittingEmptySubsequences: false).map(Array.init)
        let words = parts.map { String(decoding: $0, as: UTF8.self) }
        switch words.count {
        case 5 where words[..<4] == ["", "4", "broadcasts", "apps"]:
            (path, bundleID) = (.broadcast, parts[4])
        case 5 where words[..<3] == ["", "1", "apps"] && words[4] == "channels":
            (path, bundleID) = (.channels, parts[3])
        case 5 where words[..<3] == ["", "1", "apps"] && words[4] == "all-channels":
            (path, bundleID) = (.allChannels, parts[3])
        default: path = .other
        }
        if bundleID.isEmpty { path = .other }
    }

    private static func priority(_ value: UnsafeBufferPointer<UInt8>) -> Int? {
        value.equals("10") ? 10 : value.equals("5") ? 5 : value.equals("1") ? 1 : nil
    }
}
