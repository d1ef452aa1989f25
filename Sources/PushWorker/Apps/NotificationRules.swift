import APNS
import NIOCore
import PushJob
import PushQueue

/// What APNs or the device is known to refuse, found before sending, so that it can be said what to change.
///
/// Only what Apple documents as an error or a requirement is here; what is merely unwise is sent. Apple's pages are named
/// where their rules are.
enum NotificationRules {
    /// How many bytes the payload may have.
    static func sizeLimit(_ pushType: PushType, isOnChannel: Bool) -> Int {
        isOnChannel ? PushType.maximumBroadcastSize : pushType.maximumPayloadSize
    }

    /// The `apns-priority` to send. APNs takes 10 where there is none, and that is an error for a background notification;
    /// a broadcast must have the header.
    static func priority(_ given: UInt8?, _ pushType: PushType, isOnChannel: Bool) -> UInt8? {
        given ?? (pushType == .background ? 5 : isOnChannel ? 10 : nil)
    }

    /// The `apns-expiration` to send. A broadcast must have the header; 0, "now or never", is what every channel takes,
    /// whether it stores messages or not.
    static func expiration(_ given: Int64?, isOnChannel: Bool) -> Int64? {
        given ?? (isOnChannel ? 0 : nil)
    }

    /// The first rule that a notification breaks.
    ///
    /// The payload is scanned only for types that have rules about it, which `alert` does not, nor does a background
    /// notification that was found to be one by its payload.
    /// - Parameters:
    ///   - priority: the job's own; `nil` where it has none.
    ///   - isInferred: whether the push type was not the job's own word, but taken from what it has.
    ///   - payload: what is to be sent.
    static func refusal(
        _ pushType: PushType, isInferred: Bool, priority: UInt8?, isOnChannel: Bool, payload: ByteBuffer
    ) -> Reason? {
        if let refusal = headerRefusal(pushType, priority: priority, isOnChannel: isOnChannel) { return refusal }
        let limit = sizeLimit(pushType, isOnChannel: isOnChannel)
        guard payload.readableBytes <= limit else {
            return Reason(
                APNSReason.payloadTooLarge,
                detail: "the payload has \(payload.readableBytes) bytes; APNs takes \(limit) "
                    + (isOnChannel ? "on a channel" : "for push type \(pushType.rawValue)")
                    + "; shorten it, or set the job's `truncate` to have the alert's body shortened")
        }
        guard hasPayloadRules(pushType), !(isInferred && pushType == .background) else { return nil }
        do throws(JSONError) {
            return refusal(of: try PayloadFacts(payload), pushType, isOnChannel: isOnChannel)
        } catch {
            return badPayload("the payload is not valid JSON: \(error)")
        }
    }

    /// The first rule about payloads that one breaks.
    static func refusal(of facts: PayloadFacts, _ pushType: PushType, isOnChannel: Bool) -> Reason? {
        switch pushType {
        case .background: backgroundRefusal(facts)
        case .liveactivity: liveActivityRefusal(facts, isOnChannel: isOnChannel)
        case .widgets, .controls: contentChangedRefusal(facts, pushType)
        case .mdm: mdmRefusal(facts)
        case .fileprovider: fileProviderRefusal(facts)
        case .alert, .complication, .location, .pushtotalk, .voip: nil
        }
    }

    private static func hasPayloadRules(_ pushType: PushType) -> Bool {
        switch pushType {
        case .background, .liveactivity, .widgets, .controls, .mdm, .fileprovider: true
        case .alert, .complication, .location, .pushtotalk, .voip: false
        }
    }

    private static func headerRefusal(_ pushType: PushType, priority: UInt8?, isOnChannel: Bool) -> Reason? {
        // Apple, "Sending broadcast push notification requests to APNs": channels are for Live Activities.
        if isOnChannel, pushType != .liveactivity {
            return Reason(
                APNSReason.invalidPushType,
                detail: "a notification for a `channel` is of push type liveactivity, not \(pushType.rawValue); "
                    + "leave out the job's `push_type`, or send to a `token`")
        }
        switch (pushType, priority) {
        // Apple, "Sending notification requests to APNs": "Always use priority 5. Using priority 10 is an error."
        case (.background, 10):
            return Reason(
                APNSReason.badPriority,
                detail: "a background notification has priority 5, for 10 is an error to APNs; "
                    + "set the job's `priority` to 5 or leave it out")
        // Apple, "Starting and updating Live Activities with ActivityKit push notifications": "Set the value for the
        // apns-priority header field to 5 or 10."
        case (.liveactivity, 1):
            return Reason(
                APNSReason.badPriority,
                detail: "a notification for a Live Activity has priority 5 or 10, not 1; change the job's `priority`")
        default: return nil
        }
    }

