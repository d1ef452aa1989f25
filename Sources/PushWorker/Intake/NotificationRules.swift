import APNS
import NIOCore
import PushJob
import PushQueue

/// A likely mistake in a job that is sent nevertheless, because a false dead letter is worse than a notification that a
/// device ignores.
package struct Hint: Equatable, Sendable {
    /// The kinds of mistakes, as the log names them.
    package enum Rule: String, CaseIterable, Sendable {
        case backgroundContentAvailable = "background_content_available"
        case backgroundAlert = "background_alert"
        case alertShowsNothing = "alert_shows_nothing"
        case liveActivityPriority = "live_activity_priority"
        case liveActivityEvent = "live_activity_event"
        case liveActivityTimestamp = "live_activity_timestamp"
        case liveActivityContentState = "live_activity_content_state"
        case liveActivityStart = "live_activity_start"
        case liveActivityInput = "live_activity_input"
        case liveActivitySound = "live_activity_sound"
        case liveActivityTime = "live_activity_time"
        case websiteArguments = "website_arguments"
        case contentChanged = "content_changed"
        case contentChangedPushType = "content_changed_push_type"
        case mdm
        case mdmAPS = "mdm_aps"
        case containerIdentifier = "container_identifier"
        case accessory
        case relevanceScore = "relevance_score"
        /// A member of the payload has a value that Apple does not allow.
        case payloadValue = "payload_value"
        /// Apple defines no such member where it is.
        case payloadMember = "payload_member"
        /// A member of the payload occurs more than once.
        case payloadRepeat = "payload_repeat"
        case payloadWithoutAPS = "payload_without_aps"
        /// A push type that this version does not know.
        case unknownPushType = "unknown_push_type"
        /// The topic is that of another push type.
        case topicSuffix = "topic_suffix"
        /// A member of the job has a name like that of another one.
        case unknownMember = "unknown_member"
        /// A member of the job is ignored, because it is not valid.
        case ignoredMember = "ignored_member"
        /// A name of the job looks like another one that is more probably meant.
        case name
        /// A time of the job is hardly what was meant.
        case time
        case token
    }

    /// The kind of mistake.
    package let rule: Rule
    /// The member or the name that distinguishes it from others of its kind; empty if there is only one.
    package var subject = ""
    /// The mistake, and what to write instead.
    package let detail: String

    init(_ rule: Rule, _ detail: String, subject: String = "") {
        self.rule = rule
        self.detail = detail
        self.subject = subject
    }

    /// A mistake in a payload.
    init(_ mistake: MemberMistake) {
        let rule: Rule =
            switch mistake.kind {
            case .value: .payloadValue
            case .unknown: .payloadMember
            case .repeat: .payloadRepeat
            case .noAPS: .payloadWithoutAPS
            }
        self.init(rule, "\(mistake)", subject: mistake.path)
    }

    /// True if it is about the payload or the priority, which a strict app refuses.
    var isOfPayload: Bool {
        switch rule {
        case .unknownPushType, .topicSuffix, .unknownMember, .ignoredMember, .time, .token: false
        default: true
        }
    }

    /// The reason of the dead letter if the app is strict.
    var reason: Reason {
        Reason(rule == .liveActivityPriority ? .apns(.badPriority) : .own(.badPayload), detail: detail)
    }
}

/// The rules for notifications, checked before sending so that errors can name the mistake.
///
/// There are two classes. A breach that APNs answers with an error, as Apple documents, is a refusal: the job becomes a
/// dead letter that names the rule. A requirement of Apple's on an app or a device is a ``Hint``. Each rule cites
/// Apple's page.
enum NotificationRules {
    /// The properties of a notification that the rules use.
    struct Subject {
        var pushType: PushType
        /// The job's own priority; `nil` if it has none.
        var priority: UInt8?
        var isOnChannel = false
        var topic = Topic.app
        /// The time at which it is sent, in seconds since 1970.
        var second: Int64 = 0

        /// True if its payload is not that of an app, so that the rules for those say nothing.
        var isOfNoApp: Bool { topic != .app && topic != .website && pushType != .mdm }
    }

    /// The kinds of things that topics name.
    enum Topic {
        case app
        /// A Wallet pass or order: `pass.` or `order.` and an identifier chosen by the owner. Its payload is empty.
        ///
        /// Source: Apple, "Adding a web service to update passes": "use the pass type identifier as the topic, and an
        /// empty JSON dictionary for the payload"; "Implementing the Wallet Orders web service" says the same.
        case wallet
        /// A website in Safari: `web.` and its identifier.
        case website
        /// A service of Apple's, such as mail, calendars and device management: `com.apple.…`.
        case service

        init(_ topic: ByteBuffer) {
            self = topic.withUnsafeReadableBytes { name in
                func begins(_ start: StaticString) -> Bool {
                    UnsafeRawBufferPointer(rebasing: name.prefix(start.utf8CodeUnitCount)).isEqual(to: start)
                }
                // Most topics, without the rest.
                switch name.first {
                case UInt8(ascii: "p") where begins("pass."), UInt8(ascii: "o") where begins("order."): return .wallet
                case UInt8(ascii: "w") where begins("web."): return .website
                case UInt8(ascii: "c") where begins("com.apple."): return .service
                default: return .app
                }
            }
        }
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

