import Glibc
import NIOCore
import PushJob
import Redis

/// The key of a job with `replaces`, and the value that the key has in Redis while the job is the newest (docs/jobs.md, "Only the newest").
public struct NewestJob: Sendable {
    /// The minimum time in milliseconds for which Redis keeps the key. An older job of the key may wait that long.
    public static let shortestLife: Int64 = 86_400_000

    public let key: ByteBuffer
    /// The value of the key while the job is the newest: its id or, for the jobs of a list of tokens, the name of their campaign.
    public let id: ByteBuffer
    public let campaign: ByteBuffer?
    /// The life of the key from now on, in milliseconds.
    public let life: Int64
    /// True if a worker makes the job the newest when it is due, because it has a `send_at`. Otherwise the producer makes it the newest.
    public let isAnnounced: Bool

    /// - Parameter now: milliseconds since 1970.
    /// - Returns: `nil` for a job without `replaces`.
    public init?(_ job: Job, now: Int64) {
        guard let key = job.replaces, let id = job.id else { return nil }
        self.key = job.text(key)
        self.id = job.text(id)
        campaign = job.campaignName
        isAnnounced = job.sendAt != nil
        // An expiration can be in the year 9999, so the life is limited.
        let end = job.expirationSecond(firstSeen: job.envelope.enqueued ?? now).map { $0 * 1000 - now } ?? 0
        life = min(max(Self.shortestLife, end), 400 * 86_400_000)
    }

    /// Returns the command that reads the jobs' keys.
    public static func reading(_ jobs: [NewestJob], _ keys: QueueKeys) -> RedisCommand {
        var command = RedisCommand("MGET", expecting: jobs.count + 1, bytes: jobs.count * 48)
        for job in jobs { command.append(keys.newest(job.key)) }
        return command
    }

    /// Returns the id of the job, or the campaign, that has replaced it; `nil` if nothing has.
    /// - Parameter newest: the value of the key; `nil` if it does not exist.
    public func replacement(by newest: ByteBuffer?) -> ByteBuffer? {
        newest.flatMap { $0 == id || $0 == campaign ? nil : $0 }
    }

    /// Returns the jobs with `replaces` and without `send_at`, in their order. The producer makes them the newest of their keys. Of two
    /// jobs with the same key, the last one counts.
    public static func ofProducer(_ jobs: [ByteBuffer], now: Int64) -> [NewestJob] {
        jobs.compactMap { body in
            // Few jobs have `replaces`, so only these are decoded again. A job that was not checked may have either format.
            guard body.withUnsafeReadableBytes(hasMember) else { return nil }
            for format in [JobFormat.native, .sidekiq(classes: [])] {
                do throws(JobError) {
                    return NewestJob(try JobDecoder.decode(body, as: format), now: now)
                } catch {
                    // A job that can't be read becomes a dead letter, and replaces nothing.
                }
            }
            return nil
        }.filter { !$0.isAnnounced }
    }

    /// True if a job may have the member `replaces`. With a backslash, the name may be escaped.
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
