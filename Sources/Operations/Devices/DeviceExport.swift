import NIOCore
import PrintableText
import PushJob
import PushQueue
import Redis

/// Everything that Redis has about one device, as JSON. It contains no token of another device: a job for several devices has only the
/// token of this one.
package struct DeviceExport: Sendable {
    private let token: String
    private let finder: TokenFinder
    private var record = DeviceRecord()
    private var jobs: [JobRow] = []
    private var deadLetters: [DeadLetterRow] = []
    private var results: [ResultLine] = []
    private var parkedResults: [ResultLine] = []
    private var ids: [ByteBuffer] = []
    /// The number of jobs larger than 16 MiB, which are not searched.
    package private(set) var large = 0

    /// - Parameter token: lower-case hex.
    package init(_ token: String) {
        self.token = token
        finder = TokenFinder([token])
    }

    /// - Throws: `RedisError`, or `QueueFailure`.
    package mutating func read(_ fleet: Fleet) async throws { record = try await DeviceRecord.read(token, fleet) }

    /// - Throws: `RedisError`, or `QueueFailure`.
    package mutating func read(_ queue: QueueJobs) async throws {
        var search = DeviceSearch(finder, queue)
        var found: [DeviceSearch.Found] = []
        try await search.all { found += $0 }
        large += search.large
        let now = try await queue.client.time()
        for one in found { try add(one, queue, now: now) }
    }

    private mutating func add(_ found: DeviceSearch.Found, _ queue: QueueJobs, now: Int64) throws {
        let name = queue.keys.queue
        switch found.kind {
        case .job, .claimedJob:
            let body = DeviceText.job(found.value, .onlyDevices, finder).rest ?? found.value
            let job =
                found.key == queue.keys.sorted
                ? StoredJob(sorted: body, size: body.readableBytes, format: queue.format)
                : StoredJob(
                    body, size: body.readableBytes,
                    due: queue.keys.postponed.contains(found.key) ? Self.time(found.place) : nil,
                    hasFailed: found.key == queue.keys.failed, lane: found.kind == .claimedJob ? found.place : nil,
                    format: queue.format)
            jobs.append(JobRow(queue: name, job: job, now: now))
        case .deadLetter, .cancelledJob:
            let member = DeviceText.deadLetter(found.value, .onlyDevices, finder).rest ?? found.value
            let line = DeadLetter(member: found.value)?.header ?? found.value
            let letter =
                DeadLetter(member: member) ?? DeadLetter(header: member, original: ByteBuffer())
            let listed = DeadLetters.Listed(key: JobKey.of(line), at: Self.time(found.place), letter: letter)
            deadLetters.append(DeadLetterRow(listed, queue: name))
        case .result, .parkedResult:
            let lines = found.results.map { ResultLine(queue: name, result: $0) }
            if found.kind == .result { results += lines } else { parkedResults += lines }
        case .reservedID, .jobCommand: ids.append(found.value)
        case .invalidToken, .registration, .throttle, .announcement: break
        }
    }

    private static func time(_ score: String) -> Int64 { Double(score).map { Int64(bounding: $0) } ?? 0 }
}

extension DeviceExport: Shown {
    package static let columns = Columns<Self>(
        "DeviceExport", "Everything about a device.", commands: ["device export"], isSorted: false,
        [.init("token", "Device token.", as: .key, \.token)] + DeviceRecord.columns(\.record) + [
            .init("jobs", "Unfinished jobs as they are stored, but without other devices.", \.jobs),
            .init("dead_letters", "Dead letters and cancelled jobs, without other devices.", \.deadLetters),
            .init("results", "Results.", \.results), .init("parked_results", "Parked results.", \.parkedResults),
            .init("ids", "IDs of jobs that contain the token.", \.ids),
        ])
}
