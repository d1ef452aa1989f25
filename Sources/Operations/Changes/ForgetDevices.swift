import COpenSSL
import NIOCore
import PrintableText
import PushQueue
import Redis

/// Removes everything that Redis has about some devices.
///
/// Jobs of several tokens and entries of several results are rewritten without the devices. Records that are added after the count are
/// removed, too, because the operator confirms devices and not records. A job that a worker has claimed can't be changed, so the change
/// waits for its end.
package struct ForgetDevices: Change {
    package let action = AuditEntry.Action.forgetDevices
    /// Lower-case hex, without repetitions.
    private let tokens: [String]
    /// The time to wait for claimed jobs, in seconds.
    private let patience: Int
    private let finder: TokenFinder

    /// The minimum and the maximum number of searches. They end once a search finds nothing. Two are needed, because a search can miss a
    /// job that moves.
    private static let searches = 2...6
    private static let defaultPatience = 30

    package static let fields = [Field("tokens", isRequired: true), Field("wait", .number)]

    /// - Parameter token: returns the hex of a device token; `nil` if it is not one.
    package init(_ fields: Fields, token: (String) -> String?) throws(FieldMistake) {
        try fields.check(Self.fields)
        if let text = TokenText.divided(fields.raw("tokens")).first(where: TokenText.isShortened) {
            throw FieldMistake { _ in Self.refusal(of: text) }
        }
        tokens = Set(try fields.wholeTokens(token)).sorted()
        patience = try fields.number("wait", 0...86_400) ?? Self.defaultPatience
        finder = TokenFinder(tokens)
    }

    /// Returns the message that refuses the beginning of a token.
    package static func refusal(of beginning: String) -> String {
        "\(beginning.printable) is the beginning of a token; name the whole token, because other tokens may begin alike"
    }

    /// The devices for the audit log, which must not contain tokens: the first half of a SHA-256. Its input is the tokens in lower-case
    /// hex, sorted and joined by line feeds.
    private var subject: String {
        var digest = [UInt8](repeating: 0, count: Int(SHA256_DIGEST_LENGTH))
        let text = Array(tokens.joined(separator: "\n").utf8)
        _ = text.withUnsafeBytes { SHA256($0.baseAddress, $0.count, &digest) }
        let hash = digest.prefix(16).hex
        return "\(Words.count(tokens.count, "device")), sha256 \(hash)"
    }

    private func shared(_ desk: Desk) throws -> SharedDeviceRecords {
        SharedDeviceRecords(
            finder: finder, tokens: tokens.map { ByteBuffer(string: $0) }, fleet: desk.fleet,
            invalidTokens: try desk.invalid())
    }

    // MARK: Counting

    package func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan {
        var (plan, part) = (ChangePlan(subject), ChangePart())
        plan.verb = "removed"
        plan.rest = "some records remain"
        var (counts, lost, large) = (try await shared(desk).count(), 0, 0)
        for keys in desk.queues {
            var search = DeviceSearch(finder, try await desk.fleet.jobs(of: keys))
            try await search.all { page in
                for found in page {
                    counts[found.kind, default: 0] += found.count
                    switch found.kind {
                    case .job: lost += DeviceText.job(found.value, .withoutDevices, finder).lost
                    case .deadLetter, .cancelledJob:
                        lost += DeviceText.deadLetter(found.value, .withoutDevices, finder).lost
                    default: break
                    }
                }
                progress(counts.values.reduce(0, +))
            }
            large += search.large
        }
        part.groups = Dictionary(uniqueKeysWithValues: counts.map { ($0.key.rawValue, $0.value) })
        part.count = counts.values.reduce(0, +)
        part.claimed = counts[.claimedJob] ?? 0
        part.sentence = Self.sentence(counts)
        plan.parts = [part]
        let devices = Words.count(tokens.count, "device")
        if plan.isEmpty { plan.notes.append("Redis has nothing about \(tokens.count == 1 ? "this device" : devices)") }
        if part.claimed > 0 {
            plan.notes.append(
                "\(Words.count(part.claimed, "job")) \(part.claimed == 1 ? "is" : "are") claimed by workers, and "
                    + "\(part.claimed == 1 ? "its end is" : "their ends are") waited for")
        }
        plan.notes += Self.notes(lost: lost, large: large)
        plan.command = "Forget \(devices)"
        plan.question =
            "Forget \(devices), and remove \(part.sentence) of \(desk.queues.inWords) and of the keys that all queues share? "
            + "This cannot be undone."
        return plan
    }

    private static func sentence(_ counts: [DeviceRecordKind: Int]) -> String {
        let known = DeviceRecordKind.allCases.compactMap { kind in
            counts[kind].flatMap { $0 > 0 ? Words.count($0, kind.noun) : nil }
        }
        return known.isEmpty ? "nothing" : known.joined(separator: ", ")
    }

    private static func notes(lost: Int, large: Int) -> [String] {
        [
            lost > 0
                ? "jobs name a device in another member than their tokens: they are removed with all of their tokens, "
                    + "\(Words.number(lost)) of other devices" : nil,
            large > 0 ? "\(Words.count(large, "job")) beyond 16 MiB were not searched" : nil,
        ].compactMap(\.self)
    }

    // MARK: Removing

    package func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult {
        var part = ChangePart()
        var (counts, lost, left) = ([DeviceRecordKind: Int](), 0, Left())
        let end = ContinuousClock.now + .seconds(patience)
        func removed(_ kind: DeviceRecordKind, _ count: Int) {
            counts[kind, default: 0] += count
            part.count += count
            control.progress(part.count)
        }
        do {
            for number in 1...Self.searches.upperBound where !control.isStopped() {
                left = Left()
                for keys in desk.queues where !control.isStopped() {
                    let jobs = try await desk.fleet.jobs(of: keys)
                    try await forget(jobs, desk, control, until: end, &left) { kind, forgotten in
                        removed(kind, forgotten.count)
                        lost += forgotten.lost
                    }
                }
                guard !control.isStopped() else { break }
                for (kind, count) in try await shared(desk).forget() {
                    removed(kind, count)
                    left.found += count
                }
                if left.claimed > 0 || left.found == 0 && number >= Self.searches.lowerBound { break }
            }
        } catch let error as any RedisFailure {
            if part.count == 0 { throw error }
            part.error = "\(error)"
        }
        part.groups = Dictionary(uniqueKeysWithValues: counts.map { ($0.key.rawValue, $0.value) })
        part.claimed = left.claimed
        part.notes = Self.notes(lost: lost, large: left.large)
        if part.error == nil, !control.isStopped() { part.error = left.sentence }
        part.sentence = "removed " + (part.error == nil ? "" : "at least ") + Self.sentence(counts)
        return ChangeResult([part], hasNoEffect: part.count == 0)
    }

    /// The records that the last search has found.
    private struct Left {
        var found = 0
        var claimed = 0
        var large = 0

        /// The reason why the devices are not forgotten yet; `nil` if they are.
        var sentence: String? {
            if claimed > 0 {
                return "\(Words.count(claimed, "job")) about \(claimed == 1 ? "a device is" : "the devices are") still "
                    + "claimed by workers, which may write new records about \(claimed == 1 ? "it" : "them")"
            }
            return found > 0 ? "records about the devices are still being added: stop their producer" : nil
        }
    }

    /// Removes the records of one queue. First it removes the waiting jobs, so that workers claim no more. Then it waits until the claimed
    /// jobs have ended, and removes their dead letters and results.
    private func forget(
        _ jobs: QueueJobs, _ desk: Desk, _ control: ChangeControl, until end: ContinuousClock.Instant,
        _ left: inout Left, removed: (DeviceRecordKind, DeviceForgetting.Forgotten) -> Void
    ) async throws {
        let forgetting = DeviceForgetting(search: DeviceSearch(finder, jobs), by: desk.person)
        var search = forgetting.search
        var (found, claimed) = (0, 0)
        func forget(_ page: [DeviceSearch.Found]) async throws -> Int {
            guard let kind = page.first?.kind else { return 0 }
            found += page.count
            let forgotten = try await forgetting.forget(page)
            removed(kind, forgotten)
            return forgotten.gone
        }
        repeat {
            (search, claimed) = (forgetting.search, 0)
            try await search.waitingJobs(forget)
            try await search.claimedJobs {
                claimed += $0.count
                return 0
            }
            guard claimed > 0, ContinuousClock.now < end, !control.isStopped() else { break }
            try await Task.sleep(for: .milliseconds(200))
        } while true
        try await search.deadLetters(forget)
        let names = try await search.variableKeys()
        try await search.results(names, forget)
        try await search.ids(names, forget)
        left.found += found
        left.claimed += claimed
        left.large += search.large
    }
}
