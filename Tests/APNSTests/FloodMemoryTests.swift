import TestSupport
import Testing

@testable import APNS

@Suite("A pool's memory", .serialized, .timeLimit(.minutes(10)))
struct FloodMemoryTests {
    static let floods: [(name: String, frames: [HTTP2Frame])] = [
        ("PING", [HTTP2Frame(kind: .ping, payload: Array(repeating: 1, count: 8))]),
        ("SETTINGS", [.settings(maximumStreams: 100)]),
        (
            "header fields",
            [
                HTTP2Frame(
                    kind: .headers, flags: 4, stream: 1,
                    payload: [0x08, 3] + Array("103".utf8) + [0x40, 1, 0x78, 0x7F, 0xA1, 0x1E]
                        + Array(repeating: 0x79, count: 4000) + Array(repeating: 0xBE, count: 12_000))
            ]
        ),
    ]

    @Test("is bounded through floods of more than 50 MB, and all notifications are sent", arguments: floods.indices)
    func kept(index: Int) async throws {
        let flood = Self.floods[index].frames
        let first = flood.flatMap(\.bytes)
        // Repeats the flood's last frame.
        let more = Array(
            repeating: flood[flood.count - 1].bytes, count: 65_536 / flood[flood.count - 1].bytes.count + 1
        )
        .flatMap { $0 }
        // Each connection receives this much before it is closed: more than 50 MB in total.
        let connections = 52_000_000 / FloodGauge.burst
        let script: ScriptedPeer.Script = { connection, event in
            guard connection.number <= connections else { return answersAll(connection, event) }
            switch event {
            case .connected: connection.send(.settings(maximumStreams: 10))
            case .frame(let frame):
                guard frame.kind == .data, frame.stream == 1 else { return }
                // The peer does not read the client's answers.
                connection.stopReading()
                connection.send(bytes: first)
                connection.flood(more)
            }
        }
        try await withPeer(sendBuffer: 65_536, script: script) { peer in
            let probe = try ChildProcess(
                BuiltProgram.path("PoolProbe"), [TestCertificates.path("ca.pem"), "\(peer.port)", "100"])
            let ending = try await probe.wait(within: .seconds(240))
            guard ending == .exited(0) else { throw probe.failure("\(ending)") }
            let numbers = probe.output.split(whereSeparator: \.isWhitespace).compactMap { Int($0) }
            try #require(numbers.count == 3)
            let (failures, before, peak) = (numbers[0], numbers[1], numbers[2])
            let flooded = peer.seen.withLockedValue(\.flooded)
            #expect(flooded > 50_000_000)
            // A closed connection is not read until the peer ends it.
            #expect(flooded < connections * 8_000_000, "\(flooded) bytes were accepted")
            // Each connection failed. With a header block that is too large, it fails after fewer bytes.
            #expect(failures == connections)
            #expect(before > 1000)
            // The limit is in KiB: less than a third of the flood.
            #expect(peak - before < 16 * 1024, "\(before) KiB grew to \(peak) KiB in \(failures) connections")
        }
    }
}
