import NIOCore
import Redis

/// Fills the filter of a process with the invalid tokens and the throttled tokens, and keeps it current while lanes use it.
///
/// Additions are announced in a stream of bounded length. The keeper reads the whole set once, and then only the stream. It reads the set
/// again if the filter may lack tokens:
/// - The stream was cut.
/// - A shard has grown without an announcement, because another program uses `SADD`.
/// - The set has outgrown the filter, or has another number of shards.
///
/// It also reads the set again from time to time, because a shard does not grow if another program adds as many tokens as are removed. The
/// longer a reading takes, the rarer the readings are. While the filter may lack tokens, and while Redis does not answer, the filter is not
/// current, and lanes ask Redis.
///
/// Not thread-safe. Use it only on the clients' event loop.
public final class TokenFilterKeeper {
    /// The stream is read at this interval.
    public static let interval = TimeAmount.milliseconds(250)
    /// A filter stays current for this time after the stream was requested.
    static let validity = TimeAmount.milliseconds(950)
    /// The keeper stops after this time without a lookup.
    private static let patience = TimeAmount.seconds(10)
    /// The age of a filter at which the set is read again, in nanoseconds per token and per reply; at least ``minimumAge``. Removed tokens
    /// leave their bits in the filter, and a removal can hide an addition without an announcement.
    private static let (agePerToken, agePerReply) = (Int64(700_000), Int64(10_000_000))
    private static let maximumAge = TimeAmount.hours(1)
    /// The minimum pause between two readings of the set, as a multiple of the duration of a reading.
    private static let pause = 10
    /// The number of entries of the stream in a reply, fewer than the stream keeps.
    private static let entries = 500
    private static let page = "1000"
    /// Each shard is counted once in this number of readings of the stream.
    private static let round = 40

    private struct Filling {
        let filter: TokenFilter
        var followed: Followed
        let began: NIODeadline
        /// The time in nanoseconds after which the set is read again.
        var age: Int64 = 0
        /// The keys that are still to be read, from the last to the first, and the cursor in the current one.
        var keys: [String]
        var cursor = "0"
    }

    private struct Followed {
        /// The last entry that was read; `nil` if the stream had none.
        var last: String?
        /// The maximum number of members of each shard, if all additions were announced.
        var members: [Int]
        /// The number of tokens in the filter that were throttled when they were read or announced.
        var throttled = 0
        /// The next shard to count.
        var next = 0
        /// True if one of the shards that were counted last had more members than were announced.
        var isSuspect = false

        /// The number of tokens in the filter, at most.
        var count: Int { members.reduce(throttled, +) }

        /// The shards to count.
        var due: Range<Int> {
            next..<min(next + (members.count + TokenFilterKeeper.round - 1) / TokenFilterKeeper.round, members.count)
        }
    }

    private enum State {
        /// Nothing is known, or the set is too large.
        case empty
        case filling(Filling)
        case following(TokenFilter, Followed)
    }

    private let set: InvalidTokenSet
    private let slot: TokenFilterSlot
    private let eventLoop: any EventLoop
    private let maximumBytes: Int
    private let minimumAge: TimeAmount
    private var state = State.empty
    /// Increases with each state, so that an answer for an earlier state is dropped.
    private var generation = 0
    private var isAsking = false
    /// The time of the next question.
    private var due = NIODeadline.distantPast
    private var wantedAt: NIODeadline?
    /// The time when the set is read again.
    private var wornAt = NIODeadline.distantPast
    private var notBefore = NIODeadline.distantPast
    /// The number of times that the set was read.
    public private(set) var fillings = 0

    /// - Parameters:
    ///   - maximumBytes: the maximum size of the filter; 0 for none.
    ///   - minimumAge: the minimum time after which the set is read again.
    public init(
        set: InvalidTokenSet, slot: TokenFilterSlot, eventLoop: any EventLoop, maximumBytes: Int,
        minimumAge: TimeAmount = .seconds(15)
    ) {
        self.minimumAge = minimumAge
        self.set = set
        self.slot = slot
        self.eventLoop = eventLoop
        self.maximumBytes = maximumBytes
    }

