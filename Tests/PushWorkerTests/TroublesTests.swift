import NIOCore
import TestSupport
import Testing

@testable import PushWorker

@Suite("The log of ongoing problems")
struct OngoingIssuesTests {
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    @Test("is logged when the first lane has them, and their end when the last one is free of them")
    func together() {
        var troubles = OngoingIssues()
        #expect(troubles.began("redis", at: "a", now: start) == 1)
        #expect(troubles.began("redis", at: "b", now: start + .seconds(1)) == nil)
        #expect(troubles.began("redis", at: "a", now: start + .seconds(60)) == nil)
        #expect(troubles.ended("redis", at: "a", now: start + .seconds(61)) == nil)
        #expect(troubles.ended("redis", at: "a", now: start + .seconds(61)) == nil)
        #expect(troubles.ended("redis", at: "b", now: start + .seconds(62)) == .seconds(62))
        #expect(troubles.ended("redis", at: "b", now: start + .seconds(62)) == nil)
    }

    @Test("is logged again after a long while, in each form, and for each subject separately")
    func again() {
        var troubles = OngoingIssues()
        #expect(troubles.began("queue", at: "a", form: "OOM", now: start) != nil)
        #expect(troubles.began("queue", at: "a", form: "OOM", now: start + .minutes(9)) == nil)
        #expect(troubles.began("queue", at: "a", form: "BUSY", now: start + .minutes(9)) != nil)
        #expect(troubles.began("queue", at: "a", form: "OOM", now: start + .minutes(20)) != nil)
        #expect(troubles.began("other", at: "a", form: "OOM", now: start + .minutes(20)) != nil)
    }

    @Test("for problems that come and go is written once in thirty seconds, with the end")
    func flapping() {
        var troubles = OngoingIssues()
        var told: [Int] = []
        var ended: [Int] = []
        for second in 0..<70 {
            let now = start + .seconds(Int64(second))
            if troubles.began("redis", at: "a", now: now) != nil { told.append(second) }
            if troubles.ended("redis", at: "a", now: now + .milliseconds(1)) != nil { ended.append(second) }
        }
        #expect(told == [0, 30, 60] && ended == told)
    }

    @Test("is in turns the beginning and the end, and rare, in any order of events", arguments: 0..<200)
    func anyOrder(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        var troubles = OngoingIssues()
        var now = start
        var sources: Set<String> = []
        var isTold = false
        var lastTold: NIODeadline?
        for _ in 0..<500 {
            now = now + .milliseconds(Int64.random(in: 0...20_000, using: &random))
            let source = "\(Int.random(in: 0..<3, using: &random))"
            if Bool.random(using: &random) {
                sources.insert(source)
                guard troubles.began("x", at: source, now: now) != nil else {
                    // A lasting problem is logged eventually.
                    #expect(isTold || lastTold.map { now - $0 < OngoingIssues.quiet } == true)
                    continue
                }
                if let lastTold { #expect(now - lastTold >= OngoingIssues.quiet) }
                (isTold, lastTold) = (true, now)
            } else {
                let hadIt = sources.remove(source) != nil
                let ended = troubles.ended("x", at: source, now: now)
                #expect((ended != nil) == (hadIt && sources.isEmpty && isTold))
                if sources.isEmpty { isTold = false }
            }
        }
    }
}
