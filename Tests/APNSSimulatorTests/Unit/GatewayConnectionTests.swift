import APNS
import TLS
import TestSupport
import Testing

@testable import APNSSimulator

@Suite("A connection to the gateway")
struct GatewayConnectionTests {
    /// A connection, its service, and the actions it requested.
    private final class Scene {
        let service: SimulatedService
        var connection: GatewayConnection
        var time: Int64 = 0
        private(set) var steps: [GatewayConnection.Step] = []

        init(
            _ rules: [String] = [], client: GatewayClient = .taken(topic: "com.example.app"),
            _ change: (inout SimulatorConfiguration) throws -> Void = { _ in }
        ) throws {
            var configuration = SimulatorConfiguration(
                identity: try TLSIdentity(
                    certificateFile: try TestCertificates.path("server.pem"),
                    keyFile: try TestCertificates.path("server-key.pem")))
            configuration.gatewayPort = 0
            configuration.feedbackPort = 0
            configuration.gatewayRules = try rules.map { try GatewayRule($0) }
            try change(&configuration)
            service = SimulatedService(configuration)
            connection = GatewayConnection(service, client: client, at: .init(uptime: 0, date: 0))
            proceed()
        }

        var account: GatewayLedger { service.account.gateway }
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
            connection.shutDown(at: now)
            proceed()
        }
    }

    private func packet(_ status: UInt8, _ identifier: UInt32) -> [GatewayConnection.Step] {
        [.send(GatewayBytes.packet(status, identifier)), .close]
    }

    @Test("does not answer valid notifications, and counts them")
    func accepts() throws {
        let recorder = Recorder()
        let scene = try Scene {
            $0.recorder = recorder
            $0.gatewayIDMember = "id"
        }
        let twice = Array(#"{"aps":{},"id":"a"}"#.utf8)
        scene.receive(
            GatewayBytes.simple() + GatewayBytes.enhanced(1, payload: twice)
                + GatewayBytes.frame(2, payload: twice, expiration: 77, priority: 5))
        #expect(scene.steps == [])
        let account = scene.account
        #expect(account.accepted == 3 && account.frames == [0: 1, 1: 1, 2: 1] && account.connections == 1)
        #expect(account.duplicates == 1 && account.distinctIDs == 1 && account.acceptedIDs == ["a": 2])
        let records = recorder.notifications().entries.map(\.notification)
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
            try RegisteredDevice("token=\(Hexadecimal.text(GatewayBytes.token(byte))),topic=\(rest)")
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
        let scene = try Scene(rules, change)
        scene.receive(
            GatewayBytes.frame(1, to: 0xA6)
                + GatewayBytes.frame(2, to: 0xA7))
        #expect(scene.steps.isEmpty && scene.account.accepted == 2)
        #expect(scene.service.waitingFeedback.map(\.seconds) == [1_600_000_000, 1_700_000_000])
        scene.receive(GatewayBytes.frame(3, to: 0xA5))
        #expect(scene.steps == [.reset])

        let closed = try Scene {
            $0.settings.acceptsRegisteredOnly = true
            try change(&$0)
        }
        closed.receive(GatewayBytes.frame(1, to: 0xA1) + GatewayBytes.frame(2))
        #expect(closed.steps == packet(8, 2) && closed.account.accepted == 1)
    }

    @Test("names the invalid notification, closes, and drops later ones")
    func refuses() throws {
        let scene = try Scene()
        scene.receive(
            GatewayBytes.frame(1) + GatewayBytes.frame(2, token: [1, 2, 3]) + GatewayBytes.frame(3)
                + GatewayBytes.frame(4, token: []))
        #expect(scene.steps == packet(5, 2))
        scene.receive(GatewayBytes.simple())
        let account = scene.account
        #expect(scene.steps == packet(5, 2))
        #expect(account.accepted == 1 && account.dropped == 3 && account.closes == 1)
        #expect(account.refused == ["5 InvalidTokenSize": 1] && account.packets == ["5 InvalidTokenSize": 1])
    }

    @Test("closes without a packet if the command has none")
    func simple() throws {
        for bytes in [GatewayBytes.simple(token: []), GatewayBytes.simple(payload: [1]), [0, 0xFF, 0xFF]] {
            let scene = try Scene()
            scene.receive(GatewayBytes.simple() + bytes)
            #expect(scene.steps == [.close])
            #expect(scene.account.packets.isEmpty && scene.account.refused.count == 1)
        }
        let ruled = try Scene(["answer=8,delay=3ms"])
        ruled.receive(GatewayBytes.simple())
        #expect(ruled.steps == [] && ruled.connection.nextTime == 3000)
        ruled.wait()
        #expect(ruled.steps == [.close] && ruled.account.refused == ["8 InvalidToken": 1])
    }

    @Test("reports bytes that it does not understand, and counts them from there on")
    func unreadable() throws {
        let scene = try Scene()
        scene.receive(GatewayBytes.frame(1) + [0x16, 3, 1])
        scene.receive(Array(repeating: 2, count: 100))
        #expect(scene.steps == packet(128, 0))
        #expect(scene.account.accepted == 1 && scene.account.droppedBytes == 100)
        #expect(scene.account.bytesReceived == GatewayBytes.frame(1).count + 103)
        #expect(scene.account.refused == ["128 ProtocolError": 1])

        let long = try Scene()
        long.receive([1] + GatewayBytes.big(UInt32(9)) + [0, 0, 0, 0, 1, 0])
        #expect(long.steps == packet(5, 9))
    }

    @Test("drops bytes that arrive while a packet is delayed, even malformed ones")
    func delays() throws {
        let scene = try Scene(["prefix=dd,answer=8,delay=200ms"])
        scene.receive(GatewayBytes.frame(1) + GatewayBytes.frame(2, to: 0xDD))
        #expect(scene.connection.nextTime == 200_000)
        scene.time = 199_999
        scene.receive(GatewayBytes.frame(3) + [99])
        scene.receive([99])
        #expect(scene.steps == [])
        scene.wait()
        #expect(scene.time == 200_000 && scene.steps == packet(8, 2))
        #expect(scene.account.accepted == 1 && scene.account.dropped == 1 && scene.account.droppedBytes == 1)
        #expect(scene.account.packets == ["8 InvalidToken": 1])
    }

    @Test("splits packets, sends half of them, names other notifications and stays open, by its rules")
    func packets() throws {
        let split = try Scene(["answer=8,split=true"])
        split.receive(GatewayBytes.frame(7))
        #expect(split.steps == [.send([8])])
        split.wait()
        #expect(split.steps == GatewayBytes.packet(8, 7).map { .send([$0]) } + [.close])
        let half = try Scene(["answer=8,packet=half"])
        half.receive(GatewayBytes.frame(7))
        #expect(half.steps == [.send([8, 8, 0]), .close])
        let zero = try Scene(["answer=1,identifier=0"])
        zero.receive(GatewayBytes.frame(7))
        #expect(zero.steps == packet(1, 0))
        let wrong = try Scene(["answer=1,identifier=wrong"])
        wrong.receive(GatewayBytes.frame(7))
        #expect(wrong.steps == packet(1, ~7))
        let lingers = try Scene(["answer=1,linger=true"])
        lingers.receive(GatewayBytes.frame(7) + GatewayBytes.frame(8))
        lingers.wait()
        lingers.receive(GatewayBytes.frame(9))
        #expect(lingers.steps == [.send(GatewayBytes.packet(1, 7))])
        #expect(lingers.account.dropped == 2 && lingers.account.closes == 0)
        lingers.shutDown()
        #expect(lingers.steps.last == .close)
    }

    @Test("shuts down with the last that succeeded", arguments: [true, false])
    func shutdownRule(_ accepts: Bool) throws {
        let scene = try Scene(["after=3,answer=Shutdown,accept=\(accepts)"])
        scene.receive((11...14).flatMap { GatewayBytes.frame($0) })
        #expect(scene.steps == packet(10, accepts ? 13 : 12))
        #expect(scene.account.accepted == (accepts ? 3 : 2) && scene.account.dropped == 1)
        #expect(scene.account.refused.isEmpty)
        let first = try Scene(["answer=10,accept=false"])
        first.receive(GatewayBytes.frame(5))
        #expect(first.steps == packet(10, 0))
    }

    @Test("closes, resets and hangs, with or without accepting the notification", arguments: [true, false])
    func ends(_ accepts: Bool) throws {
        for (answer, step) in [("close", GatewayConnection.Step.close), ("reset", .reset), ("hang", .stopReading)] {
            let scene = try Scene(["prefix=dd,answer=\(answer),accept=\(accepts)"])
            scene.receive(
                GatewayBytes.frame(1) + GatewayBytes.frame(2, to: 0xDD) + GatewayBytes.frame(3))
            #expect(scene.steps == [step])
            #expect(scene.account.accepted == (accepts ? 2 : 1) && scene.account.dropped == 1)
            #expect(scene.account.packets.isEmpty && scene.account.refused.isEmpty)
            #expect(scene.account.closes + scene.account.resets + scene.account.hangs == 1)
        }
    }

    @Test("adds a removed app to the feedback service, and continues")
    func feedback() throws {
        let scene = try Scene(["prefix=dd,answer=feedback"])
        scene.receive(GatewayBytes.frame(1, to: 0xDD) + GatewayBytes.frame(2))
        #expect(scene.steps == [] && scene.account.accepted == 2)
        let records = scene.service.takeFeedback(9)
        #expect(records.map(\.token.bytes) == [GatewayBytes.token(0xDD)])
        #expect(records.map(\.seconds) == [1_700_000_000])
    }

    @Test("ends at once if a rule applies to connections")
    func connect() throws {
        #expect(try Scene(["at=connect,answer=close"]).steps == [.close])
        #expect(try Scene(["at=connect,answer=reset"]).steps == [.reset])
        #expect(try Scene(["at=connect,answer=10"]).steps == packet(10, 0))
        let hung = try Scene(["at=connect,answer=hang"])
        hung.receive(GatewayBytes.frame(1))
        #expect(hung.steps == [.stopReading])
        #expect(hung.account.accepted == 0 && hung.account.droppedBytes == GatewayBytes.frame(1).count)
        hung.shutDown()
        #expect(hung.steps == [.stopReading, .close])
        let late = try Scene(["at=connect,answer=close,delay=1s"])
        #expect(late.steps == [] && late.connection.nextTime == 1_000_000)
    }

    @Test("ends without a packet for a refused client, and refuses one without a topic")
    func clients() throws {
        let refused = try Scene(["at=connect,answer=10"], client: .refused)
        refused.receive(GatewayBytes.frame(1))
        #expect(refused.steps == [.close])
        #expect(refused.account.refusedClients == 1 && refused.account.connections == 0)
        #expect(refused.account.accepted == 0 && refused.account.dropped == 1)
        let without = try Scene(client: .taken(topic: nil))
        without.receive(GatewayBytes.frame(1))
        #expect(without.steps == packet(3, 1))
    }

    @Test("shuts down with the last accepted notification, and hurries if it was already ending")
    func shutDown() throws {
        let idle = try Scene()
        idle.shutDown()
        #expect(idle.steps == packet(10, 0))
        let busy = try Scene()
        busy.receive(GatewayBytes.frame(1) + GatewayBytes.enhanced(2) + GatewayBytes.frame(3).dropLast())
        busy.shutDown()
        busy.receive(Array(GatewayBytes.frame(3).suffix(1)))
        #expect(busy.steps == packet(10, 2))
        #expect(busy.account.accepted == 2 && busy.account.dropped == 1)
        let late = try Scene(["answer=8,delay=1m,split=true"])
        late.receive(GatewayBytes.frame(4))
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
            let whole = try Scene(rules)
            whole.receive(stream)
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
