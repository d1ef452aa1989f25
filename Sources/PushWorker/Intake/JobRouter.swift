import NIOCore
import PushJob

struct JobRouter {
    private(set) var apps: [RoutedApp]
    /// The indices of the apps that accept jobs.
    private var open: [Int]

    init(_ apps: [RoutedApp]) {
        self.apps = apps
        open = Array(apps.indices)
    }

    /// Replaces the apps. Jobs that were already routed keep their index.
    /// - Parameters:
    ///   - apps: all apps that ever existed, in their old order, followed by new ones.
    ///   - isRemoved: returns true for an app that no longer accepts jobs.
    mutating func replace(_ apps: [RoutedApp], isRemoved: (Int) -> Bool) {
        self.apps = apps
        open = apps.indices.filter { !isRemoved($0) }
    }

    /// Returns the app for a job.
    /// - Parameter othersRouteAlike: true if all workers of the queue have the same apps. Only then does a worker with one app accept a job
    ///   with a topic that the app does not list.
    /// - Throws: the reason why no app accepts the job.
    func route(_ job: Job, othersRouteAlike: Bool = true) throws(Reason) -> AppID {
        let open = job.isForProduction || job.isForSandbox ? try openApps(for: job) : self.open
        if let field = job.app {
            let name = job.text(field)
            guard let index = open.first(where: { apps[$0].name == name }) else {
                throw Reason(.unknownApp, detail: "this worker has no app with the name in the job's `app`")
            }
            return AppID(index: index)
        }
        guard let field = job.topic else {
            if open.count == 1 { return AppID(index: open[0]) }
            throw Reason(.noApp, detail: "the job has neither `app` nor `topic`, and there are several apps")
        }
        let topic = job.text(field)
        if let index = open.first(where: { apps[$0].hasTopic(topic) }) { return AppID(index: index) }
        if open.count == 1, othersRouteAlike { return AppID(index: open[0]) }
        throw Reason(.unknownApp, detail: "this worker has no app with the job's `topic`")
    }

    /// Returns the apps for the environment that a job names. An app of another server, such as a simulator, has no environment.
    /// - Throws: a reason with the name of the job's app, if that app is for the other environment.
    private func openApps(for job: Job) throws(Reason) -> [Int] {
        let other = ByteBuffer(string: job.isForProduction ? "sandbox" : "production")
        let isContradictory = job.isForProduction && job.isForSandbox
        let fitting = open.filter { index in
            let environment = apps[index].environment
            return environment != other && !(isContradictory && environment == ByteBuffer(string: "production"))
        }
        let named = open.filter { index in
            job.app.map { job.text($0) == apps[index].name } ?? job.topic.map { apps[index].hasTopic(job.text($0)) }
                ?? true
        }
        if let index = named.first, !named.contains(where: fitting.contains) {
            let said =
                isContradictory ? "production and the sandbox" : job.isForProduction ? "production" : "the sandbox"
            let app = apps[index].configuration
            throw Reason(
                .unknownApp,
                detail: "the job is for \(said), and the app \(app.name) is for \(app.environment); correct the "
                    + "job's `environment`, or configure an app for the job")
        }
        return fitting
    }
}
