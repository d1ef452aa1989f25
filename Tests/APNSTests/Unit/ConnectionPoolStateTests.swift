import NIOCore
import TLS
import TestSupport
import Testing

@testable import APNS

/// Made once, because it reads the certificates of the system.
private let tls = Result { try TLSContext.client(TLSClientConfiguration()) }
private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

private func pool(minimum: Int = 1, maximum: Int = 4) -> ConnectionPoolState {
    do {
        var configuration = PoolConfiguration(endpoint: .production, tls: try tls.get())
        configuration.minimumConnections = minimum
        configuration.maximumConnections = maximum
        return ConnectionPoolState(configuration)
    } catch {
        preconditionFailure("\(error)")
    }
}

@Suite("Opening connections of a pool")
struct ConnectionPoolStateTests {
    @Test("it keeps the minimum, and opens no more while those are connecting")
    func minimum() {
        var state = pool(minimum: 2)
        #expect(state.connectionsToOpen(isWanted: false, now: start) == 2)
        #expect(state.connectionsToOpen(isWanted: true, now: start) == 0)
        state.connected()
        state.connected()
        #expect(state.connectionsToOpen(isWanted: false, now: start) == 0)
        state.retired()
        #expect(state.connectionsToOpen(isWanted: false, now: start) == 1)
    }

    @Test("it opens one at a time beyond the minimum, up to the maximum")
    func maximum() {
        var state = pool(maximum: 3)
        for expected in [1, 1, 1, 0] {
            #expect(state.connectionsToOpen(isWanted: true, now: start) == expected)
            #expect(state.connectionsToOpen(isWanted: true, now: start) == 0)
            if expected == 1 { state.connected() }
        }
        #expect(state.usable == 3)
    }

    @Test("it opens none when the minimum is 0 and no stream is needed")
    func onDemand() {
        var state = pool(minimum: 0)
        #expect(state.connectionsToOpen(isWanted: false, now: start) == 0)
        #expect(state.connectionsToOpen(isWanted: true, now: start) == 1)
    }

    @Test("it opens one after a failure even when the minimum is 0, because no stream is requested without one")
    func failedOnDemand() {
        var state = pool(minimum: 0)
        #expect(state.connectionsToOpen(isWanted: true, now: start) == 1)
        let pause = state.failed(wasConnecting: true, now: start, jitter: 1)
        #expect(state.connectionsToOpen(isWanted: false, now: start) == 0)
        #expect(state.connectionsToOpen(isWanted: false, now: start + pause) == 1)
        state.connected()
        state.worked()
        #expect(state.connectionsToOpen(isWanted: false, now: start + pause) == 0)
    }

    @Test("it doubles the pause after each failure, up to 30 s, and never skips it")
    func backoff() {
        var most = pool()
        var least = pool()
        var expected: Int64 = 250
        for _ in 0..<80 {
            let (longest, shortest) = (
                most.failed(wasConnecting: false, now: start, jitter: 1),
                least.failed(wasConnecting: false, now: start, jitter: 0)
            )
            #expect(longest == .milliseconds(expected))
            #expect(shortest == .microseconds(expected * 100))
            expected = min(expected * 2, 30_000)
        }
    }

    @Test("it tries once when the pause is over, with one connection until that succeeds")
    func afterFailure() {
        var state = pool(minimum: 3)
        #expect(state.connectionsToOpen(isWanted: false, now: start) == 3)
        for _ in 0..<3 { state.failed(wasConnecting: true, now: start, jitter: 1) }
        #expect(state.connectionsToOpen(isWanted: true, now: start + .milliseconds(999)) == 0)
        #expect(state.connectionsToOpen(isWanted: true, now: start + .seconds(1)) == 1)
        #expect(state.connectionsToOpen(isWanted: true, now: start + .seconds(1)) == 0)
        state.connected()
        state.worked()
        #expect(state.connectionsToOpen(isWanted: false, now: start + .seconds(1)) == 2)
    }

    @Test("a connection that worked resets the count of failures")
    func worked() {
        var state = pool()
        for _ in 0..<10 { state.failed(wasConnecting: false, now: start, jitter: 1) }
        state.worked()
        #expect(state.failures == 0)
        #expect(state.connectionsToOpen(isWanted: false, now: start) == 1)
        #expect(state.failed(wasConnecting: true, now: start, jitter: 1) == .milliseconds(250))
    }

    @Test("a pool that is closing opens none")
    func closing() {
        var state = pool(minimum: 4)
        state.close()
        #expect(state.connectionsToOpen(isWanted: true, now: start) == 0)
    }

