import Testing

@testable import PushWorker

@Suite("The guard against bad tokens")
struct BadTokenGuardTests {
    private var guarding = BadTokenGuard()
    @Test("a worker in the wrong environment marks nothing, and soon detects it")
    mutating func wrongFromTheStart() {
        var judgements: [BadTokenGuard.Judgement] = []
        repeat { judgements.append(guarding.recordBad()) } while judgements.last != .trip && judgements.count < 100
        #expect(judgements == Array(repeating: .hold, count: 7) + [.trip])
    }

    @Test("when all tokens are refused at once, at most two are marked before it is detected")
    mutating func wrongAllAtOnce() {
        for _ in 0..<1000 { guarding.recordGood() }
        var judgements: [BadTokenGuard.Judgement] = []
        repeat { judgements.append(guarding.recordBad()) } while judgements.last != .trip && judgements.count < 100
        #expect(judgements.filter { $0 == .mark }.count == 2)
        #expect(judgements.last == .trip && judgements.count <= 17)
    }

    @Test("single bad tokens among good ones are marked")
    mutating func ordinary() {
        for _ in 0..<1000 {
            for _ in 0..<9 { guarding.recordGood() }
            #expect(guarding.recordBad() == .mark)
        }
    }

    @Test("of a list of which three in ten are bad, most are marked at once")
    mutating func badList() {
        guarding.recordGood()
        var (marked, held) = (0, 0)
        for _ in 0..<10_000 {
            guard Int.random(in: 0..<10) < 3 else {
                guarding.recordGood()
                continue
            }
            switch guarding.recordBad() {
            case .mark: marked += 1
            case .hold: held += 1
            // More than half of the last 32 answers, with three in ten expected: happens about once in hundreds of
            // lists.
            case .trip: guarding.reset()
            }
        }
        #expect(marked > held)
    }

    @Test("held tokens that return together after the end of a good list are marked, and do not pause the app")
    mutating func heldTokensReturn() {
        for _ in 0..<20 { guarding.recordGood() }
        let first = (0..<12).map { _ in guarding.recordBad() }
        #expect(first == [.mark, .mark] + Array(repeating: .hold, count: 10))
        for _ in 0..<10 { #expect(guarding.recordBad(isRepeated: true) == .mark) }
        guarding.recordGood()
        #expect(guarding.recordBad() == .mark, "the repetitions are not counted")
    }

    @Test("repeated answers count while APNs has accepted nothing")
    mutating func repeatedFromTheStart() {
        for _ in 0..<4 { #expect(guarding.recordBad() == .hold) }
        for _ in 0..<3 { #expect(guarding.recordBad(isRepeated: true) == .hold) }
        #expect(guarding.recordBad(isRepeated: true) == .trip)
    }

    @Test("a single bad token without other evidence is not believed at once")
    mutating func alone() {
        #expect(guarding.recordBad() == .hold)
        guarding.recordGood()
        #expect(guarding.recordBad() == .mark)
    }

    @Test("the share is a setting, and at 1 every answer is believed")
    func share() {
        var believing = BadTokenGuard(maximumShare: 1)
        for _ in 0..<100 { #expect(believing.recordBad() == .mark) }
        var strict = BadTokenGuard(maximumShare: 0.25)
        for _ in 0..<32 { strict.recordGood() }
        var count = 0
        while strict.recordBad() != .trip { count += 1 }
        #expect(count == 8)
    }
}