    /// Works if lanes want the filter. Call it several times per second.
    public func run() {
        guard maximumBytes > 0, set.isReady else { return }
        let now = eventLoop.now
        if slot.takeWanted() { wantedAt = now }
        guard let wantedAt, now - wantedAt < Self.patience, !isAsking, now >= due else { return }
        switch state {
        case .empty: if now >= notBefore { begin() }
        case .filling(let filling): fill(filling)
        case .following(let filter, let followed):
            let isWorn = now >= wornAt || followed.count > filter.capacity
            if isWorn, now >= notBefore { begin() } else { follow(filter, followed) }
        }
    }

    /// Asks Redis, and drops the answer if the state has changed since.
    private func ask<Value>(_ question: (@escaping Completion<Value>) -> Void, _ apply: @escaping (Value) -> Void) {
        isAsking = true
        question { [weak self, generation] result in
            guard let self, generation == self.generation else { return }
            isAsking = false
            // After a failure, the next run tries again.
            if case .success(let value) = result { apply(value) }
        }
    }

    private func ask(_ command: RedisCommand, for key: String, _ apply: @escaping (RESPReply) -> Void) {
        ask(
            { completion in
                set.clients.send(command, for: key) { completion($0.mapError(QueueFailure.redis)) }
            }, apply)
    }

    /// Counts shards of the set, and then reads entries of the stream.
    /// - Parameter due: returns the shards to count, for the current number of shards; `nil` to begin again because the number has changed.
    private func read(
        _ range: RedisCommand, _ due: @escaping (_ shards: Int) -> Range<Int>?,
        _ apply: @escaping (_ members: [Int], RESPReply) -> Void
    ) {
        ask(
            { set.form(completion: $0) },
            { [self] form in
                guard let due = due(form.shards) else { return missed() }
                // Count before the stream is read, so that the stream already has the announcements of all counted tokens.
                ask(
                    { form.sizes(of: due, completion: $0) },
                    { [self] members in
                        ask(range, for: set.keys.invalidTokenChanges) { apply(members, $0) }
                    })
            })
    }

    private func enter(_ new: State) {
        generation += 1
        isAsking = false
        state = new
    }

    // MARK: The set

    /// Starts to read the set. An existing filter stays in use, but its time is not extended.
    private func begin() {
        let now = eventLoop.now
        generation += 1
        notBefore = now + .seconds(1)
        let latest = RedisCommand("XREVRANGE", set.keys.invalidTokenChanges, "+", "-", "COUNT", "1")
        read(
            latest, { 0..<$0 },
            { [self] members, reply in
                let followed = Followed(
                    last: reply.root.count > 0 ? reply.root[0][0].string : nil, members: members)
                let capacity = max(4096, followed.count + followed.count / 2)
                guard TokenFilter.size(capacity: capacity) <= maximumBytes else {
                    notBefore = now + .minutes(1)
                    return drop()
                }
                fillings += 1
                let keys =
                    [set.keys.throttledTokens]
                    + members.indices.flatMap { set.keys.shard($0, of: members.count).sets }
                enter(
                    .filling(
                        Filling(
                            filter: TokenFilter(capacity: capacity), followed: followed, began: now,
                            keys: keys.reversed())))
                run()
            })
    }

    private func fill(_ filling: Filling) {
        guard let key = filling.keys.last else { return follow(filling) }
        let isThrottled = key == set.keys.throttledTokens
        ask(RedisCommand(isThrottled ? "ZSCAN" : "SSCAN", key, filling.cursor, "COUNT", Self.page), for: key) {
            [self] reply in
            guard reply.root.count == 2, let next = reply.root[0].string else { return drop() }
            var filling = filling
            for (index, token) in reply.root[1].children.enumerated() {
                // A token of a sorted set is followed by its score.
                guard !isThrottled || index.isMultiple(of: 2), let token = token.bytes else { continue }
                filling.filter.insert(token)
                if isThrottled { filling.followed.throttled += 1 }
            }
            filling.age += TokenFilterKeeper.agePerReply
            filling.age += TokenFilterKeeper.agePerToken * Int64(reply.root[1].count)
            filling.cursor = next
            if next == "0" { filling.keys.removeLast() }
            enter(.filling(filling))
            // After a long reply, a pause: the lane and Redis have other work.
            if reply.root[1].count < 100 { run() } else { soon(in: .milliseconds(2)) }
        }
    }

