import NIOCore
import Testing

@testable import APNSSimulator

@Suite("The records of the simulated feedback service")
struct FeedbackTests {
    static func record(_ byte: UInt8, _ seconds: UInt32 = 9) -> FeedbackRecord {
        FeedbackRecord(
            token: GatewayBytes.token(byte).withUnsafeBufferPointer { SimulatedToken(bytes: $0) }, seconds: seconds)
    }

    static func tuple(_ byte: UInt8, _ seconds: UInt32 = 9) -> [UInt8] {
        GatewayBytes.big(seconds) + [0, 32] + GatewayBytes.token(byte)
    }

    @Test(
        "have each device once, with its last time, in the order of addition, and again after they were sent",
        arguments: [1, 2, 7])
    func listModel(_ step: Int) {
        var list = FeedbackList()
        var served: [FeedbackRecord] = []
        var expected: [FeedbackRecord] = []
        for round in 0..<100 {
            let added = (0..<5).map { Self.record(UInt8(round % 10 * 5 + $0), UInt32(round)) }
            for record in added where !expected.contains(where: { $0.token == record.token }) {
                expected.append(record)
            }
            expected = expected.map { known in added.first { $0.token == known.token } ?? known }
            for record in added { list.add(record) }
            let taken = list.take(step)
            #expect(taken == Array(expected.prefix(step)))
            expected.removeFirst(min(step, expected.count))
            served += taken
            #expect(list.count == expected.count)
        }
        #expect(served.count >= 100)
    }

    /// Serves until nothing is scheduled. Returns the pieces with their times, and whether the connection was closed.
    private func serve(
        _ fault: FeedbackAction?, _ list: inout FeedbackList
    ) -> (pieces: [[UInt8]], times: [Int64], closes: Bool) {
        var delivery = FeedbackDelivery(fault, seed: 5)
        var pieces: [[UInt8]] = []
        var times: [Int64] = []
        var time: Int64 = 0
        while true {
            switch delivery.next(at: time, { list.take($0) }) {
            case .write(let bytes)?:
                pieces.append(Array(buffer: bytes))
                times.append(time)
            case .close?: return (pieces, times, true)
            case .linger?, .drop?, .reset?, .stopReading?:
                Issue.record("neither is an action of this service")
                return (pieces, times, false)
            case nil:
                guard let next = delivery.nextTime else { return (pieces, times, false) }
                #expect(next > time)
                time = next
            }
        }
    }

    private func list(_ count: UInt8) -> FeedbackList {
        var list = FeedbackList()
        for byte in 1...count { list.add(Self.record(byte)) }
        return list
    }

    @Test("are limited: the oldest is dropped")
    func bounded() {
        var list = FeedbackList(limit: 3)
        let forgotten = (1...200).count { list.add(Self.record(UInt8($0))) }
        #expect(forgotten == 197 && list.count == 3)
        let isForgotten = list.add(Self.record(199))
        #expect(!isForgotten && list.count == 3, "it waits already")
        let served = serve(nil, &list)
        #expect(served.pieces == [Self.tuple(198) + Self.tuple(199) + Self.tuple(200)])
    }

    @Test("are sent in one piece, then the connection ends")
    func plain() {
        var list = list(3)
        let served = serve(nil, &list)
        #expect(served.pieces == [Self.tuple(1) + Self.tuple(2) + Self.tuple(3)] && served.closes)
        let again = serve(nil, &list)
        #expect(again.pieces.isEmpty && again.closes)
    }

    @Test("are sent slowly, a record at a time, or in odd pieces")
    func slow() throws {
        var all = list(4)
        let slow = serve(try FeedbackRule("slow=10ms").action, &all)
        #expect(slow.pieces == (1...4).map { Self.tuple($0) } && slow.closes)
        #expect(slow.times == [0, 10_000, 20_000, 30_000])
        all = list(40)
        let odd = serve(try FeedbackRule("pieces=1..7").action, &all)
        #expect(odd.pieces.flatMap { $0 } == (1...40).flatMap { Self.tuple($0) })
        #expect(Set(odd.pieces.map(\.count)) == Set(1...7) && odd.closes)
    }

    @Test("are sent up to a cut, and the next connection gets the rest", arguments: [0, 1, 37, 38, 50, 76, 1000])
    func cut(_ bytes: Int) throws {
        for pieces in ["", ",pieces=1..7"] {
            var list = list(3)
            let served = serve(try FeedbackRule("cut=\(bytes)\(pieces)").action, &list)
            let all = (1...3).flatMap { Self.tuple($0) }
            #expect(served.pieces.flatMap { $0 } == Array(all.prefix(bytes)) && served.closes)
            #expect(list.count == max(0, 3 - (bytes + 37) / 38))
        }
    }

    @Test("are sent without an end if the service hangs")
    func hangs() throws {
        var list = list(2)
        let served = serve(try FeedbackRule("hang=true").action, &list)
        #expect(served.pieces == [Self.tuple(1), Self.tuple(2)] && !served.closes)
    }

    @Test("faults apply to their first connections")
    func script() throws {
        #expect(try FeedbackRule("pieces=3").action.pieces == 3...3)
        var generator = APNSSimulator.SeededGenerator(seed: 1)
        var script = RuleScript([try FeedbackRule("cut=1,times=2"), try FeedbackRule("hang=true,times=1")])
        var cuts: [Int?] = []
        var hangs: [Bool?] = []
        for _ in 0..<4 {
            let fault = script.nextConnection(&generator)
            cuts.append(fault?.cut)
            hangs.append(fault?.hangs)
        }
        #expect(cuts == [1, 1, nil, nil] && hangs == [false, false, true, nil])
    }

    @Test("a file of records is read, and a mistake is reported without the token")
    func file() throws {
        let token = String(repeating: "0a", count: 32)
        let records = try FeedbackRecord.all(inFile: "\(token) 5\r\n\n  \(token.uppercased())ff\t4294967295")
        #expect(records.map(\.seconds) == [5, .max])
        #expect(records.map(\.token.hex) == [token, token + "ff"])
        #expect(records[1].bytes == [255, 255, 255, 255, 0, 33] + records[1].token.bytes)
        for (text, line) in [
            ("\(token)", 1), ("\(token) 1 2", 1), ("\n\(token) -1", 2), ("\n\nxyz 1", 3), ("\(token) 4294967296", 1),
        ] {
            let error = #expect(throws: SimulatorError.self) { try FeedbackRecord.all(inFile: text) }
            #expect(error?.description.hasPrefix("line \(line): ") == true)
            #expect(error?.description.contains(token) == false)
        }
    }
}
