import Foundation
import NIOCore
import TestSupport
import Testing

@testable import APNS

/// Feeds the same bytes to nghttp2's client and to ours, and compares all answers.
@Suite("HTTP/2, compared with nghttp2", .timeLimit(.minutes(10)))
struct HTTP2ReferenceTests {
    private static let requests = 6

    private enum Comparison: Equatable {
        case equal
        case equalUntil(Difference)
        case different([String], piece: Int)
    }

    private enum Difference: Hashable {
        /// nghttp2 ends the connection, although it would be enough to end the stream (RFC 9113 §5.4).
        case severity
        /// nghttp2 ignores a malformed field. For us it makes the answer malformed (RFC 9113 §8.2.1).
        case malformedField
        /// nghttp2 rejects some frames and header blocks before their end.
        case incomplete
        /// nghttp2 reads nothing more when all streams have ended after a GOAWAY.
        case end
    }

    /// Feeds the pieces to both clients, and compares them after each piece, or at the end.
    private func compare(_ pieces: [some Sequence<UInt8>], afterEach: Bool = true) -> Comparison {
        let (own, reference) = (OwnClient(), ReferenceClient())
        let settings = HTTP2Frame.settings(maximumStreams: 100).bytes + HTTP2Frame.settingsAcknowledgement.bytes
        own.receive(settings)
        reference.receive(settings)
        for _ in 0..<Self.requests {
            own.submit()
            reference.submit()
        }
        for (number, piece) in pieces.enumerated() {
            own.receive(piece)
            reference.receive(piece)
            guard afterEach || number == pieces.count - 1 else { continue }
            let differences = own.view.differences(from: reference.view)
            guard !differences.isEmpty else { continue }
            if own.session.streams.headers.incomplete != nil || !own.session.partial.isEmpty {
                return .equalUntil(.incomplete)
            }
            let ownResets = own.view.resets.filter { reference.view.resets[$0.key] != $0.value }
            if reference.hasStopped, reference.view.leaves == nil { return .equalUntil(.end) }
            if ownResets.count == 1, own.view.leaves == nil, let code = ownResets.values.first {
                if reference.view.leaves == code { return .equalUntil(.severity) }
                if reference.view.leaves == nil, code == 1 { return .equalUntil(.malformedField) }
            }
            return .different(differences, piece: number)
        }
        return .equal
    }

    private func view(_ pieces: [some Sequence<UInt8>]) -> ClientView {
        let own = OwnClient()
        own.receive(HTTP2Frame.settings(maximumStreams: 100).bytes + HTTP2Frame.settingsAcknowledgement.bytes)
        for _ in 0..<Self.requests { own.submit() }
        for piece in pieces { own.receive(piece) }
        return own.view
    }

    private static let ping = HTTP2Frame(kind: .ping, payload: Array(1...8))

    /// A conversation with each kind of frame that a good server sends.
    private static let conversation: [[UInt8]] = [
        HTTP2Frame.answer(1, hasID: false, status: 200), ping,
        .raw(.ping, 1, 0, Array(1...8)),
        .answer(3, hasID: false, status: 400, fields: [("content-length", "24"), ("x", "y")], ends: false),
        .data(3, "{\"reason\":", ends: false), .data(3, "\"BadTopic\"}   "),
        .answer(5, hasID: false, status: 103, ends: false),
        .answer(5, hasID: false, status: 503, fields: [("retry-after", "7")]),
        .reset(7, code: 7),
        .raw(.windowUpdate, 0, 0, [0, 0, 16, 0]),
        .settings([(1, 100), (4, 70_000), (5, 20_000), (99, 1)]),
        .raw(.headers, 0, 9, [0x88]),
        .raw(.continuation, 0, 9, [0x40, 1, 0x78]),
        .raw(.continuation, 4, 9, [1, 0x79]),
        .raw(.data, 8, 9, [3, 65, 66, 0, 0, 0]),
        // Trailers.
        .raw(.headers, 5, 9, [0xBE]),
        .raw(.priority, 0, 11, [0, 0, 0, 0, 3]),
        .goAway(lastStream: .max), .goAway(lastStream: 11, code: 0, debugData: "bye"),
        // With padding and a priority.
        .raw(.headers, 0x2D, 11, [2, 0, 0, 0, 0, 3, 0x88, 0, 0]),
    ].map(\.bytes)

    @Test("a conversation is interpreted the same, split at every byte")
    func everySplit() {
        let bytes = Self.conversation.flatMap(\.self)
        #expect(compare(Self.conversation) == .equal)
        for split in 1..<bytes.count {
            #expect(compare([bytes[..<split], bytes[split...]], afterEach: false) == .equal, "split at \(split)")
        }
        let whole = view([bytes])
        #expect(whole.answers.values.count { $0.code == 0 && $0.status >= 200 } == 5 && whole.leaves == nil)
        #expect(view(bytes.indices.map { bytes[$0...$0] }) == whole)
    }

