import ArgumentParser
import PushJob
import PushQueue
import PushWorker

/// Whose way it is to write jobs.
enum JobWriter: String, CaseIterable {
    case native, sidekiq, resque

    /// The list on which it puts a queue's jobs, if that is not this project's own.
    func list(of queue: String) -> String? {
        switch self {
        case .native: nil
        case .sidekiq: "queue:\(queue)"
        case .resque: "resque:queue:\(queue)"
        }
    }

    /// Sidekiq pushes at the left and takes from the right, the others do the reverse.
    var head: QueueKeys.Head { self == .sidekiq ? .right : .left }
}

// How a queue's jobs are written, and where they are.
extension Settings {
    func writer(of queue: String) -> JobWriter {
        text(.format, queue: queue).flatMap(JobWriter.init(rawValue:)) ?? .native
    }

    func format(of queue: String) throws -> JobFormat {
        let classes = given(.jobClass, queue: queue)
        guard writer(of: queue) == .native else {
            return .sidekiq(classes: (classes?.text ?? "").split(separator: ",").map(String.init))
        }
        if let classes {
            throw ValidationError(
                "\(classes.place) is for the formats sidekiq and resque, and the format of the queue \(queue) is native"
            )
        }
        return .native
    }

    /// The names of a queue's keys.
    /// - Parameter isOnly: whether the worker has no other queue.
    func keys(of queue: String, isOnly: Bool) throws -> QueueKeys {
        let writer = writer(of: queue)
        let list = own(.list, queue: queue) ?? given(.list)
        if let list, !isOnly, own(.list, queue: queue) == nil {
            throw ValidationError(
                "\(list.place) names the list of one queue, and there are several; run a worker for each,"
                    + " or give each its own in the file, as queues.<name>.list")
        }
        let keys: QueueKeys
        do {
            keys = try QueueKeys(
                prefix: keyPrefix, queue: queue, list: list?.text ?? writer.list(of: queue), head: writer.head)
        } catch {
            throw ValidationError(list.map { "\($0.place): \(error)" } ?? "\(error)")
        }
        if case .cluster = try redisTopology(), !keys.listIsInSlot { throw Self.otherSlot(keys) }
        return keys
    }

    private static func otherSlot(_ keys: QueueKeys) -> ValidationError {
        ValidationError(
            """
            the list \(keys.jobs) and the queue's other keys (\(keys.retry) and so on) are in different slots of the Redis \
            Cluster, so that no script can move a job between them: name the list so that {\(keys.queue)} is in it \
            (--list 'queue:{\(keys.queue)}', which is Sidekiq's queue "{\(keys.queue)}"), or have these jobs on a Redis \
            that is no Cluster
            """)
    }
}
