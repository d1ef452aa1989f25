import APNS
import NIOCore
import PushJob
import PushQueue

/// The rules for notifications, checked before sending so that errors can name the mistake.
///
/// There are two classes. A breach that APNs answers with an error, as Apple documents, is a refusal: the job becomes a
/// dead letter that names the rule. A requirement of Apple's on an app or a device is a ``Hint``: the notification is
/// sent, because a false dead letter is worse than a notification that a device ignores. Each rule cites Apple's page.
enum NotificationRules {
    /// A requirement of Apple's that APNs does not check.
    struct Hint: Equatable {
        /// The rule, as named in the log.
        let rule: Rule
        /// The requirement, and how to meet it.
        let detail: String
        /// The reason of the dead letter if the app is strict.
        var reason: Reason {
            Reason(rule == .liveActivityPriority ? .apns(.badPriority) : .own(.badPayload), detail: detail)
        }

        init(_ rule: Rule, _ detail: String) {
            self.rule = rule
            self.detail = detail
        }
    }

    /// The rules that are hints.
    enum Rule: String, CaseIterable {
        case backgroundContentAvailable = "background_content_available"
        case backgroundAlert = "background_alert"
        case liveActivityPriority = "live_activity_priority"
        case liveActivityEvent = "live_activity_event"
        case liveActivityTimestamp = "live_activity_timestamp"
        case liveActivityContentState = "live_activity_content_state"
        case liveActivityStart = "live_activity_start"
        case contentChanged = "content_changed"
        case contentChangedPushType = "content_changed_push_type"
        case mdm
        case mdmAPS = "mdm_aps"
        case containerIdentifier = "container_identifier"
        /// A push type that this version does not know. Even a strict app sends it.
        case unknownPushType = "unknown_push_type"
    }

    /// The properties of a notification that the rules use.
    struct Subject {
        var pushType: PushType
        /// True if the push type was inferred because the job specifies none.
        var isInferred = false
        /// The job's own priority; `nil` if it has none.
        var priority: UInt8?
        var isOnChannel = false
        /// True if the topic is that of a Wallet pass, whose payload is empty.
        var isPass = false
    }

    /// Returns the maximum size of the payload in bytes.
    static func sizeLimit(_ pushType: PushType, isOnChannel: Bool) -> Int {
        isOnChannel ? PushType.maximumBroadcastSize : pushType.maximumPayloadSize
    }

    /// Returns the `apns-priority` to send. APNs assumes 10 if there is none, which is an error for a background
    /// notification. A broadcast must have the header.
    static func priority(_ given: UInt8?, _ pushType: PushType, isOnChannel: Bool) -> UInt8? {
        given ?? (pushType == .background ? 5 : isOnChannel ? 10 : nil)
    }

    /// True if a topic is that of a Wallet pass: `pass.` and an identifier chosen by the owner.
    ///
    /// Source: Apple, "Adding a web service to update passes": "use the pass type identifier as the topic, and an empty
    /// JSON dictionary for the payload".
    static func isPass(_ topic: ByteBuffer) -> Bool { topic.readableBytesView.starts(with: "pass.".utf8) }

    /// Checks a notification and completes its payload.
    ///
    /// The payload is scanned only if the push type has rules about it. `alert` has none, and a background notification
    /// whose type was inferred from its payload needs no scan.
    /// - Parameters:
    ///   - payload: the payload; a Live Activity's missing `timestamp` is filled in.
    ///   - second: the `timestamp` to fill in, in seconds since 1970.
    ///   - report: called with each hint.
    /// - Throws: the first broken rule whose breach APNs answers with an error.
    static func check(
        _ subject: Subject, _ payload: inout ByteBuffer, second: Int64, report: (Hint) throws(Reason) -> Void
    ) throws(Reason) {
        try checkHeaders(subject, report)
        let limit = sizeLimit(subject.pushType, isOnChannel: subject.isOnChannel)
        guard payload.readableBytes <= limit else {
            throw Reason(
                APNSReason.payloadTooLarge,
                detail: "the payload has \(payload.readableBytes) bytes; APNs accepts \(limit) "
                    + (subject.isOnChannel ? "on a channel" : "for push type \(subject.pushType.rawValue)")
                    + "; shorten it, or set the job's `truncate` to have the alert's body shortened")
        }
        guard hasPayloadRules(subject.pushType), !subject.isPass,
            !(subject.isInferred && subject.pushType == .background)
        else { return }
        var facts = try facts(of: payload)
        if subject.pushType == .liveactivity, !facts.members.contains(.timestamp),
            let filled = facts.fillingTimestamp(in: payload, second), filled.readableBytes <= limit
        {
            payload = filled
            facts = try self.facts(of: filled)
        }
        try check(facts, subject, report)
    }

    private static func facts(of payload: ByteBuffer) throws(Reason) -> PayloadFacts {
        do throws(JSONError) {
            return try PayloadFacts(payload)
        } catch {
            throw Reason(.badPayload, detail: "the payload is not valid JSON: \(error)")
        }
    }

    private static func hasPayloadRules(_ pushType: PushType) -> Bool {
        switch pushType {
        case .background, .liveactivity, .widgets, .controls, .mdm, .fileprovider: true
        case .accessory, .alert, .complication, .location, .other, .pushtotalk, .voip: false
        }
    }

