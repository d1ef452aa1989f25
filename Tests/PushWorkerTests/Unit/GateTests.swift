import NIOCore
import Testing

@testable import PushWorker

struct GateTests {
    private let now = NIODeadline.now()

    @Test("Without an obstacle, the scopes decide.")
    func scopes() {
        let gate = Gate()
        #expect(gate.decide(.send, now: now) == .send)
        #expect(gate.decide(.probe, now: now) == .probe)
        #expect(gate.decide(.wait(.group), now: now) == .wait(.scope(.group)))
    }

    @Test("An operator's pause outranks a missing connection, which outranks the scopes.")
    func order() {
        var gate = Gate()
        gate.recordConnection(isUsable: false, now: now)
        #expect(gate.decide(.send, now: now + Gate.patience) == .send)
        let later = now + Gate.patience + .milliseconds(1)
        #expect(gate.decide(.wait(.endpoint), now: later) == .wait(.noConnection))
        gate.pause = Reason(.appPaused)
        #expect(gate.decide(.send, now: later) == .wait(.paused))
        gate.block = Reason(.certificateNotForTopic)
        #expect(gate.decide(.send, now: later) == .wait(.blocked))
    }

    @Test("A process that stood still has waited for no connection in that time.")
    func standstill() {
        var gate = Gate()
        gate.recordConnection(isUsable: false, now: now)
        gate.recordStandstill(of: .seconds(60), now: now + .seconds(60))
        #expect(gate.obstacle(now: now + .seconds(61)) == nil)
        #expect(gate.obstacle(now: now + .seconds(63)) == .noConnection)
    }

    @Test("Each obstacle has a reason of its own for operators.")
    func reasons() {
        #expect(Gate.Obstacle.paused.reason == Reason(.appPaused))
        #expect(Gate.Obstacle.noConnection.reason == Reason(.noConnection))
        #expect(Gate.Obstacle.scope(.endpoint).reason == Reason(.endpointUnavailable))
        for kind in ScopeKind.allCases where kind != .endpoint {
            #expect(Gate.Obstacle.scope(kind).reason == Reason(.setAside))
        }
    }
}
