import NIOCore
import PushQueue
import Redis

/// Pushes jobs of producers.
package enum JobPush {
    package enum Outcome: Sendable, Equatable {
        /// All jobs are in the list.
        case pushed
        /// The same request had pushed them before, so nothing was pushed.
        case repeated
        /// Another request had the same name, so nothing was pushed.
        case otherRequest
        /// Nothing was pushed, because the maximum number of jobs wait.
        case listIsTooLong(length: Int)
    }

    /// A request that pushes its jobs only once, even if it is repeated.
    package struct Request: Sendable {
        /// The name of the request. A repetition has the same name.
        package let name: String
        package let digest: String
        /// Redis remembers the request for this time, in seconds.
        package let seconds: Int

        package init(name: String, digest: String, seconds: Int) {
            (self.name, self.digest, self.seconds) = (name, digest, seconds)
        }
    }

    /// Pushes jobs at the tail of a queue's list, all or none, in one step. Jobs with `replaces` become the newest of their keys.
    /// - Parameters:
    ///   - maximumLength: if so many jobs wait in the list and among the sorted jobs, nothing is pushed.
    ///   - areNew: false for jobs that were pushed before: a newer one may have replaced them.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`. Nothing was pushed, except perhaps if the
    ///   error is one that ``RedisError/mayHaveBeenExecuted``.
    package static func push(
        _ jobs: [ByteBuffer], _ client: RedisClient, _ keys: QueueKeys, maximumLength: Int? = nil,
        request: Request? = nil, areNew: Bool = true
    ) async throws -> Outcome {
        let newest = areNew ? NewestJob.ofProducer(jobs, now: Moment.now) : []
        let call = Call(jobs, newest, keys.pushCommand, keys, maximumLength, request)
        let (pushed, length) = try await QueueScript.enqueueJobs.run(
            client, call.keys, then: call.moreKeys, expecting: call.count, bytes: call.bytes, arguments: call.append
        ) {
            ($0.number(), $0.number())
        }
        return switch pushed {
        case 0: .listIsTooLong(length: length)
        case -1: .repeated
        case -2: .otherRequest
        default: .pushed
        }
    }

    /// Returns the command that pushes jobs. Jobs with `replaces` become the newest of their keys.
    /// - Parameter first: true to put them at the head of the list.
    package static func command(_ jobs: [ByteBuffer], _ keys: QueueKeys, first: Bool = false) -> RedisCommand {
        let newest = NewestJob.ofProducer(jobs, now: Moment.now)
        let push = first == (keys.head == .left) ? "LPUSH" : "RPUSH"
        // At the head, the job that is pushed last is claimed first.
        let jobs = first ? jobs.reversed() : jobs
        guard newest.isEmpty else {
            let call = Call(jobs, newest, push, keys, nil, nil)
            return QueueScript.enqueueJobs.command(
                bySource: true, call.keys, then: call.moreKeys, expecting: call.count, bytes: call.bytes,
                arguments: call.append)
        }
        var command = RedisCommand(push, expecting: jobs.count + 1, bytes: jobs.reduce(100) { $0 + $1.readableBytes })
        command.append(keys.jobs)
        for job in jobs { command.append(job) }
        return command
    }

    /// A call of `enqueue-jobs.lua`.
    private struct Call {
        let keys: [String]
        let moreKeys: [ByteBuffer]
        let append: (inout RedisCommand) -> Void
        let count, bytes: Int

        init(
            _ jobs: [ByteBuffer], _ newest: [NewestJob], _ push: String, _ keys: QueueKeys, _ maximum: Int?,
            _ request: Request?
        ) {
            self.keys = [keys.jobs, keys.sorted, keys.request(request?.name ?? "")]
            moreKeys = newest.map { keys.newest($0.key) }
            count = jobs.count + 2 * newest.count + 5
            bytes = jobs.reduce(512 + 64 * newest.count) { $0 + $1.readableBytes + 16 }
            append = { command in
                command.append(push)
                command.append(maximum.map(String.init) ?? "")
                command.append(request?.digest ?? "")
                command.append(request?.seconds ?? 0)
                for job in newest {
                    command.append(job.id)
                    command.append(Int(job.life))
                }
                for job in jobs { command.append(job) }
            }
        }
    }
}
