import NIOCore

/// The value of the `apns-push-type` header.
///
/// Apple's rules for each push type are only in ``rows``. All code that depends on a push type reads them there. A new push type needs a
/// row, and a line of PushTypeTableTests.
public struct PushType: Hashable, Sendable {
    /// The index of its row.
    public let place: Int

    /// Apple's documentation of a push type.
    public struct Row: Sendable {
        /// The value of the header.
        public let name: StaticString
        /// Its name for readers.
        public let title: StaticString
        /// The reason why a device shows no banner; `nil` if it shows one.
        public let silence: StaticString?
        /// The suffix that APNs expects after the app's bundle identifier in `apns-topic`; empty for the bare identifier.
        public var topicSuffix: StaticString = ""
        /// The maximum size of a payload for one device over HTTP/2, in bytes.
        public var maximumPayloadSize = 4096
        /// The members that a payload needs: `required` always, `requiredToStart` with the event `start`, and `requiredUnlessEnded` with
        /// each event except `end`.
        public var required: PayloadFacts.Members = []
        public var requiredToStart: PayloadFacts.Members = []
        public var requiredUnlessEnded: PayloadFacts.Members = []
        /// The effect of a payload that lacks required members.
        public var without: StaticString = ""
        /// The members of `aps` that a payload must not have, and advice about a payload that has them.
        public var excluded: PayloadFacts.Members = []
        public var instead: StaticString = ""
        /// True if a payload must have no `aps`.
        public var excludesAPS = false
        /// True if a payload without `aps` is a mistake, even if ``required`` is empty.
        public var needsAPS = false
        /// True if only the app reads `aps`. Then `aps` may contain members that Apple does not document.
        public var hasOwnMembers = false
        /// The priority of a job without `priority`; `nil` for APNs' own default, 10.
        public var priority: UInt8?
        /// The priority that APNs answers with an error.
        public var refusedPriority: UInt8?
        /// The priority that Apple does not allow for a notification to a device, but allows for a broadcast.
        public var unwantedPriority: UInt8?
        /// True if a device rings for this type. A notification that is late is then useless.
        public var rings = false
        /// True if it can't be sent with a certificate.
        public var needsKey = false
        /// True if the binary gateway's protocol includes it.
        public var isOfGateway = false
        /// The page of Apple's documentation about its payload.
        public let source: StaticString
    }

