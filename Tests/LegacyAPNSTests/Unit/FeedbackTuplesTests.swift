import NIOCore
import TestSupport
import Testing

@testable import APNS
@testable import LegacyAPNS

@Suite("Tuples of a feedback service")
struct FeedbackTuplesTests {
    private static func all(_ pieces: [ByteBuffer]) throws -> (tuples: [FeedbackTuple], remaining: Int) {
        var tuples = FeedbackTuples()
        var taken: [FeedbackTuple] = []
        for piece in pieces {
            tuples.append(piece)
            while let tuple = try tuples.next() { taken.append(tuple) }
        }
        return (taken, tuples.remainingBytes)
    }

    @Test("are read as they are written")
    func one() throws {
        let bytes: [UInt8] = [0x00, 0x00, 0x01, 0x02, 0, 4, 0x00, 0xFC, 0x13, 0xAD]
        let (tuples, remaining) = try Self.all([ByteBuffer(bytes: bytes)])
        #expect(tuples == [FeedbackTuple(seconds: 258, token: try DeviceToken("00fc13ad"))])
        #expect(remaining == 0)
    }

    @Test("are the same however they are split, with tokens of any length", arguments: 0..<40 as Range<UInt64>)
    func splits(seed: UInt64) throws {
        var random = SeededGenerator(seed: seed)
        var (bytes, expected): ([UInt8], [FeedbackTuple]) = ([], [])
        for _ in 0..<Int.random(in: 0...60, using: &random) {
            let length = [1, 2, 31, 32, 33, 99, 100].randomElement(using: &random) ?? 32
            let token = (0..<length).map { _ in UInt8.random(in: 0...255, using: &random) }
            let hex = token.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
            let seconds = [UInt32]([0, 1, 1_792_800_000, .max]).randomElement(using: &random) ?? 0
            expected.append(FeedbackTuple(seconds: seconds, token: try DeviceToken(hex)))
            bytes += FeedbackServer.tuple(seconds, hex)
        }
        let cut = Int.random(in: 0...5, using: &random)
        bytes += [UInt8](repeating: 0, count: cut)
        var (pieces, rest): ([ByteBuffer], ArraySlice<UInt8>) = ([], bytes[...])
        let largest = [1, 3, 7, 50, 5000].randomElement(using: &random) ?? 1
        while !rest.isEmpty {
            let piece = rest.prefix(Int.random(in: 0...largest, using: &random))
            pieces.append(ByteBuffer(bytes: piece))
            rest = rest.dropFirst(piece.count)
        }
        let (tuples, remaining) = try Self.all(pieces)
        #expect(tuples == expected)
        #expect(remaining == cut)
    }

    @Test("with an invalid token are an error with the position, each time", arguments: [101, 65535])
    func malformed(length: Int) throws {
        let good = FeedbackServer.tuple(7, "00fc")
        var tuples = FeedbackTuples()
        tuples.append(ByteBuffer(bytes: good + good + [0, 0, 0, 1, UInt8(length >> 8), UInt8(length & 0xFF)]))
        let first = try tuples.next()
        let second = try tuples.next()
        #expect(first == second && first?.seconds == 7)
        for _ in 0..<2 {
            let error = #expect(throws: FeedbackTuples.Malformed.self) { try Self.next(&tuples) }
            #expect(error?.offset == 16 && error?.tokenLength == length)
            #expect(error?.description.contains("byte 16") == true)
        }
    }

    @Test("without a token are skipped and counted", arguments: [1, 3, 100])
    func withoutToken(piece: Int) throws {
        let good = FeedbackServer.tuple(7, "00fc")
        let empty: [UInt8] = [0, 0, 0, 1, 0, 0]
        let bytes = empty + good + empty + empty + good + empty
        var (tuples, found) = (FeedbackTuples(), 0)
        for start in stride(from: 0, to: bytes.count, by: piece) {
            tuples.append(ByteBuffer(bytes: bytes[start..<min(start + piece, bytes.count)]))
            while let tuple = try tuples.next() {
                #expect(tuple.seconds == 7)
                found += 1
            }
        }
        #expect(found == 2 && tuples.skipped == 4 && tuples.remainingBytes == 0)
    }

    private static func next(_ tuples: inout FeedbackTuples) throws -> FeedbackTuple? { try tuples.next() }

    @Test("that are incomplete are not returned yet")
    func incomplete() throws {
        let bytes = FeedbackServer.tuple(7, "00fc13ad")
        for count in 0..<bytes.count {
            let (tuples, remaining) = try Self.all([ByteBuffer(bytes: bytes.prefix(count))])
            #expect(tuples.isEmpty && remaining == count)
        }
    }
}
