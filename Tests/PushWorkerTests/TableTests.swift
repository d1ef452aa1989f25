import APNS
import NIOCore
import TestSupport
import Testing

@testable import PushWorker

@Suite("A lane's tables")
struct TableTests {
    @Test("keep each entry at its index until it is released, and use the index again")
    func indices() {
        let table = Table<FlightID, InFlight>()
        defer { table.deallocate() }
        let first = table.insert(job: 1)
        let second = table.insert(job: 2)
        #expect(table[first].job.index == 1 && table[second].job.index == 2 && table.count == 2)
        table.remove(first)
        #expect(table[second].job.index == 2 && table.count == 1)
        #expect(table.insert(job: 3) == first)
    }

    @Test("keep entries in order through any mixture of insertions and removals", arguments: 0..<50)
    func lines(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let table = Table<FlightID, InFlight>()
        defer { table.deallocate() }
        var line = Line<FlightID>()
        var model: [FlightID] = []
        for _ in 0..<300 {
            if Bool.random(using: &random) {
                let index = table.insert()
                line.append(index, in: table)
                model.append(index)
            } else {
                let index = line.removeFirst(in: table)
                #expect(index == model.first)
                if let index {
                    model.removeFirst()
                    table.remove(index)
                }
            }
            #expect(line.count == model.count && line.isEmpty == model.isEmpty && line.first == model.first)
        }
    }
}

@Suite("Lines of a lane's tables")
struct LineTests {
    @Test("a line is prepended to another as a whole, even if one is empty", arguments: 0..<3, 0..<3)
    func before(_ first: Int, _ second: Int) {
        let table = Table<FlightID, InFlight>()
        defer { table.deallocate() }
        var (line, other) = (Line<FlightID>(), Line<FlightID>())
        var model: [FlightID] = []
        for number in 0..<first + second {
            let index = table.insert(job: number)
            model.append(index)
            if number < first { other.append(index, in: table) } else { line.append(index, in: table) }
        }
        line.prepend(contentsOf: other, in: table)
        let last = table.insert()
        line.append(last, in: table)
        #expect(line.count == model.count + 1)
        for index in model + [last] { #expect(line.removeFirst(in: table) == index) }
        #expect(line.isEmpty && line.count == 0)
    }
}

extension Table<FlightID, InFlight> {
    fileprivate func insert(job: Int) -> FlightID {
        let id = insert()
        self[id].job = JobID(index: job)
        return id
    }
}

@Suite("A derived apns-id")
struct NotificationIDTests {
    private func id(_ job: String, _ token: String) -> APNSID {
        APNSID(jobID: ByteBuffer(string: job), token: ByteBuffer(string: token))
    }

    @Test("is the same for the same job and token in every build and on every machine")
    func stable() {
        // The values must not change, because workers of different builds share a queue.
        #expect(id("job-1", "00ff").description == "e6a6caa5-5dc9-89a5-a51d-c57d2966be4a")
        let token = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
        #expect(id("order-7", token).description == "b0bfc6b5-8974-8cff-af1f-221ad60bc293")
        #expect(APNSID(Array(id("job-1", "00ff").description.utf8)) == id("job-1", "00ff"))
    }

    @Test("differs between jobs, tokens, and the boundary between them")
    func distinct() {
        var seen: Set<APNSID> = []
        for job in 0..<200 {
            for token in 0..<200 { seen.insert(id("job-\(job)", "token-\(token)")) }
        }
        #expect(seen.count == 40_000)
        #expect(id("ab", "c") != id("a", "bc"))
        #expect(id("", "") != id("", "a"))
    }

    @Test("is a UUID of version 8 and the standard variant")
    func uuid() {
        let text = Array(id("job", "token").description.utf8)
        #expect(text[14] == UInt8(ascii: "8"))
        #expect([UInt8(ascii: "8"), UInt8(ascii: "9"), UInt8(ascii: "a"), UInt8(ascii: "b")].contains(text[19]))
    }
}

@Suite("A job's tally")
struct JobTallyTests {
    private func buffer(_ text: String) -> ByteBuffer { ByteBuffer(string: text) }

    @Test("gathers the tokens to be sent later, the longest pause, and whether an attempt is spent")
    func postponed() {
        let tally = JobTally()
        tally.add(postponed: [buffer("a")], .deferred, reason: "Deferred", status: nil, delay: 5)
        tally.add(postponed: [buffer("b")], .retried, reason: "Busy", status: 503, delay: 3)
        let postponed = tally.postponed
        #expect(postponed?.tokens == [buffer("a"), buffer("b")] && postponed?.delay == 5)
        #expect(postponed?.kind == .retried && postponed?.reason == "Busy" && postponed?.status == 503)
    }

    @Test("gathers the tokens of dead letters by reason")
    func dead() {
        let tally = JobTally()
        for (token, reason) in [("a", "x"), ("b", "y"), ("c", "x")] as [(String, Reason)] {
            tally.add(dead: buffer(token), reason: reason, cause: nil, status: nil)
        }
        #expect(tally.dead.map(\.tokens) == [[buffer("a"), buffer("c")], [buffer("b")]])
    }
}
