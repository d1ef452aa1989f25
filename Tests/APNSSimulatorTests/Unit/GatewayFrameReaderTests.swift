import APNS
import TestSupport
import Testing

@testable import APNSSimulator

@Suite("The reader of the gateway's frames")
struct GatewayFrameReaderTests {
    private struct Reading: Equatable {
        var notifications: [KeptNotification] = []
        var fault: GatewayFault?
    }

    private func read(_ pieces: [ArraySlice<UInt8>]) -> (Reading, mostKept: Int) {
        var reader = GatewayFrameReader()
        var reading = Reading()
        var mostKept = 0
        for piece in pieces {
            do throws(GatewayFault) {
                // ArraySlice's `withUnsafeBytes` has no typed throws.
                try Array(piece).withUnsafeBufferPointer { (bytes) throws(GatewayFault) in
                    try reader.read(UnsafeRawBufferPointer(bytes)) {
                        reading.notifications.append(KeptNotification($0))
                    }
                }
            } catch {
                reading.fault = error
                break
            }
            mostKept = max(mostKept, reader.rest.count)
        }
        return (reading, mostKept)
    }

    private func read(_ bytes: [UInt8]) -> Reading { read([bytes[...]]).0 }

    private func pieces(of bytes: [UInt8], _ size: Int) -> [ArraySlice<UInt8>] {
        stride(from: 0, to: bytes.count, by: size).map { bytes[$0...].prefix(size) }
    }

