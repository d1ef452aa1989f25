import APNS
import PrintableText
import TLS
import TestSupport
import Testing

@testable import APNSSimulator

@Suite("A connection to the gateway")
struct GatewayConnectionTests {
    private typealias Outcome = ReceivedNotification.Outcome

    private static let accepted = Outcome.answered(status: 0, reason: nil)

    /// Serves one connection, and keeps the actions and the recording for checks.
    private final class Scene {
        private let recorder = Recorder()
        let service: SimulatedService
        var connection: SimulatedGatewayConnection
        var time: Int64 = 0
        private(set) var steps: [SocketStep] = []

        init(
            _ rules: [String] = [], client: GatewayClient = .taken(topic: "com.example.app"),
            receiving bytes: [UInt8] = [], _ change: (inout SimulatorConfiguration) throws -> Void = { _ in }
        ) throws {
            var configuration = SimulatorConfiguration(identity: try TestCertificates.identity("server"))
            configuration.gatewayPort = 0
            configuration.feedbackPort = 0
            configuration.gatewayRules = try rules.map { try GatewayRule($0) }
            configuration.recorder = recorder
            try change(&configuration)
            service = SimulatedService(configuration)
            connection = SimulatedGatewayConnection(service, client: client, at: .init(uptime: 0, date: 0))
            proceed()
            if !bytes.isEmpty { receive(bytes) }
        }

        var account: GatewayLedger { service.account.gateway }
        var records: [ReceivedNotification] { recorder.notifications().entries.map(\.notification) }
        private var now: SimulatedMoment { .init(uptime: time, date: 1_700_000_000_000) }

        func receive(_ bytes: [UInt8]) {
            bytes.withUnsafeBytes { connection.receive($0, at: now) }
            proceed()
        }

        func proceed() { while let step = connection.next(at: now) { steps.append(step) } }

        func wait() {
            while let next = connection.nextTime {
                time = max(time, next)
                proceed()
            }
        }

        func shutDown() {
            let remains = connection.shutDown(reason: "Shutdown", at: now)
            #expect(remains)
            proceed()
        }
    }

    private func packet(_ status: UInt8, _ identifier: UInt32) -> [SocketStep] {
        [.send(GatewayBytes.packet(status, identifier)), .close]
    }

