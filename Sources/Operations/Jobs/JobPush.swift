import NIOCore
import PushQueue
import Redis

/// Pushes jobs for their producers.
package enum JobPush {
    /// The effect of a push.
    package enum Outcome: Sendable, Equatable {
        /// All jobs are in the list.
        case pushed
        /// The same request had pushed them before, so nothing was pushed.
        case repeated
        /// Another request had the same name, so nothing was pushed.
        case otherRequest
        /// None is: the maximum number of jobs wait.
        case listIsTooLong(length: Int)
    }

    /// A request that must push its jobs once, also if it is repeated.
    package struct Request: Sendable {
        /// The name that its repetitions have.
        package let name: String
        /// The digest of its jobs.
        package let digest: String
        /// The time in seconds for which it is known.
        package let seconds: Int

        package init(name: String, digest: String, seconds: Int) {
            (self.name, self.digest, self.seconds) = (name, digest, seconds)
        }
    }

    /// Pushes jobs at the tail of a queue's list, all or none, in one step.
    /// - Parameter maximumLength: the number of jobs in the list, with the sorted jobs, from which nothing is pushed.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`. Nothing was pushed, except perhaps if the
    ///   error is one that ``RedisError/mayHaveBeenExecuted``.
    package static func push(
        _ jobs: [ByteBuffer], _ client: RedisClient, _ keys: QueueKeys, maximumLength: Int? = nil,
        request: Request? = nil
    ) async throws -> Outcome {
        let bytes = jobs.reduce(512) { $0 + $1.readableBytes + 16 }
        let (pushed, length) = try await QueueScript.enqueueJobs.run(
            client, [keys.jobs, keys.sorted] + (request.map { [keys.request($0.name)] } ?? []),
            expecting: jobs.count + 2, bytes: bytes
        ) {
            command in
            command.append(keys.pushCommand)
            command.append(maximumLength.map(String.init) ?? "")
            command.append(request?.digest ?? "")
            command.append(request?.seconds ?? 0)
            for job in jobs { command.append(job) }
        } reading: {
            ($0.number(), $0.number())
        }
        return switch pushed {
        case 0: .listIsTooLong(length: length)
        case -1: .repeated
        case -2: .otherRequest
        default: .pushed
        }
    }
}