    /// Checks a notification and completes its payload.
    /// - Parameters:
    ///   - facts: those of the payload.
    ///   - payload: the payload; a Live Activity's missing `timestamp` is filled in.
    ///   - second: the `timestamp` to fill in, in seconds since 1970.
    ///   - report: called with each hint.
    /// - Throws: the first broken rule whose breach APNs answers with an error.
    static func check(
        _ subject: Subject, _ facts: PayloadFacts, _ payload: inout ByteBuffer, second: Int64,
        report: (Hint) throws(Reason) -> Void
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
        var hasTimestamp = facts.named.contains(.timestamp)
        if subject.pushType == .liveactivity, let filled = facts.fillingTimestamp(in: payload, second),
            filled.readableBytes <= limit
        {
            payload = filled
            hasTimestamp = true
        }
        guard !subject.isOfNoApp else { return }
        try check(facts, payload, hasTimestamp: hasTimestamp, subject, report)
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
        case (.background, 10) where subject.topic != .wallet:
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
        _ facts: PayloadFacts, _ payload: ByteBuffer, hasTimestamp: Bool, _ subject: Subject,
        _ report: (Hint) throws(Reason) -> Void
    ) throws(Reason) {
        if facts.hasWideScore, subject.pushType != .liveactivity {
            try report(
                Hint(.relevanceScore, "`aps.relevance-score` must be from 0 to 1, except that of a Live Activity"))
        }
        switch subject.pushType {
        // Apple, "Pushing notifications to Safari" ("Configuring Safari Push Notifications"): "The url-args array must
        // be included". Safari drops a notification without it.
        case .alert where subject.topic == .website && !facts.named.contains(.urlArguments):
            try report(
                Hint(
                    .websiteArguments,
                    "a notification for a website needs `url-args`, an array of strings, in its `aps`: Safari drops it "
                        + "without them"))
        case .alert: if let hint = alert(facts) { try report(hint) }
        case .background: if let hint = background(facts) { try report(hint) }
        case .liveactivity:
            // "You can't use broadcast push notifications to start a Live Activity."
            if subject.isOnChannel, facts.event == .start {
                throw Reason(
                    .badPayload,
                    detail: "a Live Activity cannot be started on a `channel`; start it on each device, by its "
                        + "push-to-start token, with the channel's id as `input-push-channel`")
            }
            let hint = liveActivity(facts, hasTimestamp: hasTimestamp) ?? liveActivityTimes(facts, payload, subject)
            if let hint { try report(hint) }
        case .widgets, .controls:
            // Apple, "Updating widgets with WidgetKit push notifications" and "Updating controls locally and remotely".
            if !facts.named.contains(.contentChanged) {
                try report(
                    Hint(
                        .contentChanged,
                        "a notification for widgets or controls needs `content-changed` true in its `aps`"))
            }
        case .mdm: if let hint = mdm(facts) { try report(hint) }
        case .fileprovider:
            // Apple, "Using push notifications to signal changes".
            if !facts.named.contains(.containerIdentifier) {
                try report(
                    Hint(
                        .containerIdentifier,
                        "a notification of push type fileprovider needs `container-identifier`, a string, beside `aps`")
                )
            }
        case .accessory:
            // Apple, "Accessory notifications".
            let missing = names([.encryptedData, .sessionIdentifier, .keyID, .messageIndex], missingIn: facts)
            if !missing.isEmpty {
                try report(Hint(.accessory, "a notification of push type accessory needs \(missing) in its `aps`"))
            }
        case .complication, .location, .other, .pushtotalk, .voip: break
        }
    }

    /// Returns the names of members that a payload lacks, as a list; empty if it has all.
    private static func names(_ members: PayloadFacts.Members, missingIn facts: PayloadFacts) -> String {
        let missing = PayloadMember.allCases.filter {
            members.contains(.init($0)) && !facts.named.contains(.init($0))
        }.map { "`\($0.name)`" }
        guard missing.count > 1, let last = missing.last else { return missing.first ?? "" }
        return missing.dropLast().joined(separator: ", ") + " and " + last
    }

    // Apple, "Generating a remote notification": the keys that show an alert, play a sound or set a badge; for
    // `mutable-content` "Modifying content in newly delivered notifications": the extension is only called for an alert
    // that is shown. Payloads without `aps` and alerts of the wrong type have hints of their own.
    private static func alert(_ facts: PayloadFacts) -> Hint? {
        let isSilent = facts.named.contains(.sound) && !facts.valid.contains(.sound)
        guard !facts.showsText, facts.hasAPS, facts.named.isDisjoint(with: [.badge, .contentChanged]),
            isSilent || !facts.named.contains(.sound),
            facts.valid.contains(.alert) || !facts.named.contains(.alert)
        else { return nil }
        let detail =
            if facts.named.contains(.mutableContent) {
                "`mutable-content` needs an `alert` with a text: without one, the app's extension is not called"
            } else if facts.named.contains(.alert) {
                "its `alert` has no text: nothing is shown without `title` or `body`"
            } else if isSilent {
                "its `sound` is empty, and it has no `alert` or `badge`: nothing is shown or played; for a background "
                    + "notification omit `sound`"
            } else if facts.named.contains(.contentAvailable) {
                "an alert without `alert`, `badge` or `sound` shows nothing; for a background notification omit "
                    + "`push_type`"
            } else {
                "it has no `alert`, `badge` or `sound`: nothing is shown"
            }
        return Hint(.alertShowsNothing, detail)
    }

