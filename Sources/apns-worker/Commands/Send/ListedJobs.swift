import COpenSSL
import NIOCore
import Operations
import PrintableText
import PushJob
import PushQueue
import Synchronization
import TokenLists

/// The jobs of a template and a list of tokens.
final class ListedJobs: CampaignJobs {
    let listDigest, jobDigest: String
    let count, repeated, refused: Int
    let canary: Int?
    let isScheduled: Bool
    let newest: NewestJob?
    private let template: JobTemplate
    private let format: JobFormat
    private let queue: String
    /// The number of tokens in a job, in the list, and in the canary.
    private let size, tokens, canaryTokens: Int
    private let canaryJobs: Int

    private struct Position {
        let list: ListedTokens
        /// The number of jobs before the next token.
        var next = 0
    }
    private let position: Mutex<Position>

    /// - Parameters:
    ///   - jobDigest: the digest of everything that determines the jobs, except the list.
    ///   - size: the number of tokens in a job.
    ///   - share: the tokens of the canary.
    /// - Throws: ``TokenListFailure``.
    init(
        _ template: JobTemplate, _ list: sending ListedTokens, jobDigest: String, size: Int, canary share: TokenShare?,
        _ format: JobFormat, queue: String
    ) throws {
        (self.template, self.jobDigest, self.size, self.format) = (template, jobDigest, size, format)
        (self.queue, isScheduled) = (queue, template.isScheduled)
        newest = NewestJob.ofProducer([template.example(now: Moment.now)], now: Moment.now).first
        (listDigest, tokens) = (list.tokens.digest, list.tokens.count)
        (repeated, refused) = (list.tokens.repeated, list.refused)
        canaryTokens = try share.map { try list.tokens.putFirst($0) } ?? 0
        canaryJobs = (canaryTokens + size - 1) / size
        canary = share.map { [canaryJobs] _ in canaryJobs }
        count = canaryJobs + (tokens - canaryTokens + size - 1) / size
        position = Mutex(Position(list: list))
    }

    func notifications(ofFirst jobs: Int) -> Int {
        min(jobs * size, canaryTokens) + min(max(0, jobs - canaryJobs) * size, tokens - canaryTokens)
    }

    func jobs(after first: Int, atMost count: Int, bytes: Int) throws -> [ByteBuffer] {
        try position.withLock { position in
            let list = position.list.tokens
            if position.next != first {
                // After a failover, Redis can have an earlier position.
                list.rewind()
                for _ in 0..<notifications(ofFirst: first) { _ = try list.next() }
                position.next = first
            }
            var (jobs, written) = ([ByteBuffer](), 0)
            while jobs.count < count, position.next < self.count, written < bytes {
                // The last job of the canary can have fewer tokens.
                let tokens =
                    notifications(ofFirst: position.next + 1) - notifications(ofFirst: position.next)
                let job = try make(position.next) { text in
                    for index in 0..<tokens {
                        guard let token = try list.next() else { break }
                        if index > 0 { text.writeInteger(UInt8(ascii: ",")) }
                        Self.write(token, to: &text)
                    }
                }
                jobs.append(job)
                written += job.readableBytes
                position.next += 1
            }
            return jobs
        }
    }

    private func make(_ number: Int, _ tokens: (inout ByteBuffer) throws -> Void) throws -> ByteBuffer {
        let now = Moment.now
        let job = try template.job(number, size: size * 67 + 4096, now: now, tokens: tokens)
        return Self.wrapped(job, format, queue: queue, now: now)
    }

    static func wrapped(_ job: ByteBuffer, _ format: JobFormat, queue: String, now: Int64) -> ByteBuffer {
        switch format {
        case .native: return job
        case .sidekiq(let classes):
            return SidekiqWrapper(queue: queue, className: classes.first ?? "PushJob").wrap(
                job, id: NewID.make(), at: now)
        }
    }

    private static let digits = Array("0123456789abcdef".utf8)

    /// Writes a token in hex, with quotes.
    private static func write(_ token: UnsafeRawBufferPointer, to text: inout ByteBuffer) {
        text.writeWithUnsafeMutableBytes(minimumWritableBytes: token.count * 2 + 2) { bytes in
            bytes[0] = UInt8(ascii: "\"")
            var place = 1
            digits.withUnsafeBufferPointer { digits in
                for byte in token {
                    bytes[place] = digits[Int(byte >> 4)]
                    bytes[place + 1] = digits[Int(byte & 0x0F)]
                    place += 2
                }
            }
            bytes[place] = UInt8(ascii: "\"")
            return place + 1
        }
    }

    /// Returns the SHA-256 of texts, in hex.
    static func digest(_ texts: [ByteBuffer]) -> String {
        var message = ByteBuffer()
        for text in texts {
            message.writeInteger(text.readableBytes)
            message.writeImmutableBuffer(text)
        }
        var digest = [UInt8](repeating: 0, count: 32)
        let status = message.withUnsafeReadableBytes {
            EVP_Digest($0.baseAddress, $0.count, &digest, nil, EVP_sha256(), nil)
        }
        precondition(status == 1, "OpenSSL has no SHA-256")
        return digest.hex
    }
}
