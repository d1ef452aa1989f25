import NIOCore
import PushJob

/// Finds the app that a job goes through.
struct JobRouter {
    private(set) var apps: [RoutedApp]
    /// The indices of the apps that jobs go through.
    private var open: [Int]

    init(_ apps: [RoutedApp]) {
        self.apps = apps
        open = Array(apps.indices)
    }

    /// Routes by other apps from now on. What has been routed keeps its index.
    /// - Parameters:
    ///   - apps: all that there have ever been, in their old order, and new ones behind them.
    ///   - isRemoved: true for an app that jobs no longer go through.
    mutating func replace(_ apps: [RoutedApp], isRemoved: (Int) -> Bool) {
        self.apps = apps
        open = apps.indices.filter { !isRemoved($0) }
    }

    /// The app that a job goes through.
    /// - Throws: the reason for which no app takes the job.
    func route(_ job: Job) throws(Reason) -> AppID {
        if let field = job.app {
            let name = job.text(field)
            guard let index = open.first(where: { apps[$0].name == name }) else {
                throw Reason(.unknownApp, detail: "no app of this worker has the name in the job's `app`")
            }
            return AppID(index: index)
        }
        if open.count == 1 { return AppID(index: open[0]) }
        guard let field = job.topic else {
            throw Reason(.noApp, detail: "the job has neither `app` nor `topic`, and there are several apps")
        }
        let topic = job.text(field)
        guard let index = open.first(where: { apps[$0].hasTopic(topic) }) else {
            throw Reason(.unknownApp, detail: "this worker has no app with the job's `topic`")
        }
        return AppID(index: index)
    }
}
