import APNS
import NIOCore
import PrintableText
import PushJob
import PushQueue

/// A likely mistake in a job. The job is sent nevertheless, because a false dead letter is worse than a notification that a device ignores.
package struct Hint: Equatable, Sendable {
    package enum Rule: String, CaseIterable, Sendable {
        /// A member that the push type or the topic needs is missing.
        case requiredMember = "required_member"
        /// A member must not be in a payload of this push type.
        case excludedMember = "excluded_member"
        case priority
        case alertShowsNothing = "alert_shows_nothing"
        case liveActivityInput = "live_activity_input"
        /// A time in the payload, compared with the clock.
        case payloadTime = "payload_time"
        case contentChangedPushType = "content_changed_push_type"
        case relevanceScore = "relevance_score"
        /// A member of the payload has a value that Apple does not allow.
        case payloadValue = "payload_value"
        /// The payload has a member that Apple does not define in its place.
        case payloadMember = "payload_member"
        /// A member of the payload occurs more than once.
        case payloadRepeat = "payload_repeat"
        case payloadWithoutAPS = "payload_without_aps"
        /// A push type that this version does not know.
        case unknownPushType = "unknown_push_type"
        /// The topic has the suffix of another push type.
        case topicSuffix = "topic_suffix"
        /// An unknown member of the job has a name like a known one.
        case unknownMember = "unknown_member"
        /// A member of the job is ignored, because it is not valid.
        case ignoredMember = "ignored_member"
        /// A name of the job looks like another name that was probably meant.
        case name
        /// A time of the job is probably wrong.
        case time
        case token
    }

    package let rule: Rule
    /// The member or name that the hint is about; empty if there is only one such hint per job.
    package var subject = ""
    /// The mistake, and the correction.
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

    /// True if the hint is about the payload or the priority. A strict app refuses a job with such a hint.
    var isOfPayload: Bool {
        switch rule {
        case .unknownPushType, .topicSuffix, .unknownMember, .ignoredMember, .time, .token: false
        default: true
        }
    }

    /// The reason of the dead letter if the app is strict.
    var reason: Reason {
        Reason(rule == .priority ? .apns(.badPriority) : .own(.badPayload), detail: detail)
    }
}

/// The rules for notifications. They are checked before sending, so that errors can name the mistake.
///
/// There are two classes. If Apple documents that APNs answers a breach with an error, the job becomes a dead letter that names the rule. A
/// breach of Apple's requirements on an app or a device is only a ``Hint``. Each rule cites Apple's page.
enum NotificationRules {
    struct Subject {
        var pushType: PushType
        /// The job's own priority; `nil` if it has none.
        var priority: UInt8?
        var isOnChannel = false
        var topic = Topic.app
        /// The time when the notification is sent, in seconds since 1970.
        var second: Int64 = 0

        /// The kind of notification, as the subject of a sentence.
        var kind: String {
            topic == .website ? "a notification for a website" : "a notification of push type \(pushType.name)"
        }

        /// True if the payload is not an app's, so that the rules for apps do not apply.
        var isOfNoApp: Bool { topic != .app && topic != .website && pushType != .mdm }
    }

