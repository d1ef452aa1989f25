import Glibc
import NIOCore
import PushJob
import Redis

/// A job's claim to be the newest of its key, and the question whether it still is (docs/jobs.md, "Only the newest").
public struct NewestJob: Sendable {
    /// The shortest time for which the key names the newest job, in milliseconds: an older one may wait for that long.
    public static let shortestLife: Int64 = 86_400_000

    public let key: ByteBuffer
    /// The value of the key while the job is the newest: its id or, for the jobs of a list of tokens, the name of their campaign.
    public let id: ByteBuffer
    public let campaign: ByteBuffer?
    /// The milliseconds for which the key names it from now on.
    public let life: Int64
    /// True if a worker makes it the newest when it is due, because it has a `send_at`; false if its producer does.
    public let isAnnounced: Bool

    /// - Parameter now: milliseconds since 1970.
    /// - Returns: `nil` for a job without `replaces`.
    public init?(_ job: Job, now: Int64) {
        guard let key = job.replaces, let id = job.id else { return nil }
        self.key = job.text(key)
        self.id = job.text(id)
        campaign = job.campaignName
        isAnnounced = job.sendAt != nil
        // An expiration can be in the year 9999.
        let end = job.expirationSecond(firstSeen: job.envelope.enqueued ?? now).map { $0 * 1000 - now } ?? 0
        life = min(max(Self.shortestLife, end), 400 * 86_400_000)
    }

    /// Returns the command that reads what the keys of jobs hold.
    public static func reading(_ jobs: [NewestJob], _ keys: QueueKeys) -> RedisCommand {
        var command = RedisCommand("MGET", expecting: jobs.count + 1, bytes: jobs.count * 48)
        for job in jobs { command.append(keys.newest(job.key)) }
        return command
    }

    /// Returns the id of the job, or the campaign, that has replaced it; `nil` if none has.
    /// - Parameter newest: what the key holds; `nil` for nothing.
    public func replacement(by newest: ByteBuffer?) -> ByteBuffer? {
        newest.flatMap { $0 == id || $0 == campaign ? nil : $0 }
    }

    /// Returns the jobs among these that their producer makes the newest, in their order: of two with one key the last counts.
    public static func ofProducer(_ jobs: [ByteBuffer], now: Int64) -> [NewestJob] {
        jobs.compactMap { body in
            // Few jobs have it, and each is read again. One that was not checked may have either format.
            guard body.withUnsafeReadableBytes(hasMember) else { return nil }
            for format in [JobFormat.native, .sidekiq(classes: [])] {
                do throws(JobError) {
                    return NewestJob(try JobDecoder.decode(body, as: format), now: now)
                } catch {
                    // One that can't be read ends as a dead letter, and replaces nothing.
                }
            }
            return nil
        }.filter { !$0.isAnnounced }
    }

    /// True if a text may have the member. With a backslash, a name may be written otherwise.
    private static func hasMember(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard let start = bytes.baseAddress, memchr(start, 0x5C, bytes.count) == nil else { return !bytes.isEmpty }
        let name = Array("replaces\"".utf8)
        var rest = bytes
        while let base = rest.baseAddress, let quote = memchr(base, 0x22, rest.count) {
            rest = UnsafeRawBufferPointer(rebasing: rest[(UnsafeRawPointer(quote) - base + 1)...])
            if rest.starts(with: name) { return true }
        }
        return false
    }
}

extension QueueConnection {
    /// Reads what the keys of jobs with `replaces` hold, after those with `send_at` became the newest.
    /// - Parameter completion: gets the value for each job; `nil` for a key that does not exist.
    public func newest(of jobs: [NewestJob], completion: @escaping Completion<[ByteBuffer?]>) {
        let due = jobs.filter(\.isAnnounced)
        guard !due.isEmpty else { return readNewest(of: jobs, completion: completion) }
        scripts.run(
            .announceNewest, [keys.claimed(worker)],
            then: due.flatMap { [keys.announced($0.id), keys.newest($0.key)] },
            expecting: due.count * 4 + 8,
            arguments: { command in
                for job in due {
                    command.append(job.id)
                    command.append(Int(job.life))
                }
            },
            completion: { [self] (result: Result<Int, QueueFailure>) in
                switch result {
                case .success: readNewest(of: jobs, completion: completion)
                case .failure(let failure): completion(.failure(failure))
                }
            }, reading: { $0.number() })
    }

    private func readNewest(of jobs: [NewestJob], completion: @escaping Completion<[ByteBuffer?]>) {
        client.send(NewestJob.reading(jobs, keys)) { result in
            completion(
                result.mapError(QueueFailure.redis).flatMap { reply in
                    let values = reply.root.children.map(\.bytes)
                    return values.count == jobs.count
                        ? .success(values) : .failure(.unexpectedReply("MGET: \(values.count) of \(jobs.count)"))
                })
        }
    }
}