    @Test("reads notifications of all three commands with all fields")
    func commands() {
        let stream =
            GatewayBytes.simple() + GatewayBytes.enhanced(0x0102_0304, expiration: 0x0506_0708)
            + GatewayBytes.frame(0xFFFF_FFFF, expiration: 9, priority: 5)
        #expect(
            read(stream)
                == Reading(notifications: [
                    KeptNotification(0, token: GatewayBytes.token, payload: GatewayBytes.payload),
                    KeptNotification(
                        1, identifier: 0x0102_0304, expiration: 0x0506_0708, token: GatewayBytes.token,
                        payload: GatewayBytes.payload),
                    KeptNotification(
                        2, identifier: 0xFFFF_FFFF, expiration: 9, priority: 5, token: GatewayBytes.token,
                        payload: GatewayBytes.payload),
                ]))
    }

    @Test("reads missing and empty items as such, in any order")
    func missing() {
        let stream =
            GatewayBytes.frame([])
            + GatewayBytes.frame([
                GatewayBytes.item(5, [10]), GatewayBytes.item(3, [0, 0, 0, 7]), GatewayBytes.item(1, []),
            ]) + GatewayBytes.simple(token: [], payload: [])
        #expect(
            read(stream).notifications == [
                KeptNotification(2), KeptNotification(2, identifier: 7, priority: 10, token: []),
                KeptNotification(0, token: [], payload: []),
            ])
    }

    @Test("reads the same wherever the stream is split", arguments: [1, 2, 3, 7, 1000])
    func splits(_ size: Int) {
        let stream =
            GatewayBytes.frame(1) + GatewayBytes.simple() + GatewayBytes.enhanced(2) + GatewayBytes.frame([])
            + GatewayBytes.frame(3, token: [1, 2], payload: Array(repeating: 0x20, count: 3000))
        let whole = read(stream)
        #expect(whole.notifications.count == 5)
        #expect(read(pieces(of: stream, size)).0 == whole)
    }

    @Test("reads the same for every position of one split")
    func everySplit() {
        let stream = GatewayBytes.enhanced(1) + GatewayBytes.frame(2) + GatewayBytes.simple() + [9]
        let whole = read(stream)
        #expect(whole.fault == GatewayFault(kind: .unknownCommand(9)))
        for place in 0...stream.count { #expect(read([stream[..<place], stream[place...]]).0 == whole) }
    }

    @Test(
        "reports malformed frames",
        arguments: [
            ([3], GatewayFault(kind: .unknownCommand(3))), ([0x47], GatewayFault(kind: .unknownCommand(0x47))),
            ([2, 0xFF, 0, 0, 0], GatewayFault(kind: .frameTooLong(0xFF00_0000))),
            ([0, 0, 101], GatewayFault(kind: .tokenTooLong(101), isSimple: true)),
            ([1, 0, 0, 0, 9, 0, 0, 0, 0, 0xFF, 0xFF], GatewayFault(kind: .tokenTooLong(65_535), identifier: 9)),
            (GatewayBytes.frame([[6, 0, 0]]), GatewayFault(kind: .unknownItem(6))),
            (GatewayBytes.frame([[0, 0, 0]]), GatewayFault(kind: .unknownItem(0))),
            (
                GatewayBytes.frame([[3, 0, 4, 0, 0, 0, 5], [3, 0, 4, 0, 0, 0, 6]]),
                GatewayFault(kind: .duplicateItem(3), identifier: 5)
            ),
            (GatewayBytes.frame([[1, 0, 2, 0]]), GatewayFault(kind: .itemTooLong(1))),
            (GatewayBytes.frame([[3, 0, 3, 0, 0, 0]]), GatewayFault(kind: .wrongLength(3))),
            (GatewayBytes.frame([[4, 0, 0]]), GatewayFault(kind: .wrongLength(4))),
            (GatewayBytes.frame([[5, 0, 2, 0, 10]]), GatewayFault(kind: .wrongLength(5))),
            (GatewayBytes.frame([[5, 0, 1, 1]]), GatewayFault(kind: .badPriority(1))),
            (GatewayBytes.frame([[5, 0, 1, 10], [0]]), GatewayFault(kind: .leftover)),
            (GatewayBytes.frame([[5, 0, 1, 10], [1, 0]]), GatewayFault(kind: .leftover)),
        ] as [([UInt8], GatewayFault)])
    func faults(_ bytes: [UInt8], _ fault: GatewayFault) {
        #expect(read(bytes) == Reading(fault: fault))
        #expect(read(bytes.indices.map { bytes[$0...$0] }).0 == Reading(fault: fault))
        let before = read(GatewayBytes.frame(1) + bytes)
        #expect(before.notifications.count == 1 && before.fault == fault)
        let isTooLong = if case .tokenTooLong = fault.kind { true } else { false }
        #expect(fault.status == (isTooLong ? .invalidTokenSize : .protocolError))
    }

    @Test("never keeps more than one frame, nor one longer than the maximum")
    func bounded() {
        let endless =
            [2] + GatewayBytes.big(UInt32(GatewayNotification.maximumLength)) + Array(repeating: 0, count: 200_000)
        let (reading, mostKept) = read(pieces(of: endless, 1000))
        #expect(reading.fault == GatewayFault(kind: .unknownItem(0)))
        #expect(mostKept <= GatewayNotification.maximumLength + 5)
        let longest = GatewayBytes.frame(1, payload: Array(repeating: 0x20, count: 65_535))
        #expect(read(longest).notifications.first?.payload?.count == 65_535)
    }

    @Test("tolerates any bytes, and reads the same however they are split")
    func mutations() {
        var generator = TestSupport.SeededGenerator(seed: 7)
        var faults = 0
        var notifications = 0
        for _ in 0..<4000 {
            var stream: [UInt8] = []
            for number in 0..<UInt32.random(in: 1...5, using: &generator) {
                let token = Array(GatewayBytes.token.prefix(Int.random(in: 0...32, using: &generator)))
                switch Int.random(in: 0...2, using: &generator) {
                case 0: stream += GatewayBytes.simple(token: token)
                case 1: stream += GatewayBytes.enhanced(number, token: token)
                default: stream += GatewayBytes.frame(number, token: token)
                }
            }
            for _ in 0..<Int.random(in: 0...3, using: &generator) {
                let place = Int.random(in: stream.indices, using: &generator)
                switch Int.random(in: 0...3, using: &generator) {
                case 0: stream[place] = UInt8.random(in: 0...255, using: &generator)
                case 1: stream[place] ^= 1 << UInt8.random(in: 0...7, using: &generator)
                case 2 where stream.count > 1: stream.remove(at: place)
                default: stream.insert(UInt8.random(in: 0...8, using: &generator), at: place)
                }
            }
            let whole = read(stream)
            var pieces: [ArraySlice<UInt8>] = []
            var rest = stream[...]
            while !rest.isEmpty {
                let size = Int.random(in: 1...40, using: &generator)
                pieces.append(rest.prefix(size))
                rest = rest.dropFirst(size)
            }
            let (split, mostKept) = read(pieces)
            #expect(split == whole)
            #expect(mostKept <= 2 * 65_540)
            if whole.fault != nil { faults += 1 }
            notifications += whole.notifications.count
        }
        // The test proves something only if some inputs are valid and some are not.
        #expect(faults > 500 && notifications > 4000)
    }
}
