import NIOCore
import PrintableText
import PushJob
import PushQueue
import PushWorker
import Redis

/// The state of the queue of an `enqueue` command: the workers that claim from it, and their apps.
struct QueueState {
    let queue: String
    /// False if no worker claims from the queue; `nil` if unknown.
    private(set) var hasWorkers: Bool?
    /// The reason for which the queue is paused; `nil` if it is not.
    private(set) var pause: String?
    /// The names of the workers' apps; `nil` if unknown.
    private(set) var apps: Set<String>?

    /// Reads the state. It stays unknown for a Redis user that has permission only to push, which is not an error.
    static func read(_ client: RedisClient, _ keys: QueueKeys, _ settings: Settings) async -> QueueState {
        var state = QueueState(queue: keys.queue)
        do {
            let overview = try await QueueOverview.read(client, keys)
            let living = overview.workers.filter(\.isLiving)
            state.hasWorkers = !living.isEmpty || overview.workerCount > overview.workers.count
            state.pause = overview.pause?.inWords
            let reports = living.compactMap(\.report)
            // Reports name a limited number of apps.
            if !reports.isEmpty, reports.count == living.count, reports.allSatisfy({ $0.moreApps == 0 }) {
                state.apps = Set(reports.flatMap { $0.apps.map(\.name) })
            }
        } catch {
            state.hasWorkers = nil
        }
        if state.apps == nil, state.hasWorkers == false, let names = try? settings.appNames, !names.isEmpty {
            state.apps = Set(names)
        }
        return state
    }

    /// Warns on standard error about conditions that prevent jobs from being sent.
    func warn() {
        if hasWorkers == false { Terminal.note("note: no worker claims jobs from queue \(queue)\n") }
        if let pause { Terminal.note("note: queue \(queue) is paused: \(pause.printable)\n") }
    }
}

/// Checks jobs before they are enqueued.
struct EnqueueCheck {
    /// The reason for which a job is not enqueued.
    struct Refusal: Error, CustomStringConvertible {
        let description: String
    }

    let format: JobFormat
    /// The names of the workers' apps; `nil` if unknown.
    let apps: Set<String>?

    /// Returns a job that can be enqueued, and its existing or new ID.
    func prepare(_ body: ByteBuffer) -> Result<(job: ByteBuffer, id: String?), Refusal> {
        if let defect = JobCheck.defect(of: body, as: format) { return .failure(Refusal(description: defect)) }
        guard let job = try? JobDecoder.decode(body, as: format) else {
            return .failure(Refusal(description: "the job cannot be read"))
        }
        if let unknown = unknownApp(of: job) { return .failure(Refusal(description: unknown)) }
        if let id = job.id { return .success((body, String(buffer: job.text(id)))) }
        // A worker's wrapper must begin with its mark.
        guard !job.envelope.isWrapped else { return .success((body, nil)) }
        let id = NewID.make()
        return .success((NewID.insert(id, into: body, as: format), id))
    }

    /// Returns the problem of a job whose app no worker has.
    private func unknownApp(of job: Job) -> String? {
        guard let apps, let app = job.app else { return nil }
        let name = String(buffer: job.text(app))
        guard !apps.contains(name) else { return nil }
        let known = apps.sorted()
        let hint =
            name.nearest(of: known).map { "; did you mean \($0)?" } ?? "; they have \(known.joined(separator: ", "))"
        return "no worker has an app \(name.printable)\(hint.printable)"
    }
}