    /// Uses the filled filter as soon as the stream has been read.
    private func follow(_ filling: Filling) {
        let now = eventLoop.now
        let time = (now - filling.began).nanoseconds
        wornAt = now + min(max(.nanoseconds(filling.age), minimumAge), Self.maximumAge)
        notBefore = now + .nanoseconds(time * Int64(Self.pause))
        enter(.following(filling.filter, filling.followed))
        slot.replace(with: filling.filter)
        run()
    }

    private func soon(in time: TimeAmount) {
        due = eventLoop.now + time
        eventLoop.assumeIsolated().scheduleTask(in: time) { [weak self] in self?.run() }
    }

    private func drop() {
        enter(.empty)
        slot.replace(with: nil)
    }

    // MARK: The stream

    private func follow(_ filter: TokenFilter, _ followed: Followed) {
        let sent = eventLoop.now
        let range = RedisCommand(
            "XRANGE", set.keys.invalidTokenChanges, followed.last ?? "-", "+", "COUNT", "\(Self.entries)")
        read(
            range, { $0 == followed.members.count ? followed.due : nil },
            { [self] members, reply in
                var followed = followed
                var rest = Array(reply.root.children)[...]
                if let last = followed.last {
                    // The last entry is read again: if it is missing, the stream was cut after it.
                    guard let first = rest.popFirst(), first.count == 2, first[0].string == last else {
                        return missed()
                    }
                } else if rest.count >= Self.entries {
                    return missed()
                }
                for entry in rest { apply(entry, to: filter, &followed) }
                let isComplete = rest.count < Self.entries - 1
                let isSuspect = isComplete && zip(followed.due, members).contains { $1 > followed.members[$0] }
                // Tokens are announced just after they are added. If a token is unannounced at two counts, another program added it.
                if isSuspect, followed.isSuspect { return missed() }
                followed.isSuspect = isSuspect
                if !isSuspect {
                    // An announced token may have been in the set already, and shards announce no removals. So the numbers are corrected.
                    if rest.isEmpty {
                        for (shard, members) in zip(followed.due, members) { followed.members[shard] = members }
                    }
                    followed.next = followed.due.upperBound == followed.members.count ? 0 : followed.due.upperBound
                }
                enter(.following(filter, followed))
                guard isComplete else { return run() }
                if !isSuspect { filter.extend(until: sent + Self.validity) }
                soon(in: Self.interval)
            })
    }

    /// Applies an entry. `added` and `throttled` have tokens with commas between them. `removed` has the number of tokens that an undivided
    /// set has lost.
    private func apply(_ entry: RESPReply.Element, to filter: TokenFilter, _ followed: inout Followed) {
        guard entry.count == 2, let id = entry[0].string else { return }
        followed.last = id
        guard entry[1].count == 2, let name = entry[1][0].string, let value = entry[1][1].bytes else { return }
        if name == "removed", followed.members.count == 1 {
            followed.members[0] -= entry[1][1].string.flatMap(Int.init) ?? 0
        }
        guard name == "added" || name == "throttled" else { return }
        for token in value.readableBytesView.split(separator: UInt8(ascii: ",")) {
            guard let token = value.getSlice(at: token.startIndex, length: token.count) else { continue }
            filter.insert(token)
            if name == "added" {
                followed.members[TokenDivision.shard(of: token, among: followed.members.count)] += 1
            } else {
                followed.throttled += 1
            }
        }
    }

    /// Reads the set again, because the filter may lack tokens.
    private func missed() {
        enter(.empty)
        if eventLoop.now >= notBefore { begin() }
    }
}
