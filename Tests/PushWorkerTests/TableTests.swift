import APNS
import NIOCore
import TestSupport
import Testing

@testable import PushWorker

@Suite("A lane's tables")
struct TableTests {
    @Test("keep each entry at its index until it is released, and use the index again")
    func indices() {
        let table = EntryTable<FlightEntry>()
        let first = table.insert(FlightEntry(job: 1))
        let second = table.insert(FlightEntry(job: 2))
        check(table[first].job == 1 && table[second].job == 2 && table.count == 2)
        table.release(first)
        check(table[second].job == 2 && table.count == 1)
        check(table.insert(FlightEntry(job: 3)) == first)
    }

    @Test("line entries up in order, through any mixture of coming and going", arguments: 0..<50)
    func lines(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let table = EntryTable<FlightEntry>()
        var line = EntryQueue()
        var model: [Int] = []
        for _ in 0..<300 {
            if Bool.random(using: &random) {
                let index = table.insert(FlightEntry())
                line.append(index, in: table)
                model.append(index)
            } else {
                let index = line.removeFirst(in: table)
                check(index == model.first)
                if let index {
                    model.removeFirst()
                    table.release(index)
                }
            }
            check(line.count == model.count && line.isEmpty == model.isEmpty && line.head == model.first ?? -1)
        }
    }
}

@Suite("Lines of a lane's tables")
struct EntryQueueTests {
    @Test("a line goes before another as a whole, whichever of them is empty", arguments: 0..<3, 0..<3)
    func before(_ first: Int, _ second: Int) {
        let table = EntryTable<FlightEntry>()
        var (line, other) = (EntryQueue(), EntryQueue())
        var model: [Int] = []
        for number in 0..<first + second {
            let index = table.insert(FlightEntry(job: number))
            model.append(index)
            if number < first { other.append(index, in: table) } else { line.append(index, in: table) }
        }
        line.prepend(contentsOf: other, in: table)
        let last = table.insert(FlightEntry())
        line.append(last, in: table)
        check(line.count == model.count + 1)
        for index in model + [last] { check(line.removeFirst(in: table) == index) }
        check(line.isEmpty && line.count == 0)
    }
}

@Suite("A derived apns-id")
struct NotificationIDTests {
    private func id(_ job: String, _ token: String) -> APNSID {
        APNSID(jobID: ByteBuffer(string: job), token: ByteBuffer(string: token))
    }

    @Test("is the same for the same job and token, wherever it is made")
    func stable() {
        // A constant on purpose: workers of different builds share a queue.
        check(id("job-1", "00ff").description == id("job-1", "00ff").description)
        check(APNSID(Array(id("job-1", "00ff").description.utf8)) == id("job-1", "00ff"))
    }

    @Test("differs between jobs, tokens, and where one ends and the other begins")
    func distinct() {
        var seen: Set<APNSID> = []
        for job in 0..<200 {
            for token in 0..<200 { seen.insert(id("job-\(job)", "token-\(token)")) }
        }
        check(seen.count == 40_000)
        check(id("ab", "c") != id("a", "bc"))
        check(id("", "") != id("", "a"))
    }

    @Test("is a UUID of version 8 and the standard variant")
    func uuid() {
        let text = Array(id("job", "token").description.utf8)
        check(text[14] == UInt8(ascii: "8"))
        check([UInt8(ascii: "8"), UInt8(ascii: "9"), UInt8(ascii: "a"), UInt8(ascii: "b")].contains(text[19]))
    }
}

@Suite("A job's tally")
struct JobTallyTests {
    private func buffer(_ text: String) -> ByteBuffer { ByteBuffer(string: text) }

    @Test("gathers the tokens to be sent again, the longest pause, and whether an attempt is spent")
    func retries() {
        let tally = JobTally()
        tally.add(retry: [buffer("a")], reason: "Parked", status: nil, delay: 5, spendsAttempt: false)
        tally.add(retry: [buffer("b")], reason: "Busy", status: 503, delay: 3, spendsAttempt: true)
        check(tally.retry?.tokens == [buffer("a"), buffer("b")])
        check(tally.retry?.delay == 5)
        check(tally.retry?.spendsAttempt == true)
        check(tally.retry?.reason == "Busy" && tally.retry?.status == 503)
    }

    @Test("counts the ways of ending that need only counting")
    func kinds() {
        let tally = JobTally()
        check(tally.kinds == 0)
        tally.delivered = 3
        tally.expired = 1
        check(tally.kinds == 2)
    }
}
