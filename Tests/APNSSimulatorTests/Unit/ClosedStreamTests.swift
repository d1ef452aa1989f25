import NIOCore
import TLS
import TestSupport
import Testing

@testable import APNSSimulator

/// RFC 9113, sections 5.1 and 5.1.1: HEADERS and DATA on streams that have ended or were skipped.
@Suite("The simulator's streams")
struct ClosedStreamTests {
    /// A frame from a client. It shares no code with the client of the project.
    enum Frame: Sendable {
        case headers(Int32, ends: Bool = true)
        case data(Int32, ends: Bool = true)
        case reset(Int32)
        case priority(Int32)
        case windowUpdate(Int32)
        /// Makes the simulator send its pending frames before it reads the next frame.
        case answers

        var bytes: [UInt8] {
            switch self {
            case .headers(let stream, let ends): Self.frame(1, ends ? 5 : 4, stream, Self.fields)
            case .data(let stream, let ends): Self.frame(0, ends ? 1 : 0, stream, Array(#"{"aps":{}}"#.utf8))
            case .reset(let stream): Self.frame(3, 0, stream, [0, 0, 0, 8])
            case .priority(let stream): Self.frame(2, 0, stream, [0, 0, 0, 0, 3])
            case .windowUpdate(let stream): Self.frame(8, 0, stream, [0, 0, 0, 9])
            case .answers: []
            }
        }

        static func frame(_ kind: UInt8, _ flags: UInt8, _ stream: Int32, _ payload: [UInt8]) -> [UInt8] {
            [0, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF), kind, flags, 0, 0]
                + [UInt8(stream >> 8), UInt8(stream & 0xFF)] + payload
        }

        private static let fields: [UInt8] = [
            (":method", "POST"), (":scheme", "https"), (":authority", "x"), (":path", "/3/device/" + anyToken),
            ("apns-topic", "com.example.app"), ("authorization", "bearer " + TestTokens.unsigned()),
        ].flatMap { name, value in [0] + string(name) + string(value) }

        private static func string(_ text: String) -> [UInt8] {
            var rest = text.utf8.count - 127
            guard rest >= 0 else { return [UInt8(text.utf8.count)] + Array(text.utf8) }
            var length: [UInt8] = [127]
            while rest >= 128 {
                length.append(UInt8(rest & 127) | 128)
                rest >>= 7
            }
            return length + [UInt8(rest)] + Array(text.utf8)
        }
    }

    private struct Seen {
        var answers: [Int32] = []
        /// The error code of the GOAWAY frame, or nil if there is none.
        var goAway: UInt8?
    }

    private func send(_ frames: [Frame]) throws -> Seen {
        let configuration = SimulatorConfiguration(identity: try TestCertificates.identity("server"))
        let moment = SimulatedMoment.now()
        let connection = try SimulatedConnection(SimulatedService(configuration), certificate: nil, at: moment)
        let start = Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8) + Frame.frame(4, 0, 0, []) + Frame.frame(4, 1, 0, [])
        var output = ByteBuffer()
        func write() {
            while case .write(let bytes)? = connection.next(at: moment) { output.writeImmutableBuffer(bytes) }
        }
        write()
        start.withUnsafeBytes { connection.receive($0, at: moment) }
        write()
        // A client may send frames before it has answers. Frames after a violation are not read.
        for frame in frames {
            frame.bytes.withUnsafeBytes { connection.receive($0, at: moment) }
            if case .answers = frame { write() }
        }
        write()
        var seen = Seen()
        while let head = output.readBytes(length: 9) {
            let payload = output.readBytes(length: Int(head[1]) << 8 | Int(head[2])) ?? []
            if head[3] == 1 { seen.answers.append(Int32(head[7]) << 8 | Int32(head[8])) }
            if head[3] == 7 { seen.goAway = payload[7] }
        }
        return seen
    }

    struct Violation: Sendable, CustomTestStringConvertible {
        let testDescription: String
        let frames: [Frame]
        /// The default is STREAM_CLOSED.
        var code: UInt8 = 5
    }

    /// The names are the names of h2spec's tests. Their numbers are sections of RFC 7540.
    static let violations = [
        Violation(testDescription: "5.1/6", frames: [.headers(1, ends: false), .data(1), .headers(1)]),
        Violation(testDescription: "5.1/6, answered", frames: [.headers(1), .answers, .headers(1)]),
        Violation(testDescription: "5.1/8", frames: [.headers(1, ends: false), .reset(1), .data(1)]),
        Violation(testDescription: "5.1/9", frames: [.headers(1, ends: false), .reset(1), .headers(1)]),
        Violation(testDescription: "5.1/11", frames: [.headers(1), .answers, .data(1)]),
        Violation(testDescription: "5.1/12", frames: [.headers(1), .answers, .headers(1)]),
        Violation(testDescription: "5.1.1/2", frames: [.headers(5), .answers, .headers(3)], code: 1),
    ]

    @Test("end the connection with the right code if the client uses them wrongly", arguments: violations)
    func violation(of one: Violation) throws {
        let seen = try send(one.frames + [.answers])
        #expect(seen.goAway == one.code, "\(seen)")
    }

    @Test("may have frames on the way when they end, and frames other than requests and bodies, and may be passed over")
    func onTheWay() throws {
        let seen = try send([
            // The first stream limit is 1, so the second stream is refused while its body is on the way.
            .headers(1, ends: false), .headers(3, ends: false), .answers, .data(3), .data(1), .answers,
            .reset(1), .windowUpdate(1), .priority(1), .reset(3), .priority(7), .headers(9, ends: false), .data(9),
            .answers, .headers(11), .reset(11), .reset(11), .headers(13, ends: false), .answers, .data(13, ends: false),
            .data(13), .answers,
        ])
        #expect(seen.goAway == nil && seen.answers.filter { [1, 9, 13].contains($0) } == [1, 9, 13], "\(seen)")
    }
}
