import NIOCore
import PushQueue
import Redis

/// Pushes jobs for their producers.
package enum JobPush {
    /// The effect of a push.
    package enum Outcome: Sendable, Equatable {
        /// All jobs are in the list.
        case pushed
        /// None is: the maximum number of jobs wait.
        case listIsTooLong(length: Int)
    }

    /// Pushes jobs at the tail of a queue's list, all or none, in one step.
    /// - Parameter maximumLength: the number of jobs in the list, with the sorted jobs, from which nothing is pushed.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`. Nothing was pushed, except perhaps if the
    ///   error is one that ``RedisError/mayHaveBeenExecuted``.
    package static func push(
        _ jobs: [ByteBuffer], _ client: RedisClient, _ keys: QueueKeys, maximumLength: Int? = nil
    ) async throws -> Outcome {
        let bytes = jobs.reduce(512) { $0 + $1.readableBytes + 16 }
        let (pushed, length) = try await QueueScript.enqueueJobs.run(
            client, [keys.jobs, keys.sorted], expecting: jobs.count + 2, bytes: bytes
        ) {
            command in
            command.append(keys.pushCommand)
            command.append(maximumLength.map(String.init) ?? "")
            for job in jobs { command.append(job) }
        } reading: {
            ($0.number(), $0.number())
        }
        return pushed == 0 ? .listIsTooLong(length: length) : .pushed
    }
}
