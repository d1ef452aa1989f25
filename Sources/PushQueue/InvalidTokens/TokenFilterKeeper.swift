import NIOCore
import Redis

/// Fills the filter of a process with the set of invalid tokens, and keeps it current while lanes use it.
///
/// The scripts that change the set announce it in a stream of bounded length. The keeper reads the whole set once, then
/// only the stream. It reads the set again if it has missed something: the stream was cut, the set has grown without an
/// announcement because another program uses `SADD`, it has outgrown the filter, or an hour has passed. Until then, and whenever Redis does not
/// answer, the filter is not current, and lanes ask Redis.
///
/// Not thread-safe. Use it only on the client's event loop.
package final class TokenFilterKeeper {
    /// The interval of reading the stream.
    package static let interval = TimeAmount.milliseconds(250)
    /// The time for which a filter is current after the stream was asked for.
    static let validity = TimeAmount.milliseconds(950)
    /// The time without a look-up after which it stops.
    private static let patience = TimeAmount.seconds(10)
    /// The time after which the set is read again, because removed tokens leave their bits, and because an addition
    /// without an announcement can hide behind a removal without one.
    private static let maximumAge = TimeAmount.hours(1)
    /// The minimum time between two readings of the set, as a multiple of the time of one.
    private static let pause = 10
    /// The number of entries of the stream that are read at a time, fewer than it has.
    private static let entries = 500
    private static let page = "1000"

    /// A filter that is being filled.
    private struct Filling {
        let filter: TokenFilter
        let followed: Followed
        let began: NIODeadline
        var cursor = "0"
    }

    /// The position in the stream.
    private struct Followed {
        /// The last entry that was read; `nil` if the stream had none.
        var last: String?
        /// The number of members that the set has if all changes were announced.
        var members: Int
    }

    private enum State {
        /// Nothing is known, or the set is too large.
        case empty
        case filling(Filling)
        case following(TokenFilter, Followed)
    }

    private let client: any RedisSender
    private let keys: SharedKeys
    private let slot: TokenFilterSlot
    private let eventLoop: any EventLoop
    private let maximumBytes: Int
    private var state = State.empty
    /// Counts states, so that an answer to a question of an earlier one is not applied.
    private var generation = 0
    private var isAsking = false
    /// The time of the next question.
    private var due = NIODeadline.distantPast
    private var wantedAt: NIODeadline?
    private var filledAt = NIODeadline.distantPast
    private var notBefore = NIODeadline.distantPast
    /// The number of times that the set was read.
    package private(set) var fillings = 0

    /// - Parameters:
    ///   - client: a client for the slot of the shared keys.
    ///   - maximumBytes: the maximum size of the filter; 0 for none.
    package init(
        client: any RedisSender, keys: SharedKeys, slot: TokenFilterSlot, eventLoop: any EventLoop, maximumBytes: Int
    ) {
        self.client = client
        self.keys = keys
        self.slot = slot
        self.eventLoop = eventLoop
        self.maximumBytes = maximumBytes
    }

    /// Works if lanes want the filter. Call it several times per second.
    package func run() {
        guard maximumBytes > 0, client.isReady else { return }
        let now = eventLoop.now
        if slot.takeWanted() { wantedAt = now }
        guard let wantedAt, now - wantedAt < Self.patience, !isAsking, now >= due else { return }
        switch state {
        case .empty: if now >= notBefore { begin() }
        case .filling(let filling): fill(filling)
        case .following(let filter, let followed):
            let isWorn = now - filledAt > Self.maximumAge || followed.members > filter.capacity
            if isWorn, now >= notBefore { begin() } else { follow(filter, followed) }
        }
    }

    /// Asks Redis, and drops the answer if the state has changed since.
    private func ask(_ command: RedisCommand, _ apply: @escaping (RESPReply) -> Void) {
        isAsking = true
        client.send(command) { [weak self, generation] result in
            guard let self, generation == self.generation else { return }
            isAsking = false
            // After a failure, the next run tries again.
            if case .success(let reply) = result { apply(reply) }
        }
    }

    /// Counts the members of the set, and then asks Redis something else.
    private func countAndAsk(_ command: RedisCommand, _ apply: @escaping (_ members: Int, RESPReply) -> Void) {
        var members: Int?
        client.send(RedisCommand("SCARD", keys.invalidTokens)) { result in
            if case .success(let reply) = result { members = reply.root.number }
        }
        ask(command) { reply in if let members { apply(members, reply) } }
    }

    private func enter(_ new: State) {
        generation += 1
        isAsking = false
        state = new
    }

    // MARK: The set

    /// Starts to read the set. A filter that there is stays in use, but is not extended.
    private func begin() {
        let now = eventLoop.now
        generation += 1
        notBefore = now + .seconds(1)
        // Counted before the position is read: an addition between them costs another reading of the set.
        let latest = RedisCommand("XREVRANGE", keys.invalidTokenChanges, "+", "-", "COUNT", "1")
        countAndAsk(latest) { [self] members, reply in
            let last = reply.root.count > 0 ? reply.root[0][0].string : nil
            let capacity = max(4096, members + members / 2)
            guard TokenFilter.size(capacity: capacity) <= maximumBytes else {
                notBefore = now + .minutes(1)
                return drop()
            }
            fillings += 1
            enter(
                .filling(
                    Filling(
                        filter: TokenFilter(capacity: capacity), followed: Followed(last: last, members: members),
                        began: now)))
            run()
        }
    }

    private func fill(_ filling: Filling) {
        ask(RedisCommand("SSCAN", keys.invalidTokens, filling.cursor, "COUNT", Self.page)) { [self] reply in
            guard reply.root.count == 2, let next = reply.root[0].string else { return drop() }
            for token in reply.root[1].children { if let token = token.bytes { filling.filter.insert(token) } }
            guard next == "0" else {
                var filling = filling
                filling.cursor = next
                enter(.filling(filling))
                // Not at once: the lane has other work, and so has Redis.
                return soon(in: .milliseconds(2))
            }
            let now = eventLoop.now
            filledAt = now
            notBefore = now + .nanoseconds((now - filling.began).nanoseconds * Int64(Self.pause))
            enter(.following(filling.filter, filling.followed))
            slot.replace(with: filling.filter)
            run()
        }
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
        // Counted before the stream is read, so that no announcement is missing of what is counted.
        let range = RedisCommand(
            "XRANGE", keys.invalidTokenChanges, followed.last ?? "-", "+", "COUNT", "\(Self.entries)")
        countAndAsk(range) { [self] members, reply in
            var followed = followed
            var rest = Array(reply.root.children)[...]
            if let last = followed.last {
                // It is read again, which shows that the stream has not been cut after it.
                guard let first = rest.popFirst(), first.count == 2, first[0].string == last else { return missed() }
            } else if rest.count >= Self.entries {
                return missed()
            }
            for entry in rest { apply(entry, to: filter, &followed) }
            let isComplete = rest.count < Self.entries - 1
            if isComplete, members > followed.members { return missed() }
            // It may have shrunk without an announcement, which does no harm.
            if rest.isEmpty { followed.members = members }
            enter(.following(filter, followed))
            guard isComplete else { return run() }
            filter.extend(until: sent + Self.validity)
            soon(in: Self.interval)
        }
    }

    /// Applies an entry: `added` has tokens with commas between them, `removed` a number.
    private func apply(_ entry: RESPReply.Element, to filter: TokenFilter, _ followed: inout Followed) {
        guard entry.count == 2, let id = entry[0].string else { return }
        followed.last = id
        guard entry[1].count == 2, let name = entry[1][0].string, let value = entry[1][1].bytes else { return }
        if name == "removed" { followed.members -= entry[1][1].string.flatMap(Int.init) ?? 0 }
        guard name == "added" else { return }
        for token in value.readableBytesView.split(separator: UInt8(ascii: ",")) {
            if let token = value.getSlice(at: token.startIndex, length: token.count) { filter.insert(token) }
            followed.members += 1
        }
    }

    /// Reads the set again, because the filter may lack tokens.
    private func missed() {
        enter(.empty)
        if eventLoop.now >= notBefore { begin() }
    }
}
