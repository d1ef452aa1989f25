import NIOCore
import Testing

@testable import PushWorker

@Suite("The gate of an app")
struct GateTests {
    private static let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    private static let longest = TimeAmount.minutes(5)

    enum App: CaseIterable {
        case closed, waiting, due, asking, granted, probing, pausedByOperator, blocked

        func breaker(at now: NIODeadline) -> AppBreaker {
            var breaker = AppBreaker()
            if self == .closed { return breaker }
            if self == .blocked {
                breaker.block("wrong certificate")
                return breaker
            }
            _ = breaker.recordFault(reason: "x", isProbe: false, now: now)
            let wait: TimeAmount? =
                switch self {
                case .pausedByOperator: nil
                case .waiting: .seconds(15)
                default: .zero
                }
            _ = breaker.recordPause(reason: "x", wait: wait, now: now)
            if self == .asking || self == .granted || self == .probing { breaker.recordQuestion() }
            if self == .granted || self == .probing { breaker.recordGrant() }
            if self == .probing { breaker.recordProbe() }
            return breaker
        }
    }

    enum Endpoint: CaseIterable {
        case closed, waiting, due, probing

        func breaker(at now: NIODeadline) -> EndpointBreaker {
            var breaker = EndpointBreaker()
            if self == .closed { return breaker }
            let opened = self == .waiting ? now : now - .minutes(1)
            for _ in 0..<EndpointBreaker.limit {
                _ = breaker.recordFailure(
                    "ServiceUnavailable", isProbe: false, longest: longest, now: opened, jitter: 1)
            }
            if self == .probing { breaker.recordProbe() }
            return breaker
        }
    }

    enum Connection: CaseIterable { case usable, justLost, lost }

    static let combinations = App.allCases.flatMap { app in
        Endpoint.allCases.flatMap { endpoint in Connection.allCases.map { (app, endpoint, $0) } }
    }

    private static func gate(_ app: App, _ endpoint: Endpoint, _ connection: Connection) -> Gate {
        var gate = Gate()
        gate.app = app.breaker(at: start)
        gate.endpoint = endpoint.breaker(at: start)
        let lostAt = connection == .lost ? start - Gate.patience - .milliseconds(1) : start - Gate.patience
        gate.recordConnection(isUsable: connection == .usable, now: lostAt)
        return gate
    }

    private enum Kind: Equatable {
        case send, ask
        case probe(InFlight.Probe)
        case wait(Gate.Obstacle)

        init(_ decision: Gate.Decision) {
            self =
                switch decision {
                case .send: .send
                case .ask: .ask
                case .probe(let probe): .probe(probe)
                case .wait(let obstacle, _): .wait(obstacle)
                }
        }
    }

    @Test(
        "An open breaker of the app outranks one of the endpoint, and both outrank connections.",
        arguments: combinations)
    func decides(app: App, endpoint: Endpoint, connection: Connection) {
        let gate = Self.gate(app, endpoint, connection)
        let expected: Kind =
            switch (app, endpoint, connection) {
            case (.due, _, _): .ask
            case (.granted, _, _): .probe(.ofApp)
            case (.waiting, _, _), (.asking, _, _), (.probing, _, _), (.pausedByOperator, _, _), (.blocked, _, _):
                .wait(.pause)
            case (.closed, .due, _): .probe(.ofEndpoint)
            case (.closed, .waiting, _), (.closed, .probing, _): .wait(.endpoint)
            case (.closed, .closed, .lost): .wait(.noConnection)
            case (.closed, .closed, _): .send
            }
        #expect(Kind(gate.decide(now: Self.start)) == expected)
        #expect(gate.sendsFreely == (app == .closed && endpoint == .closed))
        // The problem and the state that operators see agree with the decision.
        let isProblem = gate.problem(of: "shop", isConnected: connection == .usable) != nil
        #expect(isProblem == !(app == .closed && endpoint == .closed && connection == .usable))
        #expect((gate.state == .closed) == gate.sendsFreely)
        #expect((gate.obstacle(now: Self.start) == nil) == (expected == .send))
        // A job is kept as a probe only if it may soon be one.
        let wantsProbe =
            switch (app, endpoint) {
            case (.due, _), (.asking, _), (.granted, _), (.closed, .due), (.closed, .waiting): true
            default: false
            }
        #expect(gate.wantsProbe(now: Self.start) == wantsProbe)
        // The probe of a paused app is sent again, unless only another configuration ends the pause.
        let decision = gate.decide(now: Self.start)
        #expect(
            gate.decide(resending: .ofApp, now: Self.start) == ([.closed, .blocked].contains(app) ? decision : .send))
        #expect(gate.decide(resending: nil, now: Self.start) == decision)
        #expect(gate.decide(resending: .ofEndpoint, now: Self.start) == decision)
    }

    @Test("Jobs are deferred until the obstacle may end, at most a minute and some seconds.", arguments: combinations)
    func defers(app: App, endpoint: Endpoint, connection: Connection) throws {
        let gate = Self.gate(app, endpoint, connection)
        guard let obstacle = gate.obstacle(now: Self.start) else { return }
        let delays = [0, 0.999].map {
            gate.deferral(because: obstacle, now: Self.start, longest: Self.longest, jitter: $0)
        }
        let spread = obstacle == .noConnection ? 2000...10_000 : Int64(1000)...5000
        let wait: Int64 =
            switch (app, endpoint) {
            case (.waiting, _): 15_000
            case (.asking, _), (.probing, _): 1000
            case (.pausedByOperator, _), (.blocked, _): 60_000
            case (.closed, .waiting): 1000
            default: 0
            }
        #expect(delays[0] == spread.lowerBound + wait)
        #expect((spread.upperBound + wait - 10...spread.upperBound + wait).contains(delays[1]))
        let short = gate.deferral(because: obstacle, now: Self.start, longest: .milliseconds(500), jitter: 0)
        #expect(short <= spread.lowerBound + 500)
    }

    @Test("An inconclusive probe of one breaker leaves the other as it is.")
    func inconclusive() {
        var gate = Self.gate(.probing, .probing, .usable)
        gate.recordInconclusive(.ofEndpoint, now: Self.start)
        #expect(Kind(gate.app.decide(now: Self.start + .minutes(1))) == .wait(.pause))
        #expect(Kind(gate.endpoint.decide(now: Self.start + .minutes(1))) == .probe(.ofEndpoint))
        gate.recordInconclusive(.ofApp, now: Self.start)
        #expect(Kind(gate.decide(now: Self.start + .minutes(1))) == .ask)
    }

    @Test("New connections end the obstacles that concern connections, and no pause.")
    func otherConnections() {
        var gate = Self.gate(.closed, .waiting, .lost)
        gate.recordOtherConnections()
        #expect(gate.decide(now: Self.start) == .send)
        gate = Self.gate(.waiting, .waiting, .lost)
        gate.recordOtherConnections()
        #expect(gate.obstacle(now: Self.start) == .pause)
    }

    @Test("The time in which the process stood still does not count as time without a connection.")
    func standstill() {
        var gate = Gate()
        gate.recordConnection(isUsable: false, now: Self.start)
        let later = Self.start + .minutes(10)
        gate.recordStandstill(of: .minutes(10), now: later)
        #expect(gate.decide(now: later + .seconds(1)) == .send)
        #expect(gate.obstacle(now: later + .seconds(3)) == .noConnection)
    }
}
