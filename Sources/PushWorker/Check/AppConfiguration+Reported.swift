import APNS
import PushQueue

extension AppConfiguration {
    /// Makes what a worker reports of an app, to find out which app would take a job. It has no credential.
    /// - Returns: `nil` for a report without a topic.
    package init?(reported app: WorkerReport.App) {
        guard let topic = app.topics.first else { return nil }
        self.init(name: app.name, topic: topic, credential: .providerTokens([]))
        otherTopics = Array(app.topics.dropFirst())
        if let endpoint = APNSEndpoint(app.endpoint) { self.endpoint = endpoint }
    }
}
