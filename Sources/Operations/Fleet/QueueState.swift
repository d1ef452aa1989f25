import PrintableText
import PushQueue
import Redis

/// The facts about a queue that matter to its producers: the workers that claim from it, and their apps.
package struct QueueState: Sendable {
    package let queue: String
    /// False if no worker claims from the queue; `nil` if unknown.
    package private(set) var hasWorkers: Bool?
    /// The reason of the pause; `nil` if the queue is not paused.
    package private(set) var pause: String?
    /// The names of the workers' apps; `nil` if unknown.
    package private(set) var apps: Set<String>?
    /// The workers' apps, each once; `nil` if unknown.
    package private(set) var reported: [WorkerReport.App]?

    /// Reads the state. Facts that the Redis user has no permission to read stay unknown.
    /// - Parameter configured: the apps of the settings, in case the queue has no worker.
    /// - Throws: `RedisError` if there is no answer.
    package static func read(
        _ client: RedisClient, _ keys: QueueKeys, configured: [String]
    ) async throws -> QueueState {
        var state = QueueState(queue: keys.queue)
        do {
            let overview = try await QueueOverview.read(client, keys, countsPostponed: false)
            let living = overview.workers.filter(\.isLiving)
            state.hasWorkers = !living.isEmpty || overview.workerCount > overview.workers.count
            state.pause = overview.pause?.inWords
            let reports = living.compactMap(\.report)
            // Reports name a limited number of apps.
            if !reports.isEmpty, reports.count == living.count, reports.allSatisfy({ $0.moreApps == 0 }) {
                let apps = reports.flatMap(\.apps)
                state.apps = Set(apps.map(\.name))
                // Apps with the same name and different topics are different apps. A report with the maximum number of topics may be
                // incomplete.
                var known = Set<[String]>()
                if apps.allSatisfy({ $0.topics.count < WorkerReport.maximumTopics }) {
                    state.reported = apps.filter { known.insert([$0.name] + $0.topics).inserted }
                }
            }
        } catch RedisError.server {
            state.hasWorkers = nil
        }
        if state.apps == nil, state.hasWorkers == false, !configured.isEmpty { state.apps = Set(configured) }
        return state
    }

    /// The conditions that keep jobs from being sent, as sentences without a full stop.
    package var notes: [String] {
        var notes: [String] = []
        if hasWorkers == false { notes.append("no worker claims jobs from queue \(queue)") }
        if let pause { notes.append("queue \(queue) is paused: \(pause.printable)") }
        return notes
    }
}
