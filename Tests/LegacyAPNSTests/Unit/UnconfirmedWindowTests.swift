import NIOCore
import TestSupport
import Testing

@testable import APNS
@testable import LegacyAPNS

@Suite("The window of unconfirmed notifications")
struct UnconfirmedWindowTests {
    private static let start = NIODeadline.uptimeNanoseconds(1_000_000_000)

    /// Returns a window with tags 11, 12, … and identifiers 1, 2, …
    private func window(_ count: UInt64) -> UnconfirmedWindow {
        var window = UnconfirmedWindow()
        for tag in 0..<count { _ = window.send(tag: 11 + tag, size: 100) }
        return window
    }

    private func packet(_ status: GatewayStatus, _ identifier: UInt32) -> GatewayPacket {
        GatewayPacket(status: status, identifier: identifier)
    }

    @Test("remembers the token of one that was confirmed, for a packet that names it later")
    func lateToken() throws {
        var window = UnconfirmedWindow()
        let tokens = try (0..<3).map { try DeviceToken(ByteBuffer(string: String(repeating: "\($0)a", count: 32))) }
        for (number, token) in tokens.enumerated() { _ = window.send(tag: UInt64(number), size: 100, token: token) }
        window.left(position: 300)
        window.arrived(upTo: 300, now: Self.start)
        #expect(window.confirm(arrivedBefore: Self.start) == [0, 1, 2])
        let findings = window.answered(packet(.invalidToken, 2))
        #expect(findings.lost == 2 && findings.lateToken == tokens[1].hex)
        var old = RecentTokens()
        old.remember(tokens[0], of: 1)
        let capacity = UInt32(RecentTokens.capacity)
        #expect(old.token(of: 1, next: 1 + capacity) == tokens[0].hex && old.token(of: 1, next: 2 + capacity) == nil)
        #expect(old.token(of: 2, next: 3) == nil)
    }

    @Test("numbers notifications from 1 and keeps count of their bytes")
    func numbers() {
        var window = UnconfirmedWindow()
        let identifiers = [window.send(tag: 5, size: 10), window.send(tag: 6, size: 20), window.send(tag: 7, size: 30)]
        #expect(identifiers == [1, 2, 3])
        #expect((window.count, window.bytes, window.next) == (3, 60, 4))
    }

    @Test(
        "an error packet confirms those before the named one and returns those after it, in order",
        arguments: [(1, .invalidToken), (3, .invalidToken), (5, .processingError)] as [(UInt64, GatewayStatus)])
    func named(number: UInt64, status: GatewayStatus) {
        var window = window(5)
        let findings = window.answered(packet(status, UInt32(number)))
        #expect(findings.confirmed == Array(11..<10 + number))
        #expect(findings.named?.tag == 10 + number)
        #expect(findings.named?.status == status)
        #expect(findings.discarded == Array(11 + number..<16))
        #expect(findings.uncertain.isEmpty && findings.lost == 0)
        #expect((window.count, window.bytes) == (0, 0))
    }

    @Test("status 10 names the last accepted notification", arguments: [GatewayStatus.shutdown, .noError])
    func shutdown(status: GatewayStatus) {
        var window = window(5)
        let findings = window.answered(packet(status, 3))
        #expect(findings.confirmed == [11, 12, 13])
        #expect(findings.named == nil)
        #expect(findings.discarded == [14, 15])
    }

    @Test("status 10 with 0, before anything was confirmed, means that nothing was accepted")
    func shutdownAtOnce() {
        var window = window(3)
        #expect(window.answered(packet(.shutdown, 0)).discarded == [11, 12, 13])
        var empty = UnconfirmedWindow()
        #expect(empty.answered(packet(.shutdown, 0)) == UnconfirmedWindow.Findings())
    }

    @Test("the bad item's own packet confirms all")
    func barrier() {
        var window = window(4)
        let identifier = window.sendBarrier()
        #expect(identifier == 5)
        #expect(window.answered(packet(.missingDeviceToken, 5)).confirmed == [11, 12, 13, 14])
    }

    @Test("a bad notification before the bad item is still found")
    func badBeforeBarrier() {
        var window = window(4)
        _ = window.sendBarrier()
        let findings = window.answered(packet(.invalidToken, 2))
        #expect(findings.confirmed == [11])
        #expect(findings.named?.tag == 12)
        #expect(findings.discarded == [13, 14])
    }

    @Test(
        "a packet that names nothing that was sent leaves all uncertain",
        arguments: [
            (GatewayStatus.invalidToken, UInt32(0)), (.invalidToken, 6), (.shutdown, 77), (.protocolError, .max),
        ])
    func foreign(status: GatewayStatus, identifier: UInt32) {
        var window = window(5)
        let findings = window.answered(packet(status, identifier))
        #expect(findings.uncertain == [11, 12, 13, 14, 15])
        #expect(findings.confirmed.isEmpty && findings.discarded.isEmpty && findings.named == nil)
    }