    // Apple, "Pushing background updates to your App": "an aps dictionary that includes only the content-available key
    // […] must not contain any keys that would trigger user interactions".
    private static func backgroundRefusal(_ facts: PayloadFacts) -> Reason? {
        if !facts.members.contains(.contentAvailable) {
            return badPayload(
                "a background notification needs `content-available` 1 in its `aps`, without which it wakes no app")
        }
        guard facts.members.isDisjoint(with: [.alert, .badge, .sound]) else {
            return badPayload(
                "a background notification must not have `alert`, `badge` or `sound` in its `aps`; "
                    + "take them out, or send it as push type alert")
        }
        return nil
    }

    // Apple, "Starting and updating Live Activities with ActivityKit push notifications", "Construct the ActivityKit
    // remote push notification payload" and "Construct the payload that starts a Live Activity".
    private static func liveActivityRefusal(_ facts: PayloadFacts, isOnChannel: Bool) -> Reason? {
        guard let event = facts.event, event != .other else {
            return badPayload("a Live Activity's `event` in `aps` must be \"start\", \"update\" or \"end\"")
        }
        if !facts.members.contains(.timestamp) {
            return badPayload(
                "a Live Activity needs `timestamp` in its `aps`: the current time in whole seconds since 1970")
        }
        // The last state may stay when it ends: Apple only advises to send a final one.
        if event != .end, !facts.members.contains(.contentState) {
            return badPayload(
                "a Live Activity that starts or is updated needs `content-state`, an object, in its `aps`")
        }
        guard event == .start else { return nil }
        // "You can't use broadcast push notifications to start a Live Activity."
        if isOnChannel {
            return badPayload(
                "a Live Activity cannot be started on a `channel`; start it on each device, by its push-to-start token, "
                    + "with the channel's id as `input-push-channel`")
        }
        let missing = [
            (PayloadFacts.Members.alert, "alert"), (.attributesType, "attributes-type"), (.attributes, "attributes"),
        ]
        .first { !facts.members.contains($0.0) }
        return missing.map { badPayload("to start a Live Activity, `aps` needs `\($0.1)`") }
    }

    // Apple, "Updating widgets with WidgetKit push notifications" and "Updating controls locally and remotely".
    private static func contentChangedRefusal(_ facts: PayloadFacts, _ pushType: PushType) -> Reason? {
        facts.members.contains(.contentChanged)
            ? nil
            : badPayload("a notification of push type \(pushType.rawValue) needs `content-changed` true in its `aps`")
    }

    // Apple, Device Management, "Sending MDM commands to a device": "only include the PushMagic string as the value of the
    // mdm key […] This is the complete message. Don't include an aps key".
    private static func mdmRefusal(_ facts: PayloadFacts) -> Reason? {
        if !facts.members.contains(.mdm) {
            return badPayload("a notification of push type mdm needs `mdm`, the device's push magic, in its payload")
        }
        return facts.members.contains(.apsName)
            ? badPayload("a notification of push type mdm must not have `aps` in its payload; take it out") : nil
    }

    // Apple, "Using push notifications to signal changes".
    private static func fileProviderRefusal(_ facts: PayloadFacts) -> Reason? {
        facts.members.contains(.containerIdentifier)
            ? nil
            : badPayload(
                "a notification of push type fileprovider needs `container-identifier`, a string, beside `aps`")
    }

    private static func badPayload(_ detail: String) -> Reason { Reason(.badPayload, detail: detail) }
}

extension PushType {
    /// The push type of a job that names none.
    static func inferred(for job: Job) -> PushType {
        switch job.kind {
        case .alert: .alert
        case .background: .background
        case .liveActivity: .liveactivity
        case .mdm: .mdm
        }
    }
}