    @Test("does not answer valid notifications, and counts them")
    func accepts() throws {
        let twice = Array(#"{"aps":{},"id":"a"}"#.utf8)
        let frames = GatewayBytes.simple() + GatewayBytes.enhanced(1, payload: twice)
        let last = GatewayBytes.frame(2, payload: twice, expiration: 77, priority: 5)
        let scene = try Scene(receiving: frames + last) { $0.gatewayIDMember = "id" }
        #expect(scene.steps == [])
        let account = scene.account
        #expect(account.accepted == 3 && account.frames == [0: 1, 1: 1, 2: 1] && account.connections == 1)
        #expect(account.duplicates == 1 && account.distinctIDs == 1 && account.acceptedIDs == ["a": 2])
        let records = scene.records
        #expect(records.map(\.identifier) == [nil, 1, 2])
        #expect(records.last?.expiration == 77 && records.last?.priority == 5 && records.last?.payload == twice)
        let token = try #require(SimulatedToken(hex: records.first?.token ?? ""))
        #expect(token.bytes == GatewayBytes.token)
        #expect(scene.service.account.accepted == 3 && scene.service.account.accepted(token: token) == 3)
    }

    @Test(
        "answers 8 for registered devices of another topic or environment and for expired ones; removed apps are feedback"
    )
    func devices() throws {
        func device(_ byte: UInt8, _ rest: String) throws -> RegisteredDevice {
            try RegisteredDevice("token=\(GatewayBytes.token(byte).hex),topic=\(rest)")
        }
        let rules = ["prefix=a2,answer=1", "prefix=a5,answer=reset"]
        let change: (inout SimulatorConfiguration) throws -> Void = {
            $0.devices = [
                try device(0xA1, "com.example.app"), try device(0xA2, "com.example.other"),
                try device(0xA3, "com.example.app,environment=sandbox"),
                try device(0xA4, "com.example.app,state=expired"),
                try device(0xA5, "com.example.app"),
                try device(0xA6, "com.example.app,state=unregistered,since=1600000000123"),
                try device(0xA7, "com.example.app,state=unregistered"),
            ]
        }
        for byte: UInt8 in [0xA2, 0xA3, 0xA4] {
            let scene = try Scene(rules, change)
            scene.receive(GatewayBytes.frame(1) + GatewayBytes.frame(2, to: 0xA1))
            #expect(scene.steps.isEmpty && scene.account.accepted == 2)
            scene.receive(GatewayBytes.frame(3, to: byte) + GatewayBytes.frame(4))
            // The registry takes precedence over the rules.
            #expect(scene.steps == packet(8, 3), "\(byte)")
            #expect(scene.account.refused == ["8 InvalidToken": 1] && scene.account.dropped == 1)
        }
        let scene = try Scene(
            rules, receiving: GatewayBytes.frame(1, to: 0xA6) + GatewayBytes.frame(2, to: 0xA7), change)
        #expect(scene.steps.isEmpty && scene.account.accepted == 2)
        #expect(scene.service.feedback.waiting.map(\.seconds) == [1_600_000_000, 1_700_000_000])
        scene.receive(GatewayBytes.frame(3, to: 0xA5))
        #expect(scene.steps == [.reset])

        let closed = try Scene(receiving: GatewayBytes.frame(1, to: 0xA1) + GatewayBytes.frame(2)) {
            $0.settings.acceptsRegisteredOnly = true
            try change(&$0)
        }
        #expect(closed.steps == packet(8, 2) && closed.account.accepted == 1)
    }

    @Test("names the invalid notification, closes, and drops later ones")
    func refuses() throws {
        let frames = GatewayBytes.frame(1) + GatewayBytes.frame(2, token: [1, 2, 3]) + GatewayBytes.frame(3)
        let scene = try Scene(receiving: frames + GatewayBytes.frame(4, token: []))
        #expect(scene.steps == packet(5, 2))
        scene.receive(GatewayBytes.simple())
        let account = scene.account
        #expect(scene.steps == packet(5, 2))
        #expect(account.accepted == 1 && account.dropped == 3 && account.closes == 1)
        #expect(account.refused == ["5 InvalidTokenSize": 1] && account.packets == ["5 InvalidTokenSize": 1])
    }

    @Test("records the error that it reports, and the notifications after it")
    func recordsErrors() throws {
        for (bytes, outcome) in [
            (GatewayBytes.frame(2, token: []), .answered(status: 2, reason: "MissingDeviceToken")),
            (GatewayBytes.frame(2, payload: []), .answered(status: 4, reason: "MissingPayload")),
            (GatewayBytes.frame(2, token: [1, 2]), .answered(status: 5, reason: "InvalidTokenSize")),
            (GatewayBytes.enhanced(2, payload: [0x7B]), .answered(status: 1, reason: "ProcessingError")),
            // Command 0 has no error packets.
            (GatewayBytes.simple(payload: []), .closed),
        ] as [([UInt8], Outcome)] {
            let frames = GatewayBytes.frame(1) + bytes + GatewayBytes.frame(3) + GatewayBytes.simple()
            let all = try Scene(receiving: frames).records
            #expect(all.map(\.outcome) == [Self.accepted, outcome, .dropped, .dropped])
            #expect(all.map(\.accepted) == [true, false, false, false] && all[1].token?.isEmpty != true)
            #expect(all[2].identifier == 3 && all[2].payload == GatewayBytes.payload && all[2].token?.count == 64)
        }
        // A recorded payload has at most the bytes that APNs accepts.
        let payload = [UInt8](repeating: 0x20, count: 9000)
        let long = try #require(try Scene(receiving: GatewayBytes.frame(1, payload: payload)).records.first)
        #expect(long.payload.count == 5120 && long.payloadSize == 9000)
        #expect(long.outcome == .answered(status: 7, reason: "InvalidPayloadSize"))
    }

    @Test("closes without a packet if the command has none")
    func simple() throws {
        for bytes in [GatewayBytes.simple(token: []), GatewayBytes.simple(payload: [1]), [0, 0xFF, 0xFF]] {
            let scene = try Scene(receiving: GatewayBytes.simple() + bytes)
            #expect(scene.steps == [.close])
            #expect(scene.account.packets.isEmpty && scene.account.refused.count == 1)
        }
        let ruled = try Scene(["answer=8,delay=3ms"], receiving: GatewayBytes.simple())
        #expect(ruled.steps == [] && ruled.connection.nextTime == 3000)
        ruled.wait()
        #expect(ruled.steps == [.close] && ruled.account.refused == ["8 InvalidToken": 1])
    }

    @Test("reports bytes that it does not understand, and counts them from there on")
    func unreadable() throws {
        let scene = try Scene(receiving: GatewayBytes.frame(1) + [0x16, 3, 1])
        scene.receive(Array(repeating: 2, count: 100))
        #expect(scene.steps == packet(128, 0))
        #expect(scene.account.accepted == 1 && scene.account.droppedBytes == 100)
        #expect(scene.account.bytesReceived == GatewayBytes.frame(1).count + 103)
        #expect(scene.account.refused == ["128 ProtocolError": 1])

        let long = [1] + GatewayBytes.big(UInt32(9)) + [0, 0, 0, 0, 1, 0]
        #expect(try Scene(receiving: long).steps == packet(5, 9))

        let item = GatewayBytes.frame([GatewayBytes.item(3, GatewayBytes.big(UInt32(9))), GatewayBytes.item(6, [1])])
        let records = try Scene(receiving: GatewayBytes.frame(1) + item + GatewayBytes.frame(3)).records
        let last = try #require(records.last)
        #expect(records.count == 2 && last.identifier == 9 && last.token == nil && last.payload.isEmpty)
        #expect(!last.accepted && last.outcome == .answered(status: 128, reason: "ProtocolError"))
        let unknown = try Scene(receiving: [3, 0, 0, 0, 1]).records
        #expect(unknown.map(\.outcome) == [.answered(status: 128, reason: "ProtocolError")])
        #expect(unknown.map(\.identifier) == [nil])
    }

    @Test("drops bytes that arrive while a packet is delayed, even malformed ones")
    func delays() throws {
        let frames = GatewayBytes.frame(1) + GatewayBytes.frame(2, to: 0xDD)
        let scene = try Scene(["prefix=dd,answer=8,delay=200ms"], receiving: frames)
        #expect(scene.connection.nextTime == 200_000)
        scene.time = 199_999
        scene.receive(GatewayBytes.frame(3) + [99])
        scene.receive([99])
        #expect(scene.steps == [])
        scene.wait()
        #expect(scene.time == 200_000 && scene.steps == packet(8, 2))
        #expect(scene.account.accepted == 1 && scene.account.dropped == 1 && scene.account.droppedBytes == 1)
        #expect(scene.account.packets == ["8 InvalidToken": 1])
        let outcomes = [Self.accepted, .answered(status: 8, reason: "InvalidToken"), .dropped]
        #expect(scene.records.map(\.outcome) == outcomes && scene.records.map(\.accepted) == [true, false, false])
    }

    @Test("splits packets, sends half of them, names other notifications and stays open, by its rules")
    func packets() throws {
        let split = try Scene(["answer=8,split=true"], receiving: GatewayBytes.frame(7))
        #expect(split.steps == [.send([8])])
        split.wait()
        #expect(split.steps == GatewayBytes.packet(8, 7).map { .send([$0]) } + [.close])
        #expect(split.records.map(\.outcome) == [.answered(status: 8, reason: "InvalidToken")])
        let unknown = try Scene(["answer=77"], receiving: GatewayBytes.frame(7)).records
        #expect(unknown.map(\.outcome) == [.answered(status: 77, reason: "GatewayStatus77")])
        #expect((split.records + unknown).allSatisfy { !$0.accepted })
        for (rule, steps) in [
            ("answer=8,packet=half", [.send([8, 8, 0]), .close]), ("answer=1,identifier=0", packet(1, 0)),
            ("answer=1,identifier=wrong", packet(1, ~7)),
        ] as [(String, [SocketStep])] {
            #expect(try Scene([rule], receiving: GatewayBytes.frame(7)).steps == steps, "\(rule)")
        }
        let lingers = try Scene(["answer=1,linger=true"], receiving: GatewayBytes.frame(7) + GatewayBytes.frame(8))
        lingers.wait()
        lingers.receive(GatewayBytes.frame(9))
        #expect(lingers.steps == [.send(GatewayBytes.packet(1, 7))])
        #expect(lingers.account.dropped == 2 && lingers.account.closes == 0)
        lingers.shutDown()
        #expect(lingers.steps.last == .close)
    }

    @Test("shuts down with the last that succeeded", arguments: [true, false])
    func shutdownRule(_ accepts: Bool) throws {
        let frames = (11...14).flatMap { GatewayBytes.frame($0) }
        let scene = try Scene(["after=3,answer=Shutdown,accept=\(accepts)"], receiving: frames)
        #expect(scene.steps == packet(10, accepts ? 13 : 12))
        #expect(scene.account.accepted == (accepts ? 3 : 2) && scene.account.dropped == 1)
        #expect(scene.account.refused.isEmpty)
        // If this notification is not accepted, its packet names the previous notification. So the client knows that the gateway did not
        // process this notification.
        let outcome = accepts ? Outcome.answered(status: 10, reason: "Shutdown") : .dropped
        #expect(scene.records[2].outcome == outcome && scene.records[2].accepted == accepts)
        #expect(try Scene(["answer=10,accept=false"], receiving: GatewayBytes.frame(5)).steps == packet(10, 0))
    }

    @Test("closes, resets and hangs, with or without accepting the notification", arguments: [true, false])
    func ends(_ accepts: Bool) throws {
        for (answer, step, outcome) in [
            ("close", .close, .closed), ("reset", .reset, .reset), ("hang", .stopReading, .silenced),
        ] as [(String, SocketStep, Outcome)] {
            let frames = GatewayBytes.frame(1) + GatewayBytes.frame(2, to: 0xDD) + GatewayBytes.frame(3)
            let scene = try Scene(["prefix=dd,answer=\(answer),accept=\(accepts)"], receiving: frames)
            let account = scene.account
            #expect(scene.steps == [step] && account.closes + account.resets + account.hangs == 1, "\(answer)")
            #expect(account.accepted == (accepts ? 2 : 1) && account.dropped == 1, "\(answer)")
            #expect(account.packets.isEmpty && account.refused.isEmpty, "\(answer)")
            #expect(scene.records.map(\.outcome) == [Self.accepted, outcome, .dropped], "\(answer)")
            #expect(scene.records.map(\.accepted) == [true, accepts, false], "\(answer)")
        }
    }

    @Test("adds a removed app to the feedback service, and continues")
    func feedback() throws {
        let frames = GatewayBytes.frame(1, to: 0xDD) + GatewayBytes.frame(2)
        let scene = try Scene(["prefix=dd,answer=feedback"], receiving: frames)
        #expect(scene.steps == [] && scene.account.accepted == 2)
        #expect(scene.records.allSatisfy { $0.accepted && $0.outcome == Self.accepted } && scene.records.count == 2)
        let records = scene.service.takeFeedback(9)
        #expect(records.map(\.token.bytes) == [GatewayBytes.token(0xDD)])
        #expect(records.map(\.seconds) == [1_700_000_000])
    }

    @Test("ends at once if a rule applies to connections")
    func connect() throws {
        #expect(try Scene(["at=connect,answer=close"]).steps == [.close])
        #expect(try Scene(["at=connect,answer=reset"]).steps == [.reset])
        #expect(try Scene(["at=connect,answer=10"]).steps == packet(10, 0))
        let hung = try Scene(["at=connect,answer=hang"], receiving: GatewayBytes.frame(1))
        #expect(hung.steps == [.stopReading])
        #expect(hung.account.accepted == 0 && hung.account.droppedBytes == GatewayBytes.frame(1).count)
        hung.shutDown()
        #expect(hung.steps == [.stopReading, .close])
        let late = try Scene(["at=connect,answer=close,delay=1s"])
        #expect(late.steps == [] && late.connection.nextTime == 1_000_000)
    }

    @Test("ends without a packet for a refused client, and refuses one without a topic")
    func clients() throws {
        let refused = try Scene(["at=connect,answer=10"], client: .refused, receiving: GatewayBytes.frame(1))
        #expect(refused.steps == [.close])
        #expect(refused.account.refusedClients == 1 && refused.account.connections == 0)
        #expect(refused.account.accepted == 0 && refused.account.dropped == 1)
        #expect(try Scene(client: .taken(topic: nil), receiving: GatewayBytes.frame(1)).steps == packet(3, 1))
    }

    @Test("shuts down with the last accepted notification, and hurries if it was already ending")
    func shutDown() throws {
        let idle = try Scene()
        idle.shutDown()
        #expect(idle.steps == packet(10, 0))
        let frames = GatewayBytes.frame(1) + GatewayBytes.enhanced(2) + GatewayBytes.frame(3).dropLast()
        let busy = try Scene(receiving: frames)
        busy.shutDown()
        busy.receive(Array(GatewayBytes.frame(3).suffix(1)))
        #expect(busy.steps == packet(10, 2))
        #expect(busy.account.accepted == 2 && busy.account.dropped == 1)
        let late = try Scene(["answer=8,delay=1m,split=true"], receiving: GatewayBytes.frame(4))
        late.shutDown()
        #expect(late.steps == packet(8, 4))
        late.shutDown()
        #expect(late.account.closes <= 2)
    }

    @Test("has the same result however the bytes arrive")
    func splits() throws {
        var generator = TestSupport.SeededGenerator(seed: 3)
        let rules = ["prefix=dd,times=1,answer=feedback", "after=9,answer=8"]
        for _ in 0..<300 {
            var stream: [UInt8] = []
            for number in 0..<UInt32(12) {
                let token = [GatewayBytes.token(0xDD), GatewayBytes.token, []].randomElement(using: &generator)
                stream += GatewayBytes.frame(number, token: number < 5 ? GatewayBytes.token(0xDD) : token ?? [])
            }
            let whole = try Scene(rules, receiving: stream)
            let split = try Scene(rules)
            while !stream.isEmpty {
                let size = Int.random(in: 1...200, using: &generator)
                split.receive(Array(stream.prefix(size)))
                stream.removeFirst(min(size, stream.count))
            }
            #expect(split.steps == whole.steps && split.steps.count == 2)
            #expect(split.account.accepted == whole.account.accepted && split.account.frames == whole.account.frames)
            #expect(split.account.dropped == whole.account.dropped && split.account.refused == whole.account.refused)
        }
    }
}
