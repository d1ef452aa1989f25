import ArgumentParser
import PushQueue
import Redis

/// How the jobs of the queues are written, and which lists they are on.
struct FormatOptions: ParsableArguments {
    @Option(
        help: """
            How jobs are written, and where they are: native on the queue's own list, sidekiq on the list queue:<queue>, \
            resque on resque:queue:<queue>; ActiveJob's are known in both. (APNS_WORKER_FORMAT; default native)
            """)
    var format: String?

    @Option(
        help: """
            The key of the list of jobs, if it is another one, such as shop:queue:push. (APNS_WORKER_LIST; default by \
            the format)
            """)
    var list: String?

    @Option(
        help: """
            With the formats sidekiq and resque: the classes whose jobs are taken, with commas between them; the others on the list \
            become dead letters. (APNS_WORKER_JOB_CLASS; default all)
            """)
    var jobClass: String?

    /// Whose format it is.
    private enum Writer: String, CaseIterable {
        case native, sidekiq, resque
    }

    func jobFormat() throws -> JobFormat {
        let classes = (Setting.text(jobClass, "APNS_WORKER_JOB_CLASS") ?? "").split(separator: ",").map(String.init)
        guard try writer() == .native else { return .sidekiq(classes: classes) }
        guard classes.isEmpty else {
            throw ValidationError(
                "APNS_WORKER_JOB_CLASS (or --job-class) is for the formats sidekiq and resque, and the format is native"
            )
        }
        return .native
    }

    private func writer() throws -> Writer {
        let text = Setting.text(format, "APNS_WORKER_FORMAT") ?? Writer.native.rawValue
        guard let writer = Writer(rawValue: text) else {
            throw ValidationError("APNS_WORKER_FORMAT (or --format) is \(text); it has to be native, sidekiq or resque")
        }
        return writer
    }

    /// The key of a queue's list, if it is not this project's own, and which end of it is its head.
    /// - Parameter isOnly: whether the worker has no other queue.
    func list(of queue: String, isOnly: Bool) throws -> (key: String?, head: QueueKeys.Head) {
        let writer = try writer()
        // Sidekiq pushes at the left and takes from the right, Resque the other way round.
        let head = writer == .sidekiq ? QueueKeys.Head.right : .left
        guard let list = Setting.text(list, "APNS_WORKER_LIST") else {
            switch writer {
            case .native: return (nil, head)
            case .sidekiq: return ("queue:\(queue)", head)
            case .resque: return ("resque:queue:\(queue)", head)
            }
        }
        guard isOnly else {
            throw ValidationError(
                "APNS_WORKER_LIST (or --list) names the list of one queue, and there are several; run a worker for each"
            )
        }
        return (list, head)
    }

    static func otherSlot(_ keys: QueueKeys) -> ValidationError {
        ValidationError(
            """
            the list \(keys.jobs) and the queue's other keys (\(keys.retry) and so on) are in different slots of the Redis \
            Cluster, so that no script can move a job between them: name the list so that {\(keys.queue)} is in it \
            (--list 'queue:{\(keys.queue)}', which is Sidekiq's queue "{\(keys.queue)}"), or have these jobs on a Redis \
            that is no Cluster
            """)
    }
}