    /// The kinds of topics.
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
                // The first byte is compared first, because most topics are an app's and need no other comparison.
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
        isOnChannel ? PushType.maximumBroadcastSize : pushType.row.maximumPayloadSize
    }

    /// Returns the `apns-priority` to send. APNs assumes 10 without the header, which is an error for a background notification. A
    /// broadcast must have the header.
    static func priority(_ given: UInt8?, _ pushType: PushType, isOnChannel: Bool) -> UInt8? {
        given ?? pushType.row.priority ?? (isOnChannel ? 10 : nil)
    }

    /// Checks a notification and completes its payload.
    /// - Parameters:
    ///   - facts: the facts of the payload.
    ///   - payload: the payload. A Live Activity's missing `timestamp` is filled in.
    ///   - second: the `timestamp` to fill in, in seconds since 1970.
    ///   - report: called with each hint.
    /// - Throws: the first broken rule that APNs answers with an error.
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
                    + (subject.isOnChannel ? "on a channel" : "for push type \(subject.pushType.name)")
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
                    "a notification for a `channel` is of push type liveactivity, not \(subject.pushType.name); "
                    + "omit the job's `push_type`, or send to a `token`")
        }
        guard let priority = subject.priority else { return }
        let row = subject.pushType.row
        // APNs accepts this priority for Wallet passes (observed).
        if priority == row.refusedPriority, subject.topic != .wallet {
            throw Reason(
                APNSReason.badPriority,
                detail:
                    "a notification of push type \(row.name) must not have priority \(priority), which APNs refuses; "
                    + "set the job's `priority` to 5 or omit it")
        }
        // Apple's page "Sending broadcast push notification requests to APNs" allows this priority for channels.
        if priority == row.unwantedPriority, !subject.isOnChannel {
            try report(
                Hint(
                    .priority,
                    "Apple requires priority 5 or 10 for push type \(row.name), and the job's `priority` is \(priority)"
                ))
        }
    }

    private static func check(
        _ facts: PayloadFacts, _ payload: ByteBuffer, hasTimestamp: Bool, _ subject: Subject,
        _ report: (Hint) throws(Reason) -> Void
    ) throws(Reason) {
        if facts.hasWideScore, subject.pushType != .liveactivity {
            try report(
                Hint(.relevanceScore, "`aps.relevance-score` must be from 0 to 1, except for a Live Activity"))
        }
        if let hint = members(facts, subject, hasTimestamp: hasTimestamp) { return try report(hint) }
        switch subject.pushType {
        case .alert: if let hint = alert(facts) { try report(hint) }
        case .liveactivity:
            // "You can't use broadcast push notifications to start a Live Activity."
            if subject.isOnChannel, facts.event == .start {
                throw Reason(
                    .badPayload,
                    detail: "a Live Activity cannot be started on a `channel`; start it on each device, by its "
                        + "push-to-start token, with the channel's id as `input-push-channel`")
            }
            if let hint = liveActivity(facts) ?? time(facts, payload, subject) { try report(hint) }
        default: break
        }
    }

    /// Returns the hint about a required member that a payload lacks, or about a member that it must not have.
    private static func members(_ facts: PayloadFacts, _ subject: Subject, hasTimestamp: Bool) -> Hint? {
        let row = subject.pushType.row
        var required = row.required
        // A wrong event is reported as a wrong value. A Live Activity may end with its last state: Apple only recommends a final state.
        if let event = facts.event, event != .end { required.formUnion(row.requiredUnlessEnded) }
        if facts.event == .start { required.formUnion(row.requiredToStart) }
        if hasTimestamp { required.remove(.timestamp) }
        // Apple, "Configuring Safari Push Notifications": "The url-args array must be included". Safari drops a notification
        // without it.
        if subject.topic == .website, subject.pushType == .alert { required.insert(.urlArguments) }
        let missing = required.subtracting(facts.named)
        if !missing.isEmpty {
            let names = missing.names
            let place = missing.isDisjoint(with: .besideAPS) ? "in its `aps`" : "at the top of its payload"
            let value = missing.only.map { ", which must be \($0.value.expectation(in: .payload))" } ?? ""
            let without = row.without.utf8CodeUnitCount > 0 ? "; without it, \(row.without)" : ""
            return Hint(
                .requiredMember,
                "\(subject.kind) needs \(names.joined(by: "and")) \(place)\(value)\(without)",
                subject: names.joined(separator: " "))
        }
        if row.excludesAPS, facts.hasAPS {
            return Hint(
                .excludedMember, "\(subject.kind) must not have `aps` in its payload; remove it", subject: "aps")
        }
        let excluded = facts.named.intersection(row.excluded)
        guard !excluded.isEmpty else { return nil }
        return Hint(
            .excludedMember,
            "\(subject.kind) must not have \(excluded.names.joined(by: "or")) in its `aps`: \(row.instead)",
            subject: excluded.names.joined(separator: " "))
    }

    // Apple, "Generating a remote notification", lists the keys that show an alert, play a sound or set a badge. For `mutable-content` see
    // "Modifying content in newly delivered notifications": the extension is only called for an alert that is shown. Payloads without `aps`
    // and alerts of a wrong type have hints of their own.
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

    // Apple, "Starting and updating Live Activities with ActivityKit push notifications", "Construct the payload that starts a
    // Live Activity".
    private static func liveActivity(_ facts: PayloadFacts) -> Hint? {
        guard facts.event == .start else { return nil }
        if facts.valid.contains(.alert), !facts.showsText {
            return Hint(.alertShowsNothing, "a Live Activity does not start without a text in its `alert`")
        }
        guard facts.named.isSuperset(of: [.inputPushToken, .inputPushChannel]) else { return nil }
        return Hint(
            .liveActivityInput,
            "a Live Activity is updated by its token or by a channel: use either `input-push-token` or "
                + "`input-push-channel`")
    }

    /// Returns the hint about a time that makes devices ignore the notification, or later ones.
    private static func time(_ facts: PayloadFacts, _ payload: ByteBuffer, _ subject: Subject) -> Hint? {
        for member in PayloadMember.allCases {
            guard let clock = member.clock, let time = facts.time(member, in: payload) else { continue }
            let why: String? =
                switch clock {
                case .ahead where facts.event != .end && time < subject.second: "has passed: no device shows the update"
                case .now(let hours) where time < subject.second - hours * 3600:
                    "is over \(hours) hours old; write the current time, because devices ignore updates that are "
                        + "older than the last one"
                case .now where time > subject.second + Job.clockTolerance / 1000:
                    "is in the future: devices ignore later updates with an earlier time"
                default: nil
                }
            if let why { return Hint(.payloadTime, "its `\(member.name)` \(why)", subject: "\(member.name)") }
        }
        return nil
    }
}

extension PayloadFacts.Members {
    static let besideAPS: Self = [.mdm, .containerIdentifier]

    private var all: [PayloadMember] { PayloadMember.allCases.filter { contains(.init($0)) } }

    fileprivate var only: PayloadMember? { all.count == 1 ? all[0] : nil }

    /// The names of the members, in the order of the table.
    fileprivate var names: [String] { all.map { "`\($0.name)`" } }
}
