import APNS

/// What the simulator keeps of one request: every header already turned into what the checks ask about it.
struct PushRequest {
    enum Path {
        case other
        case withoutToken
        /// The token is nil when it is none.
        case device
    }

    enum Priority: Equatable {
        case absent, bad
        case value(Int)
    }

    /// A header of which one value matters, or that there was none, or that it was bad.
    enum Field<Value> {
        case absent, bad
        case value(Value)
    }

    /// The headers that may come once only.
    struct Headers: OptionSet {
        let rawValue: UInt16
        static let authorization = Headers(rawValue: 1)
        static let id = Headers(rawValue: 2)
        static let topic = Headers(rawValue: 4)
        static let expiration = Headers(rawValue: 8)
        static let priority = Headers(rawValue: 16)
        static let pushType = Headers(rawValue: 32)
        static let collapseID = Headers(rawValue: 64)
    }

    var isPost = false
    var path = Path.other
    var token: SimulatedToken?
    var seen: Headers = []
    var hasDuplicates = false
    var authorization: ProviderTokens.Standing?
    var id = Field<NotificationID>.absent
    var hasBadExpiration = false
    var hasBadCollapseID = false
    var priority = Priority.absent
    var pushType = Field<PushType>.absent
    var topic: TopicFacts?
    var bodyLength = 0

    /// Notes that a header came.
    /// - Returns: false when it came before.
    private mutating func note(_ header: Headers) -> Bool {
        guard seen.insert(header).inserted else {
            hasDuplicates = true
            return false
        }
        return true
    }

    /// Takes one header.
    /// - Parameters:
    ///   - context: what knows the connection's tokens and topics.
    ///   - idText: where the `apns-id` goes, to be sent back as it was written.
    mutating func take(
        name: UnsafeBufferPointer<UInt8>, value: UnsafeBufferPointer<UInt8>, from context: SimulatedConnection,
        idText: UnsafeMutablePointer<UInt8>
    ) {
        // The length tells nearly all of them apart, so that a header costs one comparison.
        switch name.count {
        case 5 where name.equals(":path"): take(path: value)
        case 7:
            if name.equals("apns-id") {
                guard note(.id) else { return }
                guard let id = NotificationID(text: value) else {
                    self.id = .bad
                    return
                }
                self.id = .value(id)
                if let text = value.baseAddress { idText.update(from: text, count: NotificationID.textLength) }
            } else if name.equals(":method") {
                isPost = value.equals("POST")
            }
        case 10 where name.equals("apns-topic"):
            if note(.topic) { topic = context.topic(value) }
        case 13:
            if name.equals("authorization") {
                if note(.authorization) { authorization = context.standing(authorization: value) }
            } else if name.equals("apns-priority") {
                if note(.priority) { priority = Self.priority(value) }
            }
        case 14 where name.equals("apns-push-type"):
            guard note(.pushType) else { return }
            if let type = PushTypeTable.type(value) { pushType = .value(type) } else { pushType = .bad }
        case 15 where name.equals("apns-expiration"):
            if note(.expiration) { hasBadExpiration = !Self.isEpoch(value) }
        case 16 where name.equals("apns-collapse-id"):
            if note(.collapseID) { hasBadCollapseID = value.count > RequestCheck.maximumCollapseIDLength }
        default: break
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
            path = .other
        }
    }

    private static func priority(_ value: UnsafeBufferPointer<UInt8>) -> Priority {
        if value.equals("10") { return .value(10) }
        if value.equals("5") { return .value(5) }
        if value.equals("1") { return .value(1) }
        return .bad
    }

    // Eighteen digits are what every 64-bit number of seconds can hold.
    private static func isEpoch(_ value: UnsafeBufferPointer<UInt8>) -> Bool {
        (1...18).contains(value.count) && value.allSatisfy { $0 &- 0x30 < 10 }
    }
}

extension UnsafeBufferPointer<UInt8> {
    @inline(__always)
    func equals(_ text: StaticString) -> Bool {
        guard count == text.utf8CodeUnitCount else { return false }
        for index in 0..<count where self[index] != text.utf8Start[index] { return false }
        return true
    }
}

/// Push types by the bytes of their header.
enum PushTypeTable {
    private static let names: [(name: [UInt8], type: PushType)] = PushType.allCases.map {
        (Array($0.rawValue.utf8), $0)
    }

    static func type(_ value: UnsafeBufferPointer<UInt8>) -> PushType? {
        if value.equals("alert") { return .alert }
        for entry in names where entry.name.count == value.count && entry.name.elementsEqual(value) {
            return entry.type
        }
        return nil
    }
}
