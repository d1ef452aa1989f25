import APNS
import NIOCore
import PushQueue
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

    @Test(
        "of eight jobs that wait, one that failed has its turn, and those that failed have all turns that others leave")
    func turns() {
        let jobs = Table<JobID, ActiveJob>()
        defer { jobs.deallocate() }
        var line = ReadyLine()
        for index in 0..<40 {
            let id = jobs.insert()
            jobs[id].isFresh = index % 2 == 0
            line.append(id, in: jobs)
        }
        var failed: [Bool] = []
        while let id = line.removeFirst(in: jobs) { failed.append(!jobs[id].isFresh) }
        #expect(failed.count == 40 && failed.prefix(16).count(where: \.self) == 2)
        #expect(failed.firstIndex(of: true) == 7 && failed.suffix(16).allSatisfy(\.self))
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
        for job in 0..<200 { for token in 0..<200 { seen.insert(id("job-\(job)", "token-\(token)")) } }
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

    @Test("Notifications to be sent later are grouped by reason, status, attempt and delay")
    func postponed() {
        let tally = JobTally()
        let all: [(String, Postponement, Reason, Int?, Int64, Settlement.AttemptRule?)] = [
            ("a", .deferred, "Deferred", nil, 5, nil), ("b", .retried, "Busy", 503, 300, nil),
            ("c", .retried, "Busy", 503, 700, nil), ("d", .retried, "Busy", 503, 120_000, nil),
            ("e", .retried, "Busy", 503, 125_000, nil), ("f", .retried, "Busy", 503, 700, .never),
            ("g", .retried, "Busy", 500, 700, nil), ("h", .retried, "Other", 503, 700, nil),
        ]
        for (token, kind, reason, status, delay, attempt) in all {
            tally.add(
                postponed: .some([buffer(token)]), kind, reason: reason, status: status, delay: delay,
                attempt: attempt)
        }
        let groups = tally.postponed.map { $0.recipients.tokens.map { String(buffer: $0) }.joined() }
        #expect(groups == ["a", "bc", "de", "f", "g", "h"])
        #expect(tally.postponed.map(\.delay) == [5, 700, 125_000, 700, 700, 700])
        #expect(tally.postponed.map(\.attempt) == [.never, .always, .always, .never, .always, .always])
    }

    @Test("The number of groups is bounded; beyond it, only the delays in a group differ more")
    func manyDelays() {
        let tally = JobTally()
        for step in 0..<1000 {
            let delay = Int64(step) * 1000
            tally.add(postponed: .some([buffer("\(step)")]), .retried, reason: "Busy", status: 503, delay: delay)
            let group = tally.postponed.first { $0.recipients.tokens.contains(buffer("\(step)")) }
            #expect(group.map { $0.delay >= delay } == true)
        }
        tally.add(postponed: .some([buffer("x")]), .deferred, reason: "Other", status: nil, delay: 7)
        #expect(tally.postponed.count == 9 && tally.postponed.last?.delay == 7)
        #expect(tally.postponed.reduce(0) { $0 + $1.recipients.count } == 1001)
    }

    @Test("Dead letters are grouped by reason, last failure and status")
    func dead() {
        let tally = JobTally()
        let all: [(String, Reason, Reason?, Int?)] = [
            ("a", "x", nil, nil), ("b", "y", nil, nil), ("c", "x", nil, nil), ("d", "x", "Busy", 503),
            ("e", "x", "NoAnswer", nil), ("f", "x", "Busy", 503), ("g", "x", "Busy", 500),
        ]
        for (token, reason, cause, status) in all {
            tally.add(dead: .some([buffer(token)]), reason: reason, cause: cause, status: status)
        }
        let groups = tally.dead.map { $0.recipients.tokens.map { String(buffer: $0) }.joined() }
        #expect(groups == ["ac", "b", "df", "e", "g"])
    }
}

extension JobTally.Recipients {
    fileprivate var tokens: [ByteBuffer] {
        switch self {
        case .all: []
        case .some(let tokens): tokens
        }
    }
}