    /// The table. The last row is for types that this version does not know.
    ///
    /// Source: Apple, "Sending notification requests to APNs", table of `apns-push-type` values and "Know when to use push types". That
    /// page misspells two of the suffixes (`push-type.liveactivity`, `h.complication`); the correct ones are from "Starting and updating
    /// Live Activities with ActivityKit push notifications" and from the certificates' list of topics. For `mdm` the topic is the one in
    /// the MDM certificate's subject. `accessory` is from "Responding to forwarded notifications" (iOS 26.5).
    public static let rows: [Row] = [
        Row(
            name: "alert", title: "alert", silence: nil, needsAPS: true, isOfGateway: true,
            source: "Generating a remote notification"),
        // "an aps dictionary that includes only the content-available key […] must not contain any keys that would trigger user
        // interactions"; "Always use priority 5. Using priority 10 is an error."
        Row(
            name: "background", title: "background",
            silence: "the app runs in the background, when the system permits it", required: .contentAvailable,
            without: "no app is woken", excluded: .visible, instead: "remove them, or send it as push type alert",
            priority: 5,
            refusedPriority: 10, isOfGateway: true, source: "Pushing background updates to your App"),
        Row(
            name: "complication", title: "watch complication", silence: "updates a complication on the watch",
            topicSuffix: ".complication", hasOwnMembers: true, isOfGateway: true,
            source: "Sending notification requests to APNs"),
        Row(
            name: "controls", title: "controls", silence: "the system reloads the app's controls",
            topicSuffix: ".push-type.controls", required: .contentChanged,
            source: "Updating controls locally and remotely"),
        // "you use provider authentication tokens (not provider certificates)"
        Row(
            name: "fileprovider", title: "file provider", silence: "signals a change to the file provider",
            topicSuffix: ".pushkit.fileprovider", required: .containerIdentifier, hasOwnMembers: true, needsKey: true,
            isOfGateway: true, source: "Using push notifications to signal changes"),
        // "Set the value for the apns-priority header field to 5 or 10." A missing `timestamp` is filled in.
        Row(
            name: "liveactivity", title: "Live Activity", silence: nil, topicSuffix: ".push-type.liveactivity",
            required: [.event, .timestamp], requiredToStart: [.alert, .attributesType, .attributes],
            requiredUnlessEnded: .contentState, excluded: .sound,
            instead: "move it into `alert`, because a sound in `aps` is not played", unwantedPriority: 1,
            source: "Starting and updating Live Activities with ActivityKit push notifications"),
        // "the location push type supports only token-based authentication"
        Row(
            name: "location", title: "location query", silence: "asks the app's extension for the location",
            topicSuffix: ".location-query", hasOwnMembers: true, needsKey: true,
            source: "Sending notification requests to APNs"),
        // "only include the PushMagic string as the value of the mdm key […] Don't include an aps key"
        Row(
            name: "mdm", title: "MDM", silence: "the device contacts its MDM server", required: .mdm, excludesAPS: true,
            hasOwnMembers: true, isOfGateway: true, source: "Sending MDM commands to a device"),
        Row(
            name: "pushtotalk", title: "push to talk", silence: "the Push to Talk app plays or shows a participant",
            topicSuffix: ".voip-ptt", hasOwnMembers: true, rings: true, source: "Creating a Push to Talk app"),
        Row(
            name: "voip", title: "VoIP", silence: "the app reports an incoming call", topicSuffix: ".voip",
            maximumPayloadSize: 5120, hasOwnMembers: true, rings: true, isOfGateway: true,
            source: "Responding to VoIP notifications from PushKit"),
        Row(
            name: "widgets", title: "widgets", silence: "the system reloads the app's widgets",
            topicSuffix: ".push-type.widgets", required: .contentChanged,
            source: "Updating widgets with WidgetKit push notifications"),
        Row(
            name: "accessory", title: "accessory", silence: "forwarded to an accessory's app",
            topicSuffix: ".push-type.accessory", required: [.encryptedData, .sessionIdentifier, .keyID, .messageIndex],
            hasOwnMembers: true, source: "Accessory notifications"),
        Row(name: "other", title: "", silence: nil, hasOwnMembers: true, source: ""),
    ]

    // The places in ``rows`` as constants, so that comparisons need no lookup. PushTypeTableTests compares the names.
    public static var alert: PushType { PushType(place: 0) }
    public static var background: PushType { PushType(place: 1) }
    public static var complication: PushType { PushType(place: 2) }
    public static var controls: PushType { PushType(place: 3) }
    public static var fileprovider: PushType { PushType(place: 4) }
    public static var liveactivity: PushType { PushType(place: 5) }
    public static var location: PushType { PushType(place: 6) }
    public static var mdm: PushType { PushType(place: 7) }
    public static var pushtotalk: PushType { PushType(place: 8) }
    public static var voip: PushType { PushType(place: 9) }
    public static var widgets: PushType { PushType(place: 10) }
    public static var accessory: PushType { PushType(place: 11) }
    /// A type that this version does not know; ``UnknownPushType`` has its name.
    public static var other: PushType { PushType(place: 12) }

    public static let allCases = (0..<rows.count - 1).map { PushType(place: $0) }

    /// A set of lengths in bytes, one bit for each: those of the names of push types that ring. A name of another length need not be read.
    public static let lengthsOfRinging = rows.filter(\.rings).reduce(0 as UInt64) {
        $0 | 1 << $1.name.utf8CodeUnitCount
    }

    private init(place: Int) { self.place = place }

    // The synthesized function is not inlined in other modules.
    public static func == (one: Self, other: Self) -> Bool { one.place == other.place }

