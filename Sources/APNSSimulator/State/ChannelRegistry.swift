import APNS
import FoundationEssentials

/// The broadcast channels of all apps.
struct ChannelRegistry: Sendable {
    enum Standing: Equatable {
        case present(MessageStoragePolicy)
        case deleted
        case unknown
    }

    private struct Channels {
        var policies: [[UInt8]: MessageStoragePolicy] = [:]
        /// The most recently deleted ids.
        var deleted: [[UInt8]] = []
        /// The ids of the channels in order of creation.
        var order: [[UInt8]] = []
    }

    /// The number of deleted ids that are kept per app.
    private static let maximumDeleted = 1000
    private let maximum: Int
    private var apps: [[UInt8]: Channels] = [:]

    init(maximum: Int) { self.maximum = maximum }

    /// Returns true if the bytes can be a channel's id: base64. Apple states no maximum length, so 255 is assumed.
    static func isID(_ text: UnsafeBufferPointer<UInt8>) -> Bool {
        guard (1...255).contains(text.count), text.count % 4 == 0 else { return false }
        let padding = text.reversed().prefix { $0 == UInt8(ascii: "=") }.count
        return padding <= 2
            && text.dropLast(padding).allSatisfy { byte in
                byte &- 0x30 < 10 || (byte | 0x20) &- 0x61 < 26 || byte == UInt8(ascii: "+")
                    || byte == UInt8(ascii: "/")
            }
    }

    func standing(of id: [UInt8], app: [UInt8]) -> Standing {
        guard let channels = apps[app] else { return .unknown }
        if let policy = channels.policies[id] { return .present(policy) }
        return channels.deleted.contains(id) ? .deleted : .unknown
    }

    func ids(app: [UInt8]) -> [[UInt8]] { apps[app]?.order ?? [] }

    /// - Returns: the new channel's id; `nil` if the app has the maximum number of channels.
    mutating func create(
        _ policy: MessageStoragePolicy, app: [UInt8], _ generator: inout SeededGenerator
    ) -> [UInt8]? {
        guard apps[app]?.order.count ?? 0 < maximum else { return nil }
        let words = [generator.next(), generator.next()]
        let id = Array(words.withUnsafeBytes { Data($0) }.base64EncodedString().utf8)
        apps[app, default: Channels()].policies[id] = policy
        apps[app, default: Channels()].order.append(id)
        return id
    }

    /// - Returns: true if the channel existed.
    mutating func delete(_ id: [UInt8], app: [UInt8]) -> Bool {
        guard apps[app]?.policies.removeValue(forKey: id) != nil else { return false }
        apps[app]?.order.removeAll { $0 == id }
        let deleted = apps[app]?.deleted ?? []
        apps[app]?.deleted = deleted.suffix(Self.maximumDeleted - 1) + [id]
        return true
    }
}
