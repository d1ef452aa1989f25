/// The members of a job that mean something to the worker (design, section 5). All others are carried along untouched.
public enum JobMember: UInt8, CaseIterable, Sendable {
    /// The producer's id.
    case id
    /// The device token.
    case token
    /// The device tokens, if the notification goes to many.
    case tokens
    /// Which configured app to send through.
    case app
    /// The `apns-topic` header.
    case topic
    /// The `apns-push-type` header.
    case pushType
    /// The `apns-priority` header.
    case priority
    /// The `apns-expiration` header, or a duration from enqueueing.
    case expiration
    /// The `apns-collapse-id` header.
    case collapseID
    /// The `apns-id` header.
    case apnsID
    /// The APNs payload.
    case payload
    /// Not before this time.
    case sendAt
    /// When the device last registered.
    case registeredAt
    /// How many attempts the job has.
    case maxAttempts
    /// The action when an answer never came.
    case onUncertain
    /// When the producer made the job.
    case enqueuedAt
    /// For how long no other job with the same id is sent.
    case uniqueFor
    /// The broadcast channel, instead of a device.
    case channel
    /// True to send jobs that say the same to the same device once.
    case collapseDuplicates
    /// True to allow the alert's body to be shortened so that the payload fits.
    case truncate
    /// The trace that the job belongs to, as W3C Trace Context has it.
    case traceparent
    /// The campaign that the job belongs to.
    case campaign
    /// The producer's labels of the job.
    case labels
    /// True to keep the job's results even where its queue keeps fewer.
    case keepResult

    // The short forms, in the order in which they stand in a composed payload.

    /// `aps.alert`: a string, or an object.
    case alert
    /// `aps.badge`.
    case badge
    /// `aps.sound`: a name, or an object.
    case sound
    /// `aps.thread-id`.
    case threadID
    /// `aps.category`.
    case category
    /// `aps.content-available`.
    case contentAvailable
    /// `aps.mutable-content`.
    case mutableContent
    /// `aps.target-content-id`.
    case targetContentID
    /// `aps.interruption-level`.
    case interruptionLevel
    /// `aps.relevance-score`.
    case relevanceScore
    /// `aps.filter-criteria`.
    case filterCriteria
    /// `aps.stale-date`.
    case staleDate
    /// `aps.content-state`.
    case contentState
    /// `aps.timestamp`.
    case timestamp
    /// `aps.event`.
    case event
    /// `aps.dismissal-date`.
    case dismissalDate
    /// `aps.attributes-type`.
    case attributesType
    /// `aps.attributes`.
    case attributes
    /// `aps.input-push-token`.
    case inputPushToken
    /// `aps.input-push-channel`.
    case inputPushChannel
    /// `aps.content-changed`.
    case contentChanged
    /// `aps.url-args`.
    case urlArguments
    /// `mdm`, beside `aps`: the push magic.
    case mdm
    /// Members beside `aps`.
    case custom

    /// The member's name in a job.
    public var name: StaticString {
        switch self {
        case .id: "id"
        case .token: "token"
        case .tokens: "tokens"
        case .app: "app"
        case .topic: "topic"
        case .pushType: "push_type"
        case .priority: "priority"
        case .expiration: "expiration"
        case .collapseID: "collapse_id"
        case .apnsID: "apns_id"
        case .payload: "payload"
        case .sendAt: "send_at"
        case .registeredAt: "registered_at"
        case .maxAttempts: "max_attempts"
        case .onUncertain: "on_uncertain"
        case .enqueuedAt: "enqueued_at"
        case .uniqueFor: "unique_for"
        case .channel: "channel"
        case .collapseDuplicates: "collapse_duplicates"
        case .truncate: "truncate"
        case .traceparent: "traceparent"
        case .campaign: "campaign"
        case .labels: "labels"
        case .keepResult: "keep_result"
        case .alert: "alert"
        case .badge: "badge"
        case .sound: "sound"
        case .threadID: "thread_id"
        case .category: "category"
        case .contentAvailable: "content_available"
        case .mutableContent: "mutable_content"
        case .targetContentID: "target_content_id"
        case .interruptionLevel: "interruption_level"
        case .relevanceScore: "relevance_score"
        case .filterCriteria: "filter_criteria"
        case .staleDate: "stale_date"
        case .contentState: "content_state"
        case .timestamp: "timestamp"
        case .event: "event"
        case .dismissalDate: "dismissal_date"
        case .attributesType: "attributes_type"
        case .attributes: "attributes"
        case .inputPushToken: "input_push_token"
        case .inputPushChannel: "input_push_channel"
        case .contentChanged: "content_changed"
        case .urlArguments: "url_args"
        case .mdm: "mdm"
        case .custom: "custom"
        }
    }

    /// True for the members by which a job is found again.
    var identifies: Bool {
        switch self {
        case .id, .token, .channel, .app, .topic, .campaign, .labels, .traceparent: true
        default: false
        }
    }
}