    /// Finds the known type with a name; `nil` for any other bytes. Compares in place: a closure would get a copy of each row.
    public init?(bytes: UnsafeRawBufferPointer) {
        for place in 0..<Self.rows.count - 1 where bytes.isEqual(to: Self.rows[place].name) {
            self.place = place
            return
        }
        return nil
    }

    public init?(_ name: String) {
        var name = name
        guard let type = name.withUTF8({ PushType(bytes: UnsafeRawBufferPointer($0)) }) else { return nil }
        self = type
    }

    // This is computed, so that the optimizer reads single members instead of a copy of the row.
    public var row: Row { Self.rows[place] }

    public var name: String { "\(row.name)" }

    // MARK: Topics

    /// Returns the topic of this type for a bundle identifier, or for a topic that already has the suffix. Allocates
    /// nothing if nothing is added.
    public func topic(_ base: ByteBuffer) -> ByteBuffer {
        let suffix = UnsafeRawBufferPointer(start: row.topicSuffix.utf8Start, count: row.topicSuffix.utf8CodeUnitCount)
        guard !suffix.isEmpty, !base.readableBytesView.suffix(suffix.count).elementsEqual(suffix) else { return base }
        var topic = ByteBuffer()
        topic.reserveCapacity(base.readableBytes + suffix.count)
        topic.writeImmutableBuffer(base)
        topic.writeBytes(suffix)
        return topic
    }

    public var topicSuffix: String { "\(row.topicSuffix)" }

    /// True if a topic has the suffix of this type.
    public func ends(_ topic: String) -> Bool { topic.hasSuffix(topicSuffix) }

    /// Returns the bundle identifier at the beginning of a topic, and the push type of its suffix, if it has one.
    public static func parts(ofTopic topic: String) -> (bundle: String, type: PushType?) {
        guard let type = allCases.first(where: { $0.hasTopicSuffix && $0.ends(topic) }) else { return (topic, nil) }
        return (String(topic.dropLast(type.row.topicSuffix.utf8CodeUnitCount)), type)
    }

    public var hasTopicSuffix: Bool { row.topicSuffix.utf8CodeUnitCount > 0 }

    // MARK: Payloads

    /// The maximum payload size in bytes that APNs accepts for a broadcast on a channel (Apple: "Sending broadcast push
    /// notification requests to APNs").
    public static let maximumBroadcastSize = 5120

    /// The push type that the members of a payload show. `content-changed` is for widgets and for controls, so the result is `nil` unless
    /// the topic decides.
    /// - Parameter topic: the push type of the topic's suffix.
    public init?(of facts: PayloadFacts, topic: @autoclosure () -> PushType?) {
        if facts.isLiveActivity {
            self = .liveactivity
        } else if !facts.named.isDisjoint(with: .visible) {
            self = .alert
        } else if facts.valid.contains(.contentAvailable) {
            // Apple, "Pushing background updates to your App".
            self = .background
        } else if facts.valid.contains(.contentChanged) {
            let topic = topic()
            guard let topic, topic == .widgets || topic == .controls else { return nil }
            self = topic
        } else {
            self = facts.valid.contains(.mdm) ? .mdm : .alert
        }
    }

    /// True if a mistake in a payload concerns this type.
    public func isConcerned(by mistake: MemberMistake) -> Bool {
        switch mistake.kind {
        case .noAPS: row.needsAPS
        case .unknown: !row.hasOwnMembers
        case .value, .repeat: true
        }
    }
}

/// The name of a push type that this version does not know: 1 to 32 lower-case letters.
///
/// This is a class, so that notifications of known types carry only a null reference.
public final class UnknownPushType: Sendable {
    /// The value of the header. Never changed, so that its bytes keep their address.
    public let name: ByteBuffer

    /// Reads a name; `nil` if no push type of APNs could have it.
    public init?(_ name: ByteBuffer) {
        let bytes = name.readableBytesView
        guard (1...32).contains(bytes.count), bytes.allSatisfy({ $0 &- 0x61 < 26 }) else { return nil }
        self.name = name
    }
}