    // Apple, "Pushing background updates to your App": "an aps dictionary that includes only the content-available key
    // […] must not contain any keys that would trigger user interactions". A payload without `aps` is exempt: a Wallet
    // pass's is empty.
    private static func background(_ facts: PayloadFacts) -> Hint? {
        guard facts.hasAPS else { return nil }
        guard facts.named.contains(.contentAvailable) else {
            return Hint(
                .backgroundContentAvailable,
                "a background notification needs `content-available` 1 in its `aps`; without it, no app is woken")
        }
        guard facts.named.isDisjoint(with: .visible) else {
            return Hint(
                .backgroundAlert,
                "a background notification must not have `alert`, `badge` or `sound` in its `aps`; "
                    + "remove them, or send it as push type alert")
        }
        return nil
    }

    // Apple, "Starting and updating Live Activities with ActivityKit push notifications", "Construct the ActivityKit
    // remote push notification payload" and "Construct the payload that starts a Live Activity". Wrong values have
    // hints of their own.
    private static func liveActivity(_ facts: PayloadFacts, hasTimestamp: Bool) -> Hint? {
        guard facts.named.contains(.event) else {
            return Hint(.liveActivityEvent, #"a Live Activity's `event` in `aps` must be "start", "update" or "end""#)
        }
        guard hasTimestamp else {
            return Hint(
                .liveActivityTimestamp,
                "a Live Activity's `timestamp` in `aps` must be the current time in whole seconds since 1970; "
                    + "if omitted, it is filled in")
        }
        // A wrong event is reported as a wrong value. The last state may be kept at the end: Apple only recommends a final one.
        if let event = facts.event, event != .end, !facts.named.contains(.contentState) {
            return Hint(
                .liveActivityContentState,
                "a Live Activity that starts or is updated needs `content-state`, an object, in its `aps`")
        }
        guard facts.event == .start else { return nil }
        let missing = names([.alert, .attributesType, .attributes], missingIn: facts)
        if !missing.isEmpty {
            return Hint(.liveActivityStart, "to start a Live Activity, `aps` needs \(missing) too")
        }
        if facts.valid.contains(.alert), !facts.showsText {
            return Hint(.liveActivityStart, "a Live Activity does not start without a text in its `alert`")
        }
        guard facts.named.isSuperset(of: [.inputPushToken, .inputPushChannel]) else { return nil }
        return Hint(
            .liveActivityInput,
            "a Live Activity is updated by its token or by a channel: use either `input-push-token` or "
                + "`input-push-channel`")
    }

    /// The maximum age of a Live Activity's `timestamp` in seconds: it is active for eight hours.
    private static let timestampAge: Int64 = 28_800

    // The same page: "the stale-date […] represents the date at which a Live Activity becomes stale", and "the system
    // ignores" updates that are older than the last by their `timestamp`. On iPhones, an update with a `stale-date` that
    // has passed is never shown.
    private static func liveActivityTimes(_ facts: PayloadFacts, _ payload: ByteBuffer, _ subject: Subject) -> Hint? {
        if facts.named.contains(.sound) {
            return Hint(
                .liveActivitySound,
                "a Live Activity's `sound` has its place in the `alert`; in `aps` it is not played")
        }
        let tolerance = Job.clockTolerance / 1000
        if let stale = facts.time(.staleDate, in: payload), facts.event != .end, stale < subject.second {
            return Hint(.liveActivityTime, "its `stale-date` has passed: no device shows the update")
        }
        guard let time = facts.time(.timestamp, in: payload) else { return nil }
        if time < subject.second - timestampAge {
            return Hint(
                .liveActivityTime,
                "its `timestamp` is over eight hours old; write the current time, or a device ignores what is older than "
                    + "the last update")
        }
        return time > subject.second + tolerance
            ? Hint(
                .liveActivityTime,
                "its `timestamp` is in the future: a device ignores later updates with an earlier one") : nil
    }

    // Apple, Device Management, "Sending MDM commands to a device": "only include the PushMagic string as the value of
    // the mdm key […] This is the complete message. Don't include an aps key".
    private static func mdm(_ facts: PayloadFacts) -> Hint? {
        if !facts.named.contains(.mdm) {
            return Hint(.mdm, "a notification of push type mdm needs `mdm`, the device's push magic, in its payload")
        }
        return facts.hasAPS
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
