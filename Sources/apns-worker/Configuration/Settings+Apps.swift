import ArgumentParser
import PushWorker

// The apps that a worker sends for.
extension Settings {
    /// - Parameter simulated: what they have instead of their own credentials, where APNs is simulated; their endpoints are
    ///   to be filled in when they are known.
    func apps(simulated: SimulatedCredentials? = nil) throws -> [AppConfiguration] {
        let apps = try appSettings(simulated: simulated).map { try $0.app() }
        for (index, app) in apps.enumerated() {
            let topics = [app.topic] + app.otherTopics
            let others = apps[..<index].filter { !Set([$0.topic] + $0.otherTopics).isDisjoint(with: topics) }
            // Environments of one app are two apps with one topic; jobs choose between them by `app`.
            if let other = others.first, other.endpoint == app.endpoint {
                throw ValidationError(
                    "APNS_WORKER_APPS: \(other.name) and \(app.name) have a topic and an endpoint in common")
            }
        }
        return apps
    }

    /// The settings of each app.
    func appSettings(simulated: SimulatedCredentials? = nil) throws -> [AppSettings] {
        let names = try appNames
        guard !names.isEmpty else {
            return [AppSettings(name: "default", isNamed: false, settings: self, simulated: simulated)]
        }
        var variables: Set<String> = []
        return try names.map { name in
            let variable = SettingKey.variable(["apps", name])
            guard variables.insert(variable).inserted else {
                throw ValidationError("APNS_WORKER_APPS: two apps have the variables \(variable)_…")
            }
            return AppSettings(name: name, isNamed: true, settings: self, simulated: simulated)
        }
    }
}
