import NIOCore
import TestSupport
import Testing

@testable import PushWorker

@Suite("The log of ongoing problems")
struct OngoingIssuesTests {
    private var issues = OngoingIssues()
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    @Test("is logged when the first lane has them, and their end when the last one is free of them")
    mutating func together() {
        #expect(issues.began("redis", at: "a", now: start) == 1)
        #expect(issues.began("redis", at: "b", now: start + .seconds(1)) == nil)
        #expect(issues.began("redis", at: "a", now: start + .seconds(60)) == nil)
        #expect(issues.ended("redis", at: "a", now: start + .seconds(61)) == nil)
        #expect(issues.ended("redis", at: "a", now: start + .seconds(61)) == nil)
        #expect(issues.ended("redis", at: "b", now: start + .seconds(62)) == .seconds(62))
        #expect(issues.ended("redis", at: "b", now: start + .seconds(62)) == nil)
    }

    @Test("is logged again after a long while, for each form, and for each subject separately")
    mutating func again() {
        #expect(issues.began("queue", at: "a", form: "OOM", now: start) != nil)
        #expect(issues.began("queue", at: "a", form: "OOM", now: start + .minutes(9)) == nil)
        #expect(issues.began("queue", at: "a", form: "BUSY", now: start + .minutes(9)) != nil)
        #expect(issues.began("queue", at: "a", form: "OOM", now: start + .minutes(20)) != nil)
        #expect(issues.began("other", at: "a", form: "OOM", now: start + .minutes(20)) != nil)
    }

    @Test("for problems that come and go is written once in thirty seconds, with the end")
    mutating func flapping() {
        var logged: [Int] = []
        var ended: [Int] = []
        for second in 0..<70 {
            let now = start + .seconds(Int64(second))
            if issues.began("redis", at: "a", now: now) != nil { logged.append(second) }
            if issues.ended("redis", at: "a", now: now + .milliseconds(1)) != nil { ended.append(second) }
        }
        #expect(logged == [0, 30, 60] && ended == logged)
    }

    @Test("alternates between beginning and end, and is rare, in any order of events", arguments: 0..<200)
    mutating func anyOrder(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var now = start
        var sources: Set<String> = []
        var isLogged = false
        var lastLogged: NIODeadline?
        for _ in 0..<500 {
            now = now + .milliseconds(Int64.random(in: 0...20_000, using: &random))
            let source = "\(Int.random(in: 0..<3, using: &random))"
            if Bool.random(using: &random) {
                sources.insert(source)
                guard issues.began("x", at: source, now: now) != nil else {
                    // A lasting problem is logged eventually.
                    #expect(isLogged || lastLogged.map { now - $0 < OngoingIssues.quiet } == true)
                    continue
                }
                if let lastLogged { #expect(now - lastLogged >= OngoingIssues.quiet) }
                (isLogged, lastLogged) = (true, now)
            } else {
                let hadIt = sources.remove(source) != nil
                let ended = issues.ended("x", at: source, now: now)
                #expect((ended != nil) == (hadIt && sources.isEmpty && isLogged))
                if sources.isEmpty { isLogged = false }
            }
        }
    }
}
