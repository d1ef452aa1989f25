import TestSupport
import Testing

@testable import APNS

@Suite("A provider token's schedule")
struct ProviderTokenScheduleTests {
    @Test("signs first at the start, and then when the token is 50 minutes old")
    func age() {
        var schedule = ProviderTokenSchedule()
        #expect(schedule.isDue(now: 100))
        schedule.signed(at: 100)
        #expect(!schedule.isDue(now: 100))
        #expect(!schedule.isDue(now: 100 + 2999))
        #expect(schedule.isDue(now: 100 + 3000))
    }

    @Test("signs again after the clock was set back by more than a minute")
    func clockSetBack() {
        var schedule = ProviderTokenSchedule()
        schedule.signed(at: 10_000)
        #expect(!schedule.isDue(now: 9_940))
        #expect(schedule.isDue(now: 9_939))
    }

    @Test("signs again after a refusal, but not for a token that was signed just now")
    func refusal() {
        var schedule = ProviderTokenSchedule()
        schedule.signed(at: 0)
        #expect(schedule.refused(now: 59, issuedAt: 0) == false)
        #expect(!schedule.isDue(now: 59))
        #expect(schedule.refused(now: 60, issuedAt: 0) == true)
        #expect(schedule.isDue(now: 60))
        schedule.signed(at: 60)
        #expect(!schedule.isDue(now: 61))
        #expect(schedule.refused(now: 61, issuedAt: 0) == true)
        #expect(!schedule.isDue(now: 61))
    }

    @Test("adopts another worker's token if it has none, unless that is too old or from the future")
    func adoptsFirst() {
        for (age, isTaken) in [
            (-62, false), (-61, false), (-60, true), (-1, true), (0, true), (2999, true), (3000, false), (3600, false),
        ] as [(Int64, Bool)] {
            var schedule = ProviderTokenSchedule()
            #expect(schedule.adopt(issuedAt: 10_000 - age, now: 10_000) == isTaken, "age \(age)")
            #expect(schedule.isDue(now: 10_000) == !isTaken)
            if isTaken {
                // Renewal depends on the token's age, not on the time of its arrival.
                #expect(!schedule.isDue(now: 10_000 - age + 2999))
                #expect(schedule.isDue(now: 10_000 - age + 3000))
            }
        }
    }

    @Test("adopts another worker's token only if it was signed later than its own")
    func adoptsLater() {
        for (candidate, isTaken) in [(9_000, false), (9_999, false), (10_000, false), (10_001, true), (10_500, true)]
            as [(Int64, Bool)]
        {
            var schedule = ProviderTokenSchedule()
            schedule.signed(at: 10_000)
            #expect(schedule.adopt(issuedAt: candidate, now: 10_500) == isTaken, "\(candidate)")
            #expect(schedule.isDue(now: 10_000 + 3000) == !isTaken)
        }
    }

    @Test("never adopts a refused token, nor an older one")
    func adoptsAfterRefusal() {
        var schedule = ProviderTokenSchedule()
        schedule.signed(at: 10_000)
        let isWorthwhile = schedule.refused(now: 11_000, issuedAt: 10_000)
        #expect(isWorthwhile)
        for candidate: Int64 in [9_000, 10_000] {
            var copy = schedule
            #expect(copy.adopt(issuedAt: candidate, now: 11_000) == false)
            #expect(copy.isDue(now: 11_000))
        }
        var renewed = schedule
        #expect(renewed.adopt(issuedAt: 10_001, now: 11_000) == true)
        #expect(!renewed.isDue(now: 11_000))
        // The refused token is still in Redis, and is not adopted again after the new one.
        #expect(renewed.adopt(issuedAt: 10_000, now: 11_001) == false)
        // A candidate that was signed on this machine is adopted like any other.
        var own = schedule
        #expect(own.adopt(issuedAt: 11_000, now: 11_000) == true)
        #expect(own.refused(now: 11_030, issuedAt: 11_000) == false)
        #expect(own.refused(now: 11_060, issuedAt: 11_000) == true)
    }

    @Test("adopts others' tokens after the clock was set back, although its own seems later")
    func adoptsAfterClockSetBack() {
        var schedule = ProviderTokenSchedule()
        schedule.signed(at: 20_000)
        #expect(schedule.adopt(issuedAt: 10_000, now: 19_940) == false)
        #expect(schedule.adopt(issuedAt: 10_000, now: 10_000) == true)
        #expect(!schedule.isDue(now: 10_000))
        var refused = ProviderTokenSchedule()
        refused.signed(at: 20_000)
        #expect(refused.refused(now: 20_060, issuedAt: 20_000) == true)
        #expect(refused.adopt(issuedAt: 10_000, now: 10_000) == true)
    }

    @Test("does not adopt a refused token after the clock was set back behind it")
    func refusedBeforeClockSetBack() {
        var schedule = ProviderTokenSchedule()
        schedule.signed(at: 10_000)
        #expect(schedule.refused(now: 10_100, issuedAt: 10_000) == true)
        schedule.signed(at: 9_990)
        #expect(schedule.adopt(issuedAt: 10_000, now: 9_990) == false)
        #expect(schedule.adopt(issuedAt: 10_001, now: 9_990) == true)
    }

    @Test("tolerates any times", arguments: [Int64.min, .min + 1, -1, 0, .max - 1, .max])
    func extremes(time: Int64) {
        for now: Int64 in [.min, -1, 0, 1_792_800_000, .max] {
            var schedule = ProviderTokenSchedule()
            let age = Int128(now) - Int128(time)
            let isGood = age >= -60 && age < 3000
            #expect(schedule.adopt(issuedAt: time, now: now) == isGood, "\(time) at \(now)")
        }
    }

    @Test("with a fleet's tokens never sends one from the future, one near an hour, or one older than before")
    func fleet() {
        var generator = SeededGenerator(seed: 11)
        for _ in 0..<50 {
            var schedule = ProviderTokenSchedule()
            var now: Int64 = 1_792_800_000
            var current: Int64?
            var refused: Int64 = 0
            for _ in 0..<400 {
                now += Int64.random(in: 0...600, using: &generator)
                let candidate = now + Int64.random(in: -4000...200, using: &generator)
                if schedule.adopt(issuedAt: candidate, now: now) {
                    #expect(candidate > current ?? 0 && candidate > refused)
                    #expect(candidate <= now + 60 && now - candidate < 3000)
                    current = candidate
                }
                if schedule.isDue(now: now) {
                    schedule.signed(at: now)
                    current = now
                }
                #expect(now - (current ?? 0) < 3000)
                if let sent = current, Int.random(in: 0..<10, using: &generator) == 0 {
                    let isWorthwhile = schedule.refused(now: now, issuedAt: sent)
                    #expect(isWorthwhile == (now - sent >= 60))
                    #expect(schedule.isDue(now: now) == isWorthwhile)
                    if isWorthwhile { refused = sent }
                }
            }
        }
    }
}
