import NIOCore

/// The value of the `apns-push-type` header.
///
/// What Apple documents of each push type is written down once, in ``rows``. Requests, topics, rules and hints, the type of a
/// job that names none, certificates, the binary gateway, metrics, the JSON Schema, the documentation and the simulator read
/// it. A new push type is a row, and a line of PushTypeTableTests.
package struct PushType: Hashable, Sendable {
    /// The index of its row.
    package let place: Int

    /// What Apple documents of a push type.
    package struct Row: Sendable {
        /// The value of the header.
        package let name: StaticString
        /// Its name for people.
        package let title: StaticString
        /// Why a device shows no banner; `nil` if it shows one.
        package let silence: StaticString?
        /// The suffix that APNs expects after the app's bundle identifier in `apns-topic`; empty for the bare identifier.
        package var topicSuffix: StaticString = ""
        /// The maximum size of a payload for one device over HTTP/2, in bytes.
        package var maximumPayloadSize = 4096
        /// The members that a payload needs, always; for a Live Activity also those with the event `start`, and with any event
        /// but `end`.
        package var required: PayloadFacts.Members = []
        package var requiredToStart: PayloadFacts.Members = []
        package var requiredUnlessEnded: PayloadFacts.Members = []
        /// What happens without them.
        package var without: StaticString = ""
        /// The members of `aps` that a payload must not have, and what to do instead.
        package var excluded: PayloadFacts.Members = []
        package var instead: StaticString = ""
        /// True if a payload must have no `aps`.
        package var excludesAPS = false
        /// True if a payload without `aps` is a mistake, whatever else it needs.
        package var needsAPS = false
        /// True if only the app reads `aps`, which may have members of its own.
        package var hasOwnMembers = false
        /// The priority of a job that names none; `nil` for APNs' own default, 10.
        package var priority: UInt8?
        /// The priority that APNs answers with an error.
        package var refusedPriority: UInt8?
        /// The priority that Apple does not allow, for a device.
        package var unwantedPriority: UInt8?
        /// True if it makes a device ring, at once or not at all.
        package var rings = false
        /// True if it can't be sent with a certificate.
        package var needsKey = false
        /// True if the binary gateway's protocol had it.
        package var isOfGateway = false
        /// The page of Apple's documentation about its payload.
        package let source: StaticString
    }

    /// The table. The last row is for types that this version does not know.
    ///
    /// Source: Apple, "Sending notification requests to APNs", table of `apns-push-type` values and "Know when to use push
    /// types". That page misspells two of the suffixes (`push-type.liveactivity`, `h.complication`); the correct ones are
    /// from "Starting and updating Live Activities with ActivityKit push notifications" and from the certificates' list of
    /// topics. For `mdm` the topic is the one in the MDM certificate's subject. `accessory` is from "Responding to forwarded
    /// notifications" (iOS 26.5).
    package static let rows: [Row] = [
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
            instead: "it has its place in the `alert`; in `aps` it is not played", unwantedPriority: 1,
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

    package static let alert = PushType(row: "alert")
    package static let background = PushType(row: "background")
    package static let complication = PushType(row: "complication")
    package static let controls = PushType(row: "controls")
    package static let fileprovider = PushType(row: "fileprovider")
    package static let liveactivity = PushType(row: "liveactivity")
    package static let location = PushType(row: "location")
    package static let mdm = PushType(row: "mdm")
    package static let pushtotalk = PushType(row: "pushtotalk")
    package static let voip = PushType(row: "voip")
    package static let widgets = PushType(row: "widgets")
    package static let accessory = PushType(row: "accessory")
    /// A type that this version does not know; ``UnknownPushType`` has its name.
    package static let other = PushType(row: "other")

    /// The types that this version knows.
    package static let allCases = (0..<rows.count - 1).map { PushType(place: $0) }

    private static let lengthsOfRinging = rows.filter(\.rings).reduce(0 as UInt64) {
        $0 | 1 << $1.name.utf8CodeUnitCount
    }

    /// True if a name of this length, in bytes, can be that of a type that makes a device ring. The names of most jobs need not
    /// be read for that.
    package static func canRing(length: Int) -> Bool { lengthsOfRinging >> UInt64(min(63, length)) & 1 == 1 }

    private init(place: Int) { self.place = place }

    // The standard library's is not inlined in other modules.
    @inlinable
    package static func == (one: Self, other: Self) -> Bool { one.place == other.place }

    /// - Parameter name: one of the table.
    private init(row name: StaticString) {
        place = Self.rows.firstIndex { "\($0.name)" == "\(name)" } ?? Self.rows.count - 1
    }

    /// Finds the known type with a name; `nil` for any other bytes. Compares in place: a closure would get a copy of each row.
    package init?(bytes: UnsafeRawBufferPointer) {
        for place in 0..<Self.rows.count - 1 where bytes.isEqual(to: Self.rows[place].name) {
            self.place = place
            return
        }
        return nil
    }

    /// Finds the known type with a name; `nil` for any other.
    package init?(_ name: String) {
        var name = name
        guard let type = name.withUTF8({ PushType(bytes: UnsafeRawBufferPointer($0)) }) else { return nil }
        self = type
    }

    // The optimizer then reads single members, in place of a copy of the row.
    @inlinable
    package var row: Row { Self.rows[place] }

    package var name: String { "\(row.name)" }

    // MARK: Topics

    /// Returns the topic of this type for a bundle identifier, or for a topic that already has the suffix. Allocates
    /// nothing if nothing is added.
    package func topic(_ base: ByteBuffer) -> ByteBuffer {
        let suffix = UnsafeRawBufferPointer(start: row.topicSuffix.utf8Start, count: row.topicSuffix.utf8CodeUnitCount)
        guard !suffix.isEmpty, !base.readableBytesView.suffix(suffix.count).elementsEqual(suffix) else { return base }
        var topic = ByteBuffer()
        topic.reserveCapacity(base.readableBytes + suffix.count)
        topic.writeImmutableBuffer(base)
        topic.writeBytes(suffix)
        return topic
    }

    package var topicSuffix: String { "\(row.topicSuffix)" }

    /// True if a topic ends as those of this type do.
    package func ends(_ topic: String) -> Bool { topic.hasSuffix(topicSuffix) }

    /// Returns the app's bundle identifier, with which a topic begins, and the push type that its ending names, if any.
    package static func parts(ofTopic topic: String) -> (bundle: String, type: PushType?) {
        guard let type = allCases.first(where: { $0.hasTopicSuffix && $0.ends(topic) }) else { return (topic, nil) }
        return (String(topic.dropLast(type.row.topicSuffix.utf8CodeUnitCount)), type)
    }

    @inlinable
    package var hasTopicSuffix: Bool { row.topicSuffix.utf8CodeUnitCount > 0 }

    // MARK: Payloads

    /// The maximum payload size in bytes that APNs accepts for a broadcast on a channel (Apple: "Sending broadcast push
    /// notification requests to APNs").
    package static let maximumBroadcastSize = 5120

    /// True if a mistake in a payload concerns this type.
    package func tellsOf(_ mistake: MemberMistake) -> Bool {
        switch mistake.kind {
        case .noAPS: row.needsAPS
        case .unknown: !row.hasOwnMembers
        case .value, .repeat: true
        }
    }
}

extension PayloadFacts {
    /// Returns the push type of a payload, as the members tell; `nil` for `content-changed`, which is for both widgets and
    /// controls, unless the topic distinguishes them.
    /// - Parameter topic: the push type that the topic's ending names.
    package func pushType(topic: @autoclosure () -> PushType?) -> PushType? {
        if isLiveActivity { return .liveactivity }
        guard named.isDisjoint(with: .visible) else { return .alert }
        // Apple, "Pushing background updates to your App".
        if valid.contains(.contentAvailable) { return .background }
        if valid.contains(.contentChanged) {
            let topic = topic()
            return topic == .widgets || topic == .controls ? topic : nil
        }
        return valid.contains(.mdm) ? .mdm : .alert
    }

    /// True if `aps` has `event` (`start`, `update` or `end`) beside `content-state` or `timestamp`, or any `event` beside both:
    /// an app may have data of its own with these names.
    private var isLiveActivity: Bool {
        guard named.contains(.event) else { return false }
        return event != nil
            ? !valid.isDisjoint(with: [.contentState, .timestamp])
            : valid.isSuperset(of: [.contentState, .timestamp])
    }
}

extension Job {
    /// The push type of a job that names none; `nil` if it is for either widgets or controls.
    package var inferredPushType: PushType? {
        // Broadcasts are for Live Activities alone.
        guard channel == nil else { return .liveactivity }
        if traits.contains(.shortForms) {
            if traits.contains(.mdm) {
                if facts.named.contains(.mdm) { return .mdm }
            } else if !facts.named.isDisjoint(with: [.event, .contentState]) {
                return .liveactivity
            }
        }
        let type = facts.pushType(topic: topic.flatMap { PushType.parts(ofTopic: String(buffer: text($0))).type })
        return type == .mdm && traits.contains(.shortForms) ? .alert : type
    }
}

/// The name of a push type that this version does not know: 1 to 32 lower-case letters.
///
/// A class, so that other notifications carry only a null reference.
package final class UnknownPushType: Sendable {
    /// The value of the header. Never changed, so that its bytes keep their address.
    package let name: ByteBuffer

    /// Reads a name; `nil` if no push type of APNs could have it.
    package init?(_ name: ByteBuffer) {
        let bytes = name.readableBytesView
        guard (1...32).contains(bytes.count), bytes.allSatisfy({ $0 &- 0x61 < 26 }) else { return nil }
        self.name = name
    }
}
