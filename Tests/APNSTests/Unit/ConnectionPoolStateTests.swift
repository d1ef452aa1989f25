import NIOCore
import TLS
import TestSupport
import Testing

@testable import APNS

@Suite("Opening connections of a pool")
struct ConnectionPoolStateTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    private let configuration: PoolConfiguration
    /// Made once, because it reads the certificates of the system.
    private static let tls = Result { try TLSContext.client(TLSClientConfiguration()) }

    init() throws {
        configuration = PoolConfiguration(endpoint: .production, tls: try Self.tls.get())
    }

    private func pool(minimum: Int = 1, maximum: Int = 4) -> ConnectionPoolState {
        var configuration = configuration
        configuration.minimumConnections = minimum
        configuration.maximumConnections = maximum
        return ConnectionPoolState(configuration)
    }

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
        // Whatever happened before: after the pauses, the minimum is reached again.
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

extension ConnectionPoolState {
    /// - Parameter isWanted: true if notifications wait and no stream is free.
    mutating func connectionsToOpen(isWanted: Bool, now: NIODeadline) -> Int {
        if isWanted { wantConnection() }
        return connectionsToOpen(now: now)
    }
}