    private static func checkHeaders(
        _ subject: Subject, _ report: (Hint) throws(Reason) -> Void
    ) throws(Reason) {
        // Apple, "Sending broadcast push notification requests to APNs": channels are for Live Activities.
        if subject.isOnChannel, subject.pushType != .liveactivity {
            throw Reason(
                APNSReason.invalidPushType,
                detail:
                    "a notification for a `channel` is of push type liveactivity, not \(subject.pushType.rawValue); "
                    + "omit the job's `push_type`, or send to a `token`")
        }
        switch (subject.pushType, subject.priority) {
        // Apple, "Sending notification requests to APNs": "Always use priority 5. Using priority 10 is an error." APNs
        // has been observed to accept it for Wallet passes.
        case (.background, 10) where !subject.isPass:
            throw Reason(
                APNSReason.badPriority,
                detail: "a background notification must have priority 5, because APNs refuses 10; "
                    + "set the job's `priority` to 5 or omit it")
        // Apple, "Starting and updating Live Activities with ActivityKit push notifications": "Set the value for the
        // apns-priority header field to 5 or 10." For channels, "Sending broadcast push notification requests to APNs"
        // lists 1 as well.
        case (.liveactivity, 1) where !subject.isOnChannel:
            try report(
                Hint(
                    .liveActivityPriority,
                    "Apple requires priority 5 or 10 for a Live Activity, and the job's `priority` is 1"))
        default: break
        }
    }

    private static func check(
        _ facts: PayloadFacts, _ subject: Subject, _ report: (Hint) throws(Reason) -> Void
    ) throws(Reason) {
        switch subject.pushType {
        case .background: if let hint = background(facts) { try report(hint) }
        case .liveactivity:
            // "You can't use broadcast push notifications to start a Live Activity."
            if subject.isOnChannel, facts.event == .start {
                throw Reason(
                    .badPayload,
                    detail: "a Live Activity cannot be started on a `channel`; start it on each device, by its "
                        + "push-to-start token, with the channel's id as `input-push-channel`")
            }
            if let hint = liveActivity(facts) { try report(hint) }
        case .widgets, .controls:
            // Apple, "Updating widgets with WidgetKit push notifications" and "Updating controls locally and remotely".
            if !facts.members.contains(.contentChanged) {
                try report(
                    Hint(
                        .contentChanged,
                        "a notification for widgets or controls needs `content-changed` true in its `aps`"))
            }
        case .mdm: if let hint = mdm(facts) { try report(hint) }
        case .fileprovider:
            // Apple, "Using push notifications to signal changes".
            if !facts.members.contains(.containerIdentifier) {
                try report(
                    Hint(
                        .containerIdentifier,
                        "a notification of push type fileprovider needs `container-identifier`, a string, beside `aps`")
                )
            }
        case .accessory, .alert, .complication, .location, .other, .pushtotalk, .voip: break
        }
    }

    // Apple, "Pushing background updates to your App": "an aps dictionary that includes only the content-available key
    // […] must not contain any keys that would trigger user interactions". A payload without `aps` is exempt: a Wallet
    // pass's is empty.
    private static func background(_ facts: PayloadFacts) -> Hint? {
        guard facts.members.contains(.apsName) else { return nil }
        guard facts.members.contains(.contentAvailable) else {
            return Hint(
                .backgroundContentAvailable,
                "a background notification needs `content-available` 1 in its `aps`; without it, no app is woken")
        }
        guard facts.members.isDisjoint(with: [.alert, .badge, .sound]) else {
            return Hint(
                .backgroundAlert,
                "a background notification must not have `alert`, `badge` or `sound` in its `aps`; "
                    + "remove them, or send it as push type alert")
        }
        return nil
    }

    // Apple, "Starting and updating Live Activities with ActivityKit push notifications", "Construct the ActivityKit
    // remote push notification payload" and "Construct the payload that starts a Live Activity".
    private static func liveActivity(_ facts: PayloadFacts) -> Hint? {
        guard let event = facts.event, event != .other else {
            return Hint(.liveActivityEvent, #"a Live Activity's `event` in `aps` must be "start", "update" or "end""#)
        }
        guard facts.members.contains(.timestamp) else {
            return Hint(
                .liveActivityTimestamp,
                "a Live Activity's `timestamp` in `aps` must be the current time in whole seconds since 1970; "
                    + "if omitted, it is filled in")
        }
        // The last state may be kept at the end: Apple only recommends a final one.
        if event != .end, !facts.members.contains(.contentState) {
            return Hint(
                .liveActivityContentState,
                "a Live Activity that starts or is updated needs `content-state`, an object, in its `aps`")
        }
        guard event == .start, !facts.members.isSuperset(of: [.alert, .attributesType, .attributes]) else { return nil }
        return Hint(
            .liveActivityStart, "to start a Live Activity, `aps` needs `alert`, `attributes-type` and `attributes`")
    }

    // Apple, Device Management, "Sending MDM commands to a device": "only include the PushMagic string as the value of
    // the mdm key […] This is the complete message. Don't include an aps key".
    private static func mdm(_ facts: PayloadFacts) -> Hint? {
        if !facts.members.contains(.mdm) {
            return Hint(.mdm, "a notification of push type mdm needs `mdm`, the device's push magic, in its payload")
        }
        return facts.members.contains(.apsName)
            ? Hint(.mdmAPS, "a notification of push type mdm must not have `aps` in its payload; remove it") : nil
    }
}

extension PushType {
    /// Returns the push type of a job that specifies none.
    static func inferred(for kind: Job.Kind) -> PushType {
        switch kind {
        case .alert, .widgetOrControl: .alert
        case .background: .background
        case .liveActivity: .liveactivity
        case .mdm: .mdm
        case .widgets: .widgets
        case .controls: .controls
        }
    }
}