    /// Returns frames that are mostly valid; some violate a rule.
    private func frames(_ generator: inout SeededGenerator) -> [[UInt8]] {
        func any(_ count: Int) -> [UInt8] { (0..<count).map { _ in UInt8.random(in: 0...255, using: &generator) } }
        func one<Choice>(of choices: [Choice]) -> Choice { choices.randomElement(using: &generator)! }
        func number<Number: FixedWidthInteger>(_ range: ClosedRange<Number>) -> Number {
            .random(in: range, using: &generator)
        }
        var frames: [[UInt8]] = []
        for _ in 0..<Int.random(in: 1...14, using: &generator) {
            let stream: Int32 = one(of: [0, 1, 1, 3, 3, 5, 5, 7, 9, 11, 11, 2, 13])
            let open = 2 * Int32.random(in: 0..<6, using: &generator) + 1
            let frame: HTTP2Frame
            switch Int.random(in: 0..<26, using: &generator) {
            case 0..<5:
                let status = one(of: [200, 200, 400, 410, 503, 103, 100])
                frame = .answer(open, hasID: false, status: status, ends: Bool.random(using: &generator))
            case 5..<9: frame = .data(open, "0123456789", ends: Bool.random(using: &generator))
            case 9: frame = .reset(stream, code: number(0...14))
            case 10: frame = .settings([(number(0...8), one(of: [0, 1, 100, 16_384, 70_000, 1 << 24, 1 << 31]))])
            case 11: frame = .raw(.ping, number(0...1), one(of: [0, 0, 0, 1]), any(one(of: [8, 8, 8, 7])))
            case 12: frame = .goAway(lastStream: one(of: [0, 3, 7, 11, .max]), code: number(0...3))
            case 13:
                let increments: [[UInt8]] = [
                    [0, 0, 0, 1], [0, 0, 0, 0], [0x7F, 0xFF, 0xFF, 0xFF], [0x80, 0, 0, 1], [1],
                ]
                frame = .raw(.windowUpdate, 0, stream, one(of: increments))
            case 14: frame = .raw(.priority, 0, stream, any(one(of: [5, 5, 4])))
            case 15: frame = .raw(.continuation, number(0...4), stream, [0x88])
            case 16: frame = .raw(.headers, 1, open, [0x88])
            case 17: frame = .raw(.headers, one(of: [4, 5, 0xC]), stream, [2, 0x88, 0, 0])
            case 18: frame = .raw(.data, 8, open, [number(0...6)] + any(5))
            case 19: frame = .raw(.headers, 5, open, any(4))
            case 20: frame = .settingsAcknowledgement
            case 21: frame = .raw(.pushPromise, 4, open, [0, 0, 0, 2, 0x82])
            case 22:
                let fields = [("content-length", "10")]
                frame = .answer(open, hasID: false, status: 400, fields: fields, ends: Bool.random(using: &generator))
            case 23:
                // An unknown type of frame.
                frames.append([0, 0, 2, 0x2A, 0xFF] + [0, 0, 0, UInt8(truncatingIfNeeded: stream)] + any(2))
                continue
            case 24: frame = .data(stream, "x")
            default: frame = .raw(.headers, 5, open, [0xBE, 0x40, 1, 0x78, 1, 0x79])
            }
            frames.append(frame.bytes)
        }
        // Sometimes changes a byte.
        if Int.random(in: 0..<6, using: &generator) == 0, let frame = frames.indices.randomElement(using: &generator),
            let place = frames[frame].indices.randomElement(using: &generator)
        {
            frames[frame][place] = .random(in: 0...255, using: &generator)
        }
        return frames
    }

    private static func described(_ bytes: [UInt8]) -> String {
        var (rest, text) = (bytes[...], "")
        while rest.count >= 9 {
            let head = Array(rest.prefix(9))
            let length = Int(head[0]) << 16 | Int(head[1]) << 8 | Int(head[2])
            let payload = Array(rest.dropFirst(9).prefix(min(length, 40)))
            text += "\nkind \(head[3]) flags \(head[4]) stream \(Array(head[5...])) \(payload)"
            rest = rest.dropFirst(9 + length)
        }
        return text + "\nrest \(Array(rest))"
    }

    @Test("thousands of conversations, valid and hostile, are interpreted the same in any pieces")
    func generated() {
        let seeds = ProcessInfo.processInfo.environment["APNS_WORKER_HTTP2_SEEDS"].flatMap { Int($0) } ?? 5000
        var seen: [Difference: Int] = [:]
        var (equal, failures) = (0, 0)
        for seed in 0..<UInt64(seeds) {
            var generator = SeededGenerator(seed: seed)
            let frames = frames(&generator)
            let bytes = frames.flatMap(\.self)
            switch compare(frames) {
            case .equal: equal += 1
            case .equalUntil(let difference): seen[difference, default: 0] += 1
            case .different(let differences, let piece):
                Issue.record("seed \(seed), piece \(piece): \(differences); \(Self.described(bytes))")
                failures += 1
                guard failures < 5 else { return }
            }
            let split = Int.random(in: 0...bytes.count, using: &generator)
            guard view([bytes]) == view([bytes[..<split], bytes[split...]]) else {
                Issue.record("seed \(seed): another view if split at \(split)")
                return
            }
        }
        // In most conversations, both clients are equal to the end.
        #expect(equal > seeds / 2 && seen.count >= 3, "\(equal) \(seen)")
    }
}
