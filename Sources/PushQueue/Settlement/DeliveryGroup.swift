/// The notifications among which a failure is judged if its job has no campaign: those of an app with a push type. The topic
/// follows from both, except for a job that names another topic of its app.
public struct DeliveryGroup: Sendable, Hashable {
    public let app: String
    public let pushType: String

    public init(app: String, pushType: String) {
        self.app = app
        self.pushType = pushType
    }

    /// The field of the group's deliveries in ``QueueKeys/deliveries``.
    var field: String { "\(pushType):\(app)" }

    /// The field of the app's deliveries.
    var appField: String { ":\(app)" }
}
