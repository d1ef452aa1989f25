import APNS
import Testing

@testable import APNSSimulator

@Suite("The rules of the gateway")
struct GatewayRuleTests {
    @Test("define how the packet is sent, and whether the notification was accepted")
    func details() throws {
        let rule = try GatewayRule(
            "prefix=aa, answer=InvalidToken, split=true,packet=half,linger=true,identifier=wrong")
        let packet = GatewayAction.Packet(
            status: .invalidToken, identifier: .wrong, isSplit: true, isHalf: true, lingers: true)
        #expect(rule.action.answer == .packet(packet))
        #expect(
            try !rule.action.accepts && GatewayRule("answer=10").action.accepts
                && !GatewayRule("answer=10,accept=false").action.accepts)
        #expect(try GatewayRule("answer=close").action.accepts && !GatewayRule("answer=hang").action.accepts)
        #expect(
            try !GatewayRule("answer=reset").action.accepts && GatewayRule("answer=reset,accept=true").action.accepts)
        #expect(try GatewayRule("answer=feedback").action.accepts)
        let connect = try GatewayRule("at=connect,answer=10,times=2,delay=5ms")
        #expect(
            connect.point == .connect && connect.times == 2
                && connect.action.delay?.milliseconds == 5)
        #expect(connect.action.answer == .packet(GatewayAction.Packet(status: .shutdown, identifier: .zero)))
    }

    private func token(_ byte: UInt8) -> SimulatedToken {
        GatewayBytes.token(byte).withUnsafeBufferPointer { SimulatedToken(bytes: $0) }
    }

    @Test("match by prefix, the first of a token, and every nth of a connection; the first match decides")
    func meets() throws {
        var generator = APNSSimulator.SeededGenerator(seed: 1)
        var script = RuleScript([
            try GatewayRule("prefix=aa,times=1,answer=8"), try GatewayRule("after=3,answer=1"),
            try GatewayRule("prefix=bb,answer=close,delay=2ms"),
        ])
        func statuses(_ tokens: [UInt8]) -> [String] {
            tokens.enumerated().map { index, byte in
                let effect = GatewayEffect(of: &script, on: token(byte), ordinal: index + 1, &generator)
                return switch effect?.answer {
                case .packet(let packet)?: packet.status.label
                case .close?: "close"
                case nil: "-"
                default: "?"
                }
            }
        }
        #expect(
            statuses([0xAA, 0xAA, 0xAA, 0xBB, 0xCC, 0xBB]) == [
                "8 InvalidToken", "-", "1 ProcessingError", "close", "-", "1 ProcessingError",
            ])
        #expect(script.judgesMoreThanConnections)
        let late = GatewayEffect(of: &script, on: token(0xBB), ordinal: 1, &generator)
        #expect(late?.delay == 2000 && late?.accepts == true)
        let connection = GatewayEffect(ofNextConnection: &script, &generator)
        #expect(connection == nil)
    }

    @Test("with times keep only the newest tokens, so that their memory is bounded")
    func bounded() throws {
        var generator = APNSSimulator.SeededGenerator(seed: 1)
        var script = RuleScript([try GatewayRule("times=2,answer=8")], limit: 50)
        func meets(_ number: Int) throws -> Bool {
            let digits = String(number, radix: 16)
            let token = try #require(SimulatedToken(hex: String(repeating: "0", count: 64 - digits.count) + digits))
            return GatewayEffect(of: &script, on: token, ordinal: 1, &generator) != nil
        }
        #expect(try [meets(0), meets(0), meets(0)] == [true, true, false])
        for number in 1...10_000 {
            #expect(try meets(number))
            // A token that occurs again and again is not forgotten.
            if number % 40 == 0 { #expect(try !meets(0)) }
        }
        #expect(try meets(1) && meets(1) && !meets(1), "it was forgotten long ago")
    }

    @Test("match the first connections, or a share of them")
    func connections() throws {
        var generator = APNSSimulator.SeededGenerator(seed: 1)
        var first = RuleScript([
            try GatewayRule("at=connect,times=2,answer=close"), try GatewayRule("at=connect,after=4,answer=hang"),
        ])
        var answers: [GatewayAction.Answer?] = []
        for _ in 0..<8 { answers.append(GatewayEffect(ofNextConnection: &first, &generator)?.answer) }
        #expect(answers == [.close, .close, nil, .hang, nil, nil, nil, .hang])
        #expect(!first.judgesMoreThanConnections)
        var share = RuleScript([try GatewayRule("at=connect,rate=0.25,answer=reset")])
        var met = 0
        for _ in 0..<1000 where GatewayEffect(ofNextConnection: &share, &generator) != nil { met += 1 }
        #expect((180...320).contains(met))
    }

    @Test("end a connection step by step")
    func ending() {
        var packet = GatewayAction.Packet(status: .invalidToken)
        packet.isSplit = true
        packet.isHalf = true
        packet.lingers = true
        var split = GatewayEnding(packet, identifier: 5, at: 0)
        var steps: [SocketStep] = []
        var time: Int64 = 0
        while let next = split.nextTime {
            #expect(next >= time)
            time = next
            while let step = split.next(at: time) { steps.append(step) }
        }
        #expect(steps == [.send([8]), .send([8]), .send([0])])
        #expect(time == 2 * GatewayEnding.gap)

        packet.lingers = false
        var hurried = GatewayEnding(packet, identifier: 5, at: 0, delay: 1_000_000)
        hurried.hurry(at: 7)
        let rest = (0..<3).map { _ in hurried.next(at: 7) }
        #expect(rest == [.send([8, 8, 0]), .close, nil])
        split.hurry(at: time)
        let closes = split.next(at: time)
        #expect(closes == .close)
        var reset = GatewayEnding([.reset], at: 0, delay: 9)
        reset.hurry(at: 0)
        let resets = reset.next(at: 0)
        #expect(resets == .reset)
    }
}
