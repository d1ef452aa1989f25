import NIOCore
import Testing

@testable import PushWorker

/// The rules of the scopes, one by one.
struct ScopesTests {
    @Test("a scope keeps its name, and nothing of the claim that the name was a part of")
    func ownNames() throws {
        let register = ScopeRegister()
        let app = register.id(.app, named: "shop", now: 0)
        let claim = ByteBuffer(bytes: (0..<1 << 20).map { UInt8(truncatingIfNeeded: $0 / 100) })
        for round in 0..<2 {
            for number in 0..<14 {
                let name = try #require(claim.getSlice(at: number * 100, length: 20))
                let group = register.campaign(name, of: app, now: Int64(round))
                _ = register.job(name, in: group, of: app, now: Int64(round))
                _ = register.address(name, .alert, of: app, now: Int64(round))
            }
        }
        #expect(register.keys.count == 1 + 3 * 14)
        #expect(register.keys.values.allSatisfy { $0.name.storageCapacity < 1000 })
    }

    @Test(
        "a scope whose index is kept is never another's, however many come after it, and neither is one that contains it",
        arguments: [true, false])
    func kept(isKept: Bool) {
        let register = ScopeRegister()
        let app = register.id(.app, named: "shop", now: 0)
        let name = ByteBuffer(string: "spring")
        let group = register.campaign(name, of: app, now: 0)
        let job = register.job(name, in: group, of: app, now: 0)
        func addMany(at time: Int64) {
            for number in 1...Scopes.maximumNarrow + 10 {
                _ = register.campaign(ByteBuffer(string: "campaign \(time) \(number)"), of: app, now: time)
            }
        }
        if isKept { register.scopes.retain(job) }
        addMany(at: 1000)
        for id in [group, job] { #expect((register.keys[id]?.name == name) == isKept) }
        guard isKept else { return }
        register.scopes.release(job)
        addMany(at: 2000)
        for id in [group, job] { #expect(register.keys[id]?.name != name) }
    }

    @Test("A slow scope is not forgotten before those that are not slow.")
    func keptSlow() {
        let fleet = Fleet()
        let slow = fleet.place()
        fleet.fail(60, .group, at: slow)
        for time in 1...Int64(Scopes.maximumNarrow * 2) {
            #expect(fleet.scopes.add(.group, parent: fleet.app, now: time).forgotten != slow.group)
        }
    }

    // MARK: The measure

    /// A measure that `#expect` may change.
    private final class Measured {
        var measure = Measure()

        func fail(_ now: Int64, _ rules: Measure.Rules = .usual) -> Bool { measure.recordFailure(now: now, rules) }

        func fail(times: Int, from now: Int64 = 0) -> Bool {
            var isSlow = false
            for index in 0..<times { isSlow = fail(now + Int64(index)) || isSlow }
            return isSlow
        }

        func prove(_ now: Int64) -> Bool { measure.recordProof(now: now) }
        func may(_ now: Int64) -> Bool { measure.may(now: now) }
        func send(_ now: Int64, _ rules: Measure.Rules = .usual) { measure.recordSent(now: now, rules) }
        func slowDown(_ now: Int64, _ rules: Measure.Rules = .usual) { measure.slowDown(now: now, rules) }
    }

    @Test("59 failures slow nothing down, the sixtieth does.")
    func fewest() {
        let measure = Measured()
        #expect(!measure.fail(times: 59))
        #expect(measure.fail(60))
    }

    @Test(
        "A scope with one proof in fifty answers is not slow, with one in fifty-one it is.",
        arguments: [(98, false), (99, true)])
    func share(_ failures: Int, _ expected: Bool) {
        let measure = Measured()
        for index in 0..<failures {
            if index == 0 || index == 50 { _ = measure.prove(Int64(index)) }
            _ = measure.fail(Int64(index))
        }
        #expect(measure.measure.isSlow == expected)
    }

    @Test("Only the last 200 answers count.")
    func most() {
        let measure = Measured()
        for index in 0..<1000 { _ = measure.prove(Int64(index)) }
        #expect(!measure.fail(times: 196, from: 1000))
        #expect(measure.fail(1196), "3 of the last 200 are proofs")
    }

    @Test("Answers that are older than 30 s do not count.")
    func life() {
        let measure = Measured()
        #expect(!measure.fail(times: 59))
        #expect(!measure.fail(30_060))
        #expect(!measure.fail(times: 58, from: 30_061))
        #expect(measure.fail(30_200))
        let other = Measured()
        _ = other.prove(0)
        _ = other.prove(0)
        #expect(!other.fail(times: 59, from: 1))
        #expect(other.fail(times: 60, from: 30_100), "the proofs are forgotten, too")
    }

    @Test("Probes go one at a time, 0.1 s after the last, growing to 1 s, and to 5 s after five minutes.")
    func probes() {
        let measure = Measured()
        measure.slowDown(0)
        var (now, pauses): (Int64, [Int64]) = (0, [])
        while now < 400_000 {
            let before = now
            while !measure.may(now) { now += 1 }
            pauses.append(now - before)
            measure.send(now)
            #expect(!measure.may(now))
            measure.measure.recordEnd()
            _ = measure.fail(now)
        }
        #expect(pauses[0] == 100)
        #expect(pauses[1] == 100)
        #expect(pauses.prefix(20).max() == 1000)
        #expect(pauses.last == 5000)
    }

    @Test("A probe without an answer holds up the next for five seconds at most.")
    func unanswered() {
        let measure = Measured()
        measure.slowDown(0)
        measure.send(100)
        #expect(!measure.may(5099))
        #expect(measure.may(5100))
        #expect(measure.measure.nextProbe == 5100)
    }

    @Test("A proof of a credential allows the next request at once.")
    func credential() {
        let measure = Measured()
        measure.slowDown(0, .ofCredential)
        #expect(!measure.may(4999))
        measure.send(5000, .ofCredential)
        measure.measure.recordEnd()
        _ = measure.fail(5100, .ofCredential)
        #expect(!measure.may(9999))
        measure.send(10_000, .ofCredential)
        measure.measure.recordEnd()
        #expect(!measure.prove(10_100))
        #expect(measure.may(10_100))
    }

    @Test("Each proof grows the window by one, and a failure resets it.")
    func window() {
        let measure = Measured()
        measure.slowDown(0)
        measure.send(100)
        measure.measure.recordEnd()
        _ = measure.prove(150)
        for _ in 0..<2 {
            #expect(measure.may(150))
            measure.send(150)
        }
        #expect(!measure.may(150))
        measure.measure.recordEnd()
        measure.measure.recordEnd()
        _ = measure.fail(200)
        measure.send(2000)
        #expect(!measure.may(2000))
    }

    @Test("Ten proofs end it, and so do three when there are thirty answers.")
    func end() {
        let measure = Measured()
        measure.slowDown(0)
        for _ in 0..<9 { #expect(!measure.prove(1)) }
        #expect(measure.prove(2))
        #expect(!measure.measure.isSlow)
        measure.slowDown(3)
        _ = measure.fail(times: 27, from: 4)
        #expect(!measure.prove(40))
        #expect(!measure.prove(41))
        #expect(measure.prove(42))
    }

    @Test("Accepted retries do not count among the answers of a scope that is not slow.")
    func acceptedRetries() {
        let measure = Measured()
        for time in 0..<59 as Range<Int64> {
            #expect(!measure.fail(time))
            _ = measure.measure.recordProofByRetry(now: time)
        }
        #expect(measure.measure.failuresSinceProof == 0)
        #expect(measure.fail(59))
    }

    // MARK: Scopes

    private struct Fleet {
        let scopes = Scopes()
        let app, other, endpoint, key: ScopeID

        init() {
            app = scopes.add(.app, now: 0).id
            other = scopes.add(.app, now: 0).id
            endpoint = scopes.add(.endpoint, now: 0).id
            key = scopes.add(.credential, now: 0).id
            for app in [app, other] { scopes.join(app: app, credentials: [key], endpoint: endpoint) }
        }

        func place(of app: ScopeID? = nil) -> ScopePlace {
            let app = app ?? self.app
            let group = scopes.add(.group, parent: app, now: 0).id
            return ScopePlace(group: group, app: app, credential: key, endpoint: endpoint)
        }

        func fail(_ count: Int, _ set: ScopeSet, at place: ScopePlace, isFresh: Bool = true, now: Int64 = 0) {
            for _ in 0..<count { scopes.recordFailure(set, at: place, isFresh: isFresh, now: now) }
        }

        func isSlow(_ id: ScopeID) -> Bool { scopes[id].fresh.isSlow }
    }

    @Test("A slow group does not witness against its app, but all slow groups do.")
    func witnesses() {
        let fleet = Fleet()
        let (bad, good) = (fleet.place(), fleet.place())
        fleet.scopes.recordProof(.all, at: good, isFresh: true, now: 0)
        fleet.fail(500, [.group, .app], at: bad)
        #expect(fleet.isSlow(bad.group))
        #expect(!fleet.isSlow(fleet.app))
        #expect(fleet.scopes.decide(good, isFresh: true, now: 0) == .send)
        #expect(fleet.scopes.decide(bad, isFresh: true, now: 0) == .wait(.group))
        // The other group has had no jobs for long.
        fleet.scopes.recordUse(bad.group, now: 60_000)
        fleet.fail(60, [.group, .app], at: bad, now: 60_000)
        #expect(fleet.isSlow(fleet.app))
        #expect(!fleet.isSlow(bad.group), "its failures say nothing while the app is slow")
    }

    @Test("A group of another app says nothing of this one's.")
    func otherApp() {
        let fleet = Fleet()
        let (bad, good) = (fleet.place(), fleet.place(of: fleet.other))
        fleet.fail(500, [.group, .app], at: bad)
        #expect(fleet.isSlow(fleet.app))
        #expect(!fleet.isSlow(fleet.other))
        #expect(fleet.scopes.decide(good, isFresh: true, now: 0) == .send)
    }

    @Test("Failures of all groups slow the credential, in all its apps.")
    func allGroups() {
        let fleet = Fleet()
        let places = [fleet.place(), fleet.place(of: fleet.other)]
        for _ in 0..<30 { for place in places { fleet.fail(1, [.job, .group, .credential], at: place) } }
        #expect(fleet.isSlow(fleet.key))
        #expect(!fleet.isSlow(fleet.endpoint))
        #expect(fleet.scopes.decide(places[1], isFresh: true, now: 4999) == .wait(.credential))
        #expect(fleet.scopes.decide(places[1], isFresh: true, now: 5000) == .probe)
    }

    @Test("A retry that fails does not count, and one that is accepted is a proof.")
    func retries() {
        let fleet = Fleet()
        let place = fleet.place()
        fleet.fail(500, [.group, .endpoint], at: place, isFresh: false)
        #expect(!fleet.isSlow(fleet.endpoint))
        #expect(fleet.scopes.decide(place, isFresh: true, now: 0) == .send)
        #expect(fleet.scopes.decide(place, isFresh: false, now: 0) == .wait(.group))
        fleet.scopes.recordProof(.all, at: place, isFresh: true, now: 1)
        #expect(fleet.scopes.decide(place, isFresh: false, now: 2) == .probe, "a fresh proof lets them go")
        #expect(fleet.scopes.decide(place, isFresh: false, now: 10_002) == .probe)
        _ = fleet.scopes.recordSubmission(at: place, isFresh: false, now: 10_002)
        #expect(fleet.scopes.decide(place, isFresh: false, now: 10_003) == .wait(.group))
        for index in 0..<10 { fleet.scopes.recordProof(.all, at: place, isFresh: false, now: 11_000 + Int64(index)) }
        #expect(fleet.scopes.isQuiet)
    }

    @Test("While fresh ones are slow, so are retries.")
    func retriesOfSlow() {
        let fleet = Fleet()
        let place = fleet.place()
        fleet.fail(60, .endpoint, at: place)
        #expect(fleet.scopes.decide(place, isFresh: false, now: 0) == .wait(.endpoint))
        #expect(fleet.scopes.decide(place, isFresh: false, now: 100) == .probe)
    }

    @Test("A scope that had no jobs for ten minutes is forgotten.")
    func memory() {
        let fleet = Fleet()
        let place = fleet.place()
        fleet.fail(60, .group, at: place)
        fleet.scopes.check(now: 599_999)
        #expect(fleet.isSlow(place.group))
        fleet.scopes.check(now: 600_000)
        #expect(!fleet.isSlow(place.group))
        #expect(fleet.scopes.isQuiet)
    }

    @Test("Of a thousand groups, the longest unused is forgotten for another one.")
    func thousand() {
        let scopes = Scopes()
        let first = scopes.add(.group, now: 0).id
        for index in 1..<Scopes.maximumNarrow { _ = scopes.add(.group, now: Int64(index)) }
        let next = scopes.add(.group, now: 2000)
        #expect(next.forgotten == first)
        #expect(next.id == first)
    }

    @Test("At most a hundred jobs of a scope that is set aside are due per second, after one second to five minutes.")
    func setAside() {
        let fleet = Fleet()
        let place = fleet.place()
        fleet.fail(60, .group, at: place)
        let delays = (0..<1000).map { _ in fleet.scopes.setAside(place.group, age: 0, now: 0, share: 1) }
        #expect(delays.first == 1000)
        #expect(zip(delays, delays.dropFirst()).allSatisfy { $1 - $0 >= 10 })
        #expect(fleet.scopes.setAside(place.group, age: 0, now: 10_000_000, share: 1) == 300_000)
    }

    @Test("Without answers one uncertain probe goes every five seconds, and an answer ends that.")
    func silence() {
        let fleet = Fleet()
        let place = fleet.place()
        fleet.scopes.recordSilence(of: fleet.endpoint, now: 0)
        #expect(fleet.scopes.decide(place, isFresh: true, now: 0) == .probe)
        _ = fleet.scopes.recordSubmission(at: place, isFresh: true, now: 0)
        #expect(fleet.scopes.decide(place, isFresh: true, now: 4999) == .wait(.endpoint))
        #expect(fleet.scopes.decide(place, isFresh: true, now: 5000) == .probe)
        fleet.scopes.recordProof(.endpoint, at: place, isFresh: true, now: 5001)
        #expect(fleet.scopes.decide(place, isFresh: true, now: 5001) == .send)
        #expect(fleet.scopes.isQuiet)
    }

    @Test("An operator's resume sends a probe at once.")
    func resume() {
        let fleet = Fleet()
        let place = fleet.place()
        fleet.fail(60, .credential, at: place)
        #expect(fleet.scopes.decide(place, isFresh: true, now: 1) == .wait(.credential))
        fleet.scopes.probeNow(app: fleet.app, now: 1)
        #expect(fleet.scopes.decide(place, isFresh: true, now: 1) == .probe)
    }

    // MARK: Tokens

    private func tokens(_ fleet: Fleet, good: Int, bad: Int, at place: ScopePlace) -> TokenTrust.Judgement {
        for _ in 0..<good { fleet.scopes.recordProof(.all, at: place, isFresh: true, now: 0) }
        for index in 0..<bad { fleet.scopes.recordBadToken(index, at: place) }
        return fleet.scopes.judgeToken(at: place, now: 0)
    }

    @Test(
        "A bad token is believed while half of the last 32 tokens were accepted.",
        arguments: [(20, 12, true), (16, 16, true), (15, 17, false), (1, 1, true), (1, 2, false), (100, 16, true)])
    func trust(_ good: Int, _ bad: Int, _ isBelieved: Bool) {
        let fleet = Fleet()
        #expect((tokens(fleet, good: good, bad: bad, at: fleet.place()) == .believed) == isBelieved)
    }

    @Test("If nothing is accepted, the configuration is at fault.")
    func nothingAccepted() {
        let fleet = Fleet()
        #expect(tokens(fleet, good: 0, bad: 1, at: fleet.place()) == .configuration)
        #expect(tokens(fleet, good: 0, bad: 500, at: fleet.place()) == .configuration)
    }

    @Test("One token that is refused again and again counts once.")
    func distinct() {
        let fleet = Fleet()
        let place = fleet.place()
        _ = tokens(fleet, good: 8, bad: 0, at: place)
        for _ in 0..<100 { fleet.scopes.recordBadToken(7, at: place) }
        #expect(fleet.scopes.judgeToken(at: place, now: 0) == .believed)
    }

    @Test("A campaign whose tokens are all refused is at fault, and not the app whose others are accepted.")
    func badCampaign() {
        let fleet = Fleet()
        let address = fleet.place()
        _ = tokens(fleet, good: 100, bad: 0, at: address)
        var campaign = fleet.place()
        campaign.address = address.group
        #expect(tokens(fleet, good: 0, bad: 7, at: campaign) == .believed, "fewer than eight are judged with the app")
        for index in 7..<10 { fleet.scopes.recordBadToken(index, at: campaign) }
        #expect(fleet.scopes.judgeToken(at: campaign, now: 0) == .held)
        for index in 10..<100 { fleet.scopes.recordBadToken(index, at: campaign) }
        #expect(tokens(fleet, good: 0, bad: 1, at: address) == .believed, "the campaign is no witness against others")
    }
}