    @Test("confirms by age only bytes that the peer's kernel has acknowledged, a batch at a time")
    func ages() {
        var window = window(2)
        window.left(position: 250)
        _ = window.send(tag: 13, size: 100)
        window.left(position: 400)
        _ = window.send(tag: 14, size: 100)
        window.arrived(upTo: 399, now: Self.start)
        let later = Self.start + .seconds(2)
        #expect(window.confirm(arrivedBefore: Self.start - .nanoseconds(1)).isEmpty)
        #expect(window.confirm(arrivedBefore: later) == [11, 12])
        window.arrived(upTo: 400, now: later)
        #expect(window.confirm(arrivedBefore: later - .nanoseconds(1)).isEmpty)
        #expect(window.confirm(arrivedBefore: later) == [13])
        // The last notification has not been written.
        window.arrived(upTo: .max, now: later)
        #expect(window.confirm(arrivedBefore: .distantFuture).isEmpty)
        #expect((window.count, window.first, window.bytes) == (1, 4, 100))
    }

    @Test("counts notifications that were confirmed for their age and had been dropped")
    func tooEarly() {
        var window = window(4)
        window.left(position: 400)
        window.arrived(upTo: 400, now: Self.start)
        _ = window.send(tag: 15, size: 100)
        _ = window.confirm(arrivedBefore: .distantFuture)
        var other = window
        let findings = window.answered(packet(.invalidToken, 2))
        #expect((findings.lost, findings.discarded) == (3, [15]))
        // The last confirmed notification was in fact accepted.
        #expect(other.answered(packet(.shutdown, 4)).lost == 0)
    }

    @Test("ends each random notification exactly once, with the right result, for 2,000 random gateways")
    func model() {
        var generator = SeededGenerator(seed: 6)
        for _ in 0..<2000 {
            var window = UnconfirmedWindow()
            var sent: [UInt64] = []
            var ends: [UInt64: String] = [:]
            /// The gateway stops at this notification with this status, or never.
            let bad = Int.random(in: 1...40, using: &generator)
            let statuses: [GatewayStatus] = [.invalidToken, .shutdown, .processingError, .unknown]
            let status = statuses.randomElement(using: &generator) ?? .unknown
            var (position, arrived, now) = (0, 0, Self.start)
            for _ in 0..<Int.random(in: 0...60, using: &generator) {
                switch Int.random(in: 0..<4, using: &generator) {
                case 0, 1:
                    let tag = UInt64.random(in: 0...(.max), using: &generator)
                    let identifier = window.send(tag: tag, size: 10)
                    sent.append(tag)
                    position += 10
                    #expect(Int(identifier) == sent.count)
                case 2: window.left(position: position)
                default:
                    // A notification is old enough only if the gateway would have rejected it by now.
                    arrived = min(position, (bad - 1) * 10)
                    window.arrived(upTo: arrived, now: now)
                    now = now + .seconds(1)
                    for tag in window.confirm(arrivedBefore: now) { ends[tag] = "confirmed" }
                }
            }
            #expect(window.bytes == window.count * 10)
            let hasBarrier = Bool.random(using: &generator)
            let barrier = hasBarrier ? window.sendBarrier() : nil
            let isGood = status == .shutdown
            if bad <= sent.count {
                let findings = window.answered(packet(status, UInt32(bad)))
                for tag in findings.confirmed { ends[tag] = "confirmed" }
                if let named = findings.named { ends[named.tag] = "named" }
                for tag in findings.discarded { ends[tag] = "discarded" }
                #expect(findings.lost == 0 && findings.uncertain.isEmpty)
            } else if let barrier {
                for tag in window.answered(packet(.missingDeviceToken, barrier)).confirmed { ends[tag] = "confirmed" }
            } else {
                for tag in window.takeAll() { ends[tag] = "uncertain" }
            }
            for (index, tag) in sent.enumerated() {
                let place = index + 1
                switch ends[tag] {
                case "confirmed": #expect(place < bad || (place == bad && isGood))
                case "named": #expect(place == bad && !isGood)
                case "discarded": #expect(place > bad)
                case "uncertain": #expect(bad > sent.count && !hasBarrier)
                default: Issue.record("\(place) of \(sent.count) has no end; the bad one is \(bad)")
                }
            }
            #expect(ends.count == sent.count && window.count == 0 && window.bytes == 0)
        }
    }
}

@Suite("Running ahead of the gateway")
struct AdaptiveWindowTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000)

    @Test("is unlimited until an item is bad, then twice the number accepted before it, and soon unlimited again")
    func limits() {
        var ahead = AdaptiveWindow()
        #expect(ahead.limit == .max)
        ahead.refused(progress: 500, now: start)
        #expect(ahead.limit == 1000)
        ahead.check(window: 20_000, now: start + .milliseconds(99))
        #expect(ahead.limit == 1000)
        var now = start
        for expected in [2000, 4000, 8000, 16_000] {
            now = now + AdaptiveWindow.pause
            ahead.check(window: 20_000, now: now)
            #expect(ahead.limit == expected)
        }
        ahead.check(window: 20_000, now: now + AdaptiveWindow.pause)
        #expect(ahead.limit == .max)
    }

    @Test("never stops completely")
    func least() {
        var ahead = AdaptiveWindow()
        ahead.refused(progress: 0, now: start)
        #expect(ahead.limit == AdaptiveWindow.least)
    }
}
