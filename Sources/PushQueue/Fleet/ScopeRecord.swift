/// A scope that a lane has slowed down or suspects: its failures, their reason, and the number of deliveries outside of it.
///
/// The log, `status`, `/readyz`, the dashboard, the API and metrics show this record. Any client of Redis can write one
/// into a heartbeat, so the reader makes its texts printable and limits its numbers.
public struct ScopeRecord: Codable, Sendable, Equatable {
    /// The kind of scope, from narrow to wide. A group is a campaign, or the jobs of a topic and push type that have no campaign.
    public enum Scope: String, Codable, CaseIterable, Sendable {
        case job, campaign, topic, app, credential, endpoint
    }

    public enum State: String, Codable, CaseIterable, Sendable {
        /// Its last answers are failures, but too few to slow it down.
        case suspected
        /// The scope sends probes only.
        case slow
    }

    /// The maximum number of jobs that a record names.
    public static let maximumJobs = 3

    public var scope: Scope
    /// The job's ID, the campaign, the topic with its push type, the app, the key ID or certificate, or the address.
    public var name: String
    public var state: State
    /// The app of these failures; `nil` for a credential or an endpoint of several apps.
    public var app: String?
    /// The code of the last failure, such as `BadDeviceToken`.
    public var reason: String
    /// The explanation of the reason, if the code is not sufficient.
    public var detail: String?
    /// The HTTP status of the last failure; `nil` if there was no answer.
    public var status: Int?
    /// The number of failures since ``since``.
    public var failures: Int
    /// The number of notifications that failed or were accepted since ``since``; 0 if unknown.
    public var notifications: Int
    /// The time of the first of these failures, in milliseconds since 1970 by Redis' clock.
    public var since: Int64
    /// The IDs of some jobs that failed, at most ``maximumJobs``.
    public var jobs: [String]
    /// The number of notifications that APNs accepted since ``since`` outside of this scope, in the same apps.
    public var othersDelivered: Int

    public init(
        _ scope: Scope, _ name: String, _ state: State, app: String? = nil, reason: String, detail: String? = nil,
        status: Int? = nil, failures: Int, notifications: Int = 0, since: Int64, jobs: [String] = [],
        othersDelivered: Int = 0
    ) {
        self.scope = scope
        self.name = name
        self.state = state
        self.app = app
        self.reason = reason
        self.detail = detail
        self.status = status
        self.failures = failures
        self.notifications = notifications
        self.since = since
        self.jobs = jobs
        self.othersDelivered = othersDelivered
    }

    public enum CodingKeys: String, CodingKey {
        case scope, name, state, app, reason, detail, status, failures, notifications, since, jobs
        case othersDelivered = "others_delivered"
    }
}
