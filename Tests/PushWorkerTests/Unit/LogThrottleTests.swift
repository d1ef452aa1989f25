import NIOCore
import TestSupport
import Testing

@testable import PushWorker

@Suite("Occurrences that are logged rarely")
struct LogThrottleTests {
    private var throttle = LogThrottle<String>()
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    @Test("are logged at once, and then once a minute with their number")
    mutating func counted() {
        #expect(throttle.occurred("a", now: start) { "first" } == 1)
        for second in 1..<60 {
            #expect(throttle.occurred("a", count: 1000, now: start + .seconds(Int64(second))) { "no line" } == nil)
        }
        #expect(throttle.occurred("a", now: start + .seconds(60)) { "second" } == 59_001)
        #expect(throttle.occurred("a", now: start + .seconds(61)) { "no line" } == nil)
        #expect(throttle.occurred("a", now: start + .minutes(10)) { "third" } == 2)
    }

    @Test("are logged when the minute is over even if there are no more, and at the end")
    mutating func overdue() {
        #expect(throttle.overdue(now: start).count == 0)
        for name in ["b", "a"] { for _ in 0..<5 { _ = throttle.occurred(name, now: start) { "line \(name)" } } }
        #expect(throttle.overdue(now: start + .seconds(59)).count == 0)
        let due = throttle.overdue(now: start + .seconds(60))
        #expect(due.map(\.line) == ["line a", "line b"] && due.map(\.count) == [4, 4])
        #expect(throttle.overdue(now: start + .minutes(5)).count == 0)
        _ = throttle.occurred("a", now: start + .minutes(2)) { "again" }
        _ = throttle.occurred("a", now: start + .minutes(2)) { "no line" }
        #expect(throttle.overdue(now: start + .minutes(2)).count == 0)
        #expect(throttle.overdue(now: start + .minutes(2), all: true).map(\.line) == ["again"])
    }

    @Test("are bounded in memory")
    mutating func bounded() {
        var logged = 0
        for number in 0..<5000 where throttle.occurred("\(number)", now: start, line: { "" }) != nil { logged += 1 }
        #expect(logged == LogThrottle<String>.maximumKinds)
        #expect(throttle.occurred("new", now: start + .minutes(2)) { "" } == 1)
    }

    @Test("are counted correctly in any order of events", arguments: 0..<100)
    mutating func anyOrder(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var now = start
        var (happened, logged) = ([0, 0, 0], [0, 0, 0])
        var lastLogged: [NIODeadline?] = [nil, nil, nil]
        func log(_ kind: Int, _ count: Int) {
            if let last = lastLogged[kind] { #expect(now - last >= .minutes(1)) }
            lastLogged[kind] = now
            logged[kind] += count
        }
        for _ in 0..<1000 {
            now = now + .milliseconds(Int64.random(in: 0...5000, using: &random))
            let kind = Int.random(in: 0..<3, using: &random)
            let count = Int.random(in: 1...5, using: &random)
            happened[kind] += count
            if let count = throttle.occurred("\(kind)", count: count, now: now, line: { "\(kind)" }) {
                log(kind, count)
            }
            guard Bool.random(using: &random) else { continue }
            for (line, count) in throttle.overdue(now: now) { log(Int(line) ?? 0, count) }
        }
        for (line, count) in throttle.overdue(now: now, all: true) { logged[Int(line) ?? 0] += count }
        #expect(logged == happened)
    }
}
