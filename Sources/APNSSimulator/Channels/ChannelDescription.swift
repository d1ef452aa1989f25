import APNS
import FoundationEssentials

/// The body of a request that creates a channel.
///
/// Source: Apple, "Sending channel management requests to APNs".
enum ChannelDescription {
    private struct Name: CodingKey {
        let stringValue: String
        var intValue: Int? { nil }
        init(stringValue: String) { self.stringValue = stringValue }
        init?(intValue: Int) { nil }
    }

    private struct Body: Decodable {
        var names: Set<String>
        var policy: Int?
        var pushType: String?

        init(from decoder: any Decoder) throws {
            let members = try decoder.container(keyedBy: Name.self)
            names = Set(members.allKeys.map(\.stringValue))
            // A value of the wrong type is treated like an unknown one.
            policy = try? members.decode(Int.self, forKey: Name(stringValue: "message-storage-policy"))
            pushType = try? members.decode(String.self, forKey: Name(stringValue: "push-type"))
        }
    }

    /// Reads the storage policy. Assumed: a missing or unknown policy answers `BadRequestParams`.
    static func policy(_ body: UnsafeBufferPointer<UInt8>) throws(Refusal) -> ChannelRegistry.Policy {
        guard JSONObjectCheck.accepts(body), let parsed = try? JSONDecoder().decode(Body.self, from: Data(body)) else {
            throw Refusal(.badRequestPayload)
        }
        guard parsed.names.isSubset(of: ["message-storage-policy", "push-type"]) else {
            throw Refusal(.badRequestParams)
        }
        guard parsed.names.contains("push-type") else { throw Refusal(.missingPushType) }
        guard parsed.pushType == "LiveActivity" else { throw Refusal(.invalidPushType) }
        guard let policy = parsed.policy.flatMap(ChannelRegistry.Policy.init) else {
            throw Refusal(.badRequestParams)
        }
        return policy
    }
}