    @Test("its counts stay right and within the maximum, in any order of events", arguments: 0..<200)
    func anyOrder(seed: Int) {
        var generator = SeededGenerator(seed: UInt64(seed))
        let maximum = Int.random(in: 1...6, using: &generator)
        let minimum = Int.random(in: 0...maximum, using: &generator)
        var state = pool(minimum: minimum, maximum: maximum)
        var now = start
        var (connecting, usable) = (0, 0)
        var notBefore = start
        for _ in 0..<400 {
            now = now + .milliseconds(Int64.random(in: 0...200, using: &generator))
            switch Int.random(in: 0..<6, using: &generator) {
            case 0, 1:
                let count = state.connectionsToOpen(isWanted: Bool.random(using: &generator), now: now)
                if now < notBefore { #expect(count == 0) }
                if state.failures > 0, count > 0 { #expect(connecting == 0 && count == 1) }
                connecting += count
            case 2 where connecting > 0:
                state.connected()
                (connecting, usable) = (connecting - 1, usable + 1)
            case 3 where connecting > 0:
                notBefore = now + state.failed(wasConnecting: true, now: now, jitter: 0.5)
                connecting -= 1
            case 4 where usable > 0:
                state.retired()
                usable -= 1
                if Bool.random(using: &generator) {
                    notBefore = now + state.failed(wasConnecting: false, now: now, jitter: 0.5)
                }
            case 5 where usable > 0:
                state.worked()
                notBefore = .distantPast
            default: break
            }
            #expect(state.connecting == connecting)
            #expect(state.usable == usable)
            #expect(connecting + usable <= maximum)
        }
        // In any case, the minimum is reached again after the pauses.
        for _ in 0..<maximum {
            now = now + .seconds(31)
            for _ in 0..<state.connectionsToOpen(isWanted: false, now: now) {
                state.connected()
                state.worked()
            }
            while state.connecting > 0 { state.connected() }
        }
        #expect(state.usable >= minimum)
    }
}

@Suite("Replacing connections of a pool")
struct ReplacementStateTests {
    private func pool(minimum: Int, maximum: Int = 4, usable: Int) -> ConnectionPoolState {
        var state = APNSTests.pool(minimum: minimum, maximum: maximum)
        while state.usable < usable {
            if state.connectionsToOpen(isWanted: true, now: start) == 0 { Issue.record("opens too few") }
            while state.connecting > 0 { state.connected() }
        }
        #expect(state.usable == usable)
        return state
    }

    @Test("each connection in use is retired once another has replaced it")
    func oneForOne() {
        var state = pool(minimum: 1, usable: 3)
        state.replace(3, inUse: 3)
        #expect(state.outgoingToRetire(ready: 0) == 0)
        #expect(state.connectionsToOpen(isWanted: false, now: start) == 3)
        #expect(state.connectionsToOpen(isWanted: false, now: start) == 0)
        for ready in 1...3 {
            state.connected()
            // The connection is usable, but has no SETTINGS yet.
            #expect(state.outgoingToRetire(ready: ready - 1) == 0)
            #expect(state.outgoingToRetire(ready: ready) == 1)
            state.retired(wasOutgoing: true)
        }
        #expect(state.outgoing == 0)
        #expect(state.usable == 3)
        #expect(state.connectionsToOpen(isWanted: false, now: start) == 0)
    }

    @Test("idle ones end at once, and those of the minimum only after a replacement")
    func idle() {
        var state = pool(minimum: 1, usable: 3)
        state.replace(3, inUse: 0)
        #expect(state.outgoingToRetire(ready: 0) == 2)
        var without = pool(minimum: 0, usable: 2)
        without.replace(2, inUse: 0)
        #expect(without.outgoingToRetire(ready: 0) == 2)
        #expect(without.connectionsToOpen(isWanted: false, now: start) == 0)
    }

    @Test("an old one is retired at once if enough others remain")
    func enoughOthers() {
        var state = pool(minimum: 1, usable: 3)
        state.replace(1, inUse: 2)
        #expect(state.outgoingToRetire(ready: 2) == 1)
    }

    @Test("a pool at its maximum may still open the replacement")
    func atMaximum() {
        var state = pool(minimum: 1, maximum: 1, usable: 1)
        #expect(state.connectionsToOpen(isWanted: true, now: start) == 0)
        state.replace(1, inUse: 1)
        #expect(state.connectionsToOpen(isWanted: true, now: start) == 1)
        state.connected()
        #expect(state.connectionsToOpen(isWanted: true, now: start) == 0)
        #expect(state.outgoingToRetire(ready: 1) == 1)
    }

    @Test("the old one stays while no other can be opened, and pauses apply")
    func unreachable() {
        var state = pool(minimum: 1, usable: 1)
        state.replace(1, inUse: 1)
        #expect(state.connectionsToOpen(isWanted: false, now: start) == 1)
        state.failed(wasConnecting: true, now: start, jitter: 1)
        #expect(state.connectionsToOpen(isWanted: true, now: start + .milliseconds(249)) == 0)
        #expect(state.outgoingToRetire(ready: 0) == 0)
        #expect(state.connectionsToOpen(isWanted: true, now: start + .milliseconds(250)) == 1)
    }

    @Test("a connection beyond the minimum that has been idle for long enough is closed")
    func superfluous() {
        var state = pool(minimum: 1, usable: 2)
        #expect(!state.isSuperfluous(lastUsed: start, now: start + .minutes(5) - .nanoseconds(1)))
        #expect(state.isSuperfluous(lastUsed: start, now: start + .minutes(5)))
        state.retired()
        #expect(!state.isSuperfluous(lastUsed: start, now: start + .minutes(5)))
    }

    @Test("ones that answer 500 are retired at growing intervals, which start over after a quiet time")
    func recycling() {
        var state = pool(minimum: 1, usable: 1)
        var now = start
        var pause: Int64 = 1
        func recycles(_ state: inout ConnectionPoolState) -> Bool { state.recycle(now: now) }
        let first = recycles(&state)
        #expect(first)
        for _ in 0..<20 {
            now = now + .seconds(pause) - .nanoseconds(1)
            let early = recycles(&state)
            #expect(!early)
            now = now + .nanoseconds(1)
            let due = recycles(&state)
            #expect(due, "\(pause)")
            pause = min(pause * 2, 60)
        }
        now = now + .seconds(120)
        let again = recycles(&state)
        #expect(again)
        now = now + .seconds(1)
        let second = recycles(&state)
        #expect(second)
    }

    @Test("counts stay right and sending never stops, in any order of events", arguments: 0..<200)
    func anyOrder(seed: Int) {
        var generator = SeededGenerator(seed: UInt64(seed))
        let maximum = Int.random(in: 1...5, using: &generator)
        let minimum = Int.random(in: 1...maximum, using: &generator)
        var state = pool(minimum: minimum, maximum: maximum, usable: minimum)
        // For each usable connection, true if it is being replaced.
        var usable = Array(repeating: false, count: state.usable)
        func retireOutgoing() {
            while state.outgoingToRetire(ready: usable.count { !$0 }) > 0, let index = usable.firstIndex(of: true) {
                usable.remove(at: index)
                state.retired(wasOutgoing: true)
            }
            #expect(state.outgoingToRetire(ready: usable.count { !$0 }) == 0)
        }
        var connecting = 0
        var now = start
        for _ in 0..<300 {
            now = now + .milliseconds(Int64.random(in: 0...200, using: &generator))
            switch Int.random(in: 0..<6, using: &generator) {
            case 0, 1: connecting += state.connectionsToOpen(isWanted: Bool.random(using: &generator), now: now)
            case 2 where connecting > 0:
                state.connected()
                state.worked()
                connecting -= 1
                usable.append(false)
            case 3 where connecting > 0:
                state.failed(wasConnecting: true, now: now, jitter: 0.5)
                connecting -= 1
            case 4:
                let staying = usable.indices.filter { !usable[$0] }
                let old = staying.shuffled(using: &generator).prefix(Int.random(in: 0...maximum, using: &generator))
                guard !old.isEmpty else { continue }
                for index in old { usable[index] = true }
                state.replace(old.count, inUse: Int.random(in: 0...usable.count, using: &generator))
                retireOutgoing()
                // The minimum is at least 1: the last usable connection is never closed.
                #expect(!usable.isEmpty)
            default: retireOutgoing()
            }
            #expect(state.usable == usable.count)
            #expect(state.outgoing == usable.count { $0 })
            #expect(state.connecting == connecting)
            #expect(connecting + usable.count <= maximum * 2)
        }
    }
}

extension ConnectionPoolState {
    /// - Parameter isWanted: true if notifications wait and no stream is free.
    mutating func connectionsToOpen(isWanted: Bool, now: NIODeadline) -> Int {
        if isWanted { wantConnection() }
        return connectionsToOpen(now: now)
    }
}
