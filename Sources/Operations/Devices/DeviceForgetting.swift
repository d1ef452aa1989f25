import NIOCore
import PushQueue
import Redis

/// The removal of the values that a search found about some devices.
struct DeviceForgetting {
    struct Forgotten: Sendable {
        /// The number of records that were removed.
        var count = 0
        /// The number of values that were removed completely.
        var gone = 0
        /// The number of other devices' tokens that were lost. A job that names a device outside of its `tokens` is removed completely.
        var lost = 0
    }

    let search: DeviceSearch
    /// The operator's name.
    let by: String

    private var jobs: QueueJobs { search.jobs }
    private var finder: TokenFinder { search.finder }

    /// The maximum number of values of one call.
    private static let batch = 64

    /// Removes values, or replaces them by texts without the devices. Values that have left their place are not changed.
    /// - Parameter found: a page of values of one key, which are not claimed jobs.
    /// - Throws: `RedisError`, or `QueueFailure`.
    func forget(_ found: [DeviceSearch.Found]) async throws -> Forgotten {
        guard let first = found.first else { return Forgotten() }
        switch first.kind {
        case .reservedID:
            var command = RedisCommand("DEL")
            for one in found { command.append(one.key) }
            return Forgotten(count: try await jobs.client.call(command).root.number ?? 0)
        case .jobCommand:
            let ids = Set(found.map { Name(String($0.place.dropFirst("id:".count))) })
            return Forgotten(
                count: try await JobCommands.change(.uncancel, ofJobs: ids, by: by, jobs.client, jobs.keys))
        case .job where first.key == jobs.keys.jobs || first.key == jobs.keys.inbox:
            return try await replace("list", found, end: first.key == jobs.keys.inbox ? .right : search.tail) {
                DeviceText.job($0.value, .withoutDevices, finder)
            }
        case .job:
            return try await replace("sorted", found) { DeviceText.job($0.value, .withoutDevices, finder) }
        case .deadLetter:
            return try await replace("sorted", found, bytes: jobs.keys.deadBytes) {
                DeviceText.deadLetter($0.value, .withoutDevices, finder)
            }
        case .cancelledJob:
            return try await replace("sorted", found, bytes: jobs.keys.cancelledBytes) {
                DeviceText.deadLetter($0.value, .withoutDevices, finder)
            }
        case .result:
            var forgotten = Forgotten()
            for entry in found {
                let replaced = try await replace("results", [entry]) {
                    DeviceText.results($0.value, entry: $0.place, finder)
                }
                forgotten.count += replaced.count * entry.count
            }
            return forgotten
        case .parkedResult: return try await replace("entries", found) { _ in DeviceText() }
        case .claimedJob, .invalidToken, .registration, .throttle, .announcement: return Forgotten()
        }
    }

    private func replace(
        _ kind: String, _ found: [DeviceSearch.Found], end: QueueKeys.Head = .left, bytes: String? = nil,
        rest: (DeviceSearch.Found) -> DeviceText
    ) async throws -> Forgotten {
        var forgotten = Forgotten()
        for batch in found.batches(of: Self.batch) {
            let some = batch.map { ($0, rest($0)) }
            let replaced = try await QueueScript.replaceValues(
                kind, batch[0].key, bytes: bytes, end: end, most: max(1, jobs.limits.maximumResults),
                some.map { found, text in
                    (
                        found.place, kind == "results" || kind == "entries" ? ByteBuffer() : found.value,
                        text.rest ?? ByteBuffer(), text.results
                    )
                }, jobs.client)
            forgotten.count += replaced.count(where: \.self)
            if bytes == nil, kind == "list" || kind == "sorted" {
                for ((found, text), isReplaced) in zip(some, replaced) where isReplaced {
                    try await takeOut(found.value, text.rest)
                }
            }
            forgotten.gone += some.count { $0.1.rest == nil }
            // An estimate: it counts other tokens even if their value had left its place. This is rare.
            forgotten.lost += some.reduce(0) { $0 + $1.1.lost }
        }
        return forgotten
    }
}

extension DeviceForgetting {
    /// Subtracts the removed notifications of a waiting job from the total of its campaign. Otherwise the campaign would never finish.
    private func takeOut(_ job: ByteBuffer, _ rest: ByteBuffer?) async throws {
        let before = CampaignCounts.totals(of: [SortedMember(job).job])
        let after = CampaignCounts.totals(of: rest.map { [SortedMember($0).job] } ?? [])
        for (campaign, number) in before {
            let removed = number - (after[campaign] ?? 0)
            guard removed > 0 else { continue }
            try await CampaignCounts.takeOut(removed, of: String(buffer: campaign), jobs.client, jobs.keys)
        }
    }
}

extension QueueScript {
    /// - Returns: for each value, true if it was still in place.
    static func replaceValues(
        _ kind: String, _ key: String, bytes: String? = nil, end: QueueKeys.Head = .left, most: Int = 1,
        _ values: [(place: String, value: ByteBuffer, rest: ByteBuffer, results: Int)], _ client: RedisClient
    ) async throws -> [Bool] {
        try await forget.run(client, [key] + (bytes.map { [$0] } ?? [])) { command in
            command.append(kind)
            command.append(end.rawValue)
            command.append(most)
            for value in values {
                command.append(value.place)
                command.append(value.value)
                command.append(value.rest)
                command.append(value.results)
            }
        } reading: { reply in
            reply.text().utf8.map { $0 == UInt8(ascii: "1") }
        }
    }
}
