import NIOCore
import TestSupport
import Testing

@testable import Redis

@Suite("The search for a server")
struct ServerDiscoveryStateTests {
    let start = NIODeadline.uptimeNanoseconds(0)
    let refused = RedisError.connect(address: "x", reason: "Connection refused")

    @Test("of a single server is one attempt, with its own error")
    func single() {
        var search = ServerDiscoveryState(server: place(1))
        #expect(search.begin() == .connect(place(1)))
        #expect(search.serverFailed(refused) == .failed(refused))
        #expect(search.begin() == .connect(place(1)))
    }

    @Test("asks one after the other, and starts the next time with the last good one")
    func order() {
        var search = ServerDiscoveryState(seeds: [place(1), place(2), place(3)], name: "m")
        #expect(search.begin() == .ask(place(1)))
        #expect(search.seedFailed(refused) == .ask(place(2)))
        #expect(search.answered(answer(9), at: start) == .connect(place(9)))
        #expect(search.begin() == .ask(place(2)))
        #expect(search.seeds == [place(2), place(1), place(3)])
    }

    @Test("asks others in the same search, also newly discovered ones, when the server refuses the login")
    func learning() {
        var search = ServerDiscoveryState(seeds: [place(1)], name: "m")
        #expect(search.begin() == .ask(place(1)))
        #expect(search.answered(answer(9, 2, 3), at: start) == .connect(place(9)))
        #expect(search.serverFailed(refused) == .ask(place(2)))
        // This seed names the same server: no second attempt.
        #expect(search.answered(answer(9, 1, 3), at: start) == .ask(place(3)))
        #expect(search.answered(answer(8, 1), at: start) == .connect(place(8)))
        #expect(search.begin() == .ask(place(3)))
    }

    @Test("asks those that an answer named before those of the URL")
    func namedFirst() {
        var search = ServerDiscoveryState(seeds: [place(1), place(2)], name: "m")
        #expect(search.begin() == .ask(place(1)))
        #expect(search.answered(answer(9, 3, 4), at: start) == .connect(place(9)))
        #expect(search.begin() == .ask(place(1)))
        #expect(search.seedFailed(refused) == .ask(place(3)))
        #expect(search.seedFailed(refused) == .ask(place(4)))
        #expect(search.seedFailed(refused) == .ask(place(2)))
    }

    /// An answer of a deployment whose servers have these IDs.
    private func answer(_ names: Set<String>, _ server: Int, _ others: Int...) -> ServerDiscoveryState.Answer {
        ServerDiscoveryState.Answer(server: place(server), seeds: others.map { place($0) }, identity: names)
    }

    @Test("never accepts another deployment at an address of the URL that was not this one's")
    func foreign() {
        var search = ServerDiscoveryState(seeds: [place(1), place(2)], name: "m")
        #expect(search.begin() == .ask(place(1)))
        #expect(search.answered(answer(["a", "b"], 1, 3), at: start) == .connect(place(1)))
        for hour in 0..<3 {
            _ = search.begin()
            #expect(search.seedFailed(refused) == .ask(place(3)))
            #expect(search.seedFailed(refused) == .ask(place(2)))
            let step = search.answered(answer(["c", "d"], 2), at: start + .hours(Int64(hour)))
            guard case .failed(let error) = step else {
                Issue.record("\(step)")
                return
            }
            #expect("\(error)".contains("h2:2: it belongs to another deployment of Redis than"), "\(error)")
        }
        // Some servers were replaced.
        #expect(search.begin() == .ask(place(1)))
        #expect(search.answered(answer(["b", "e"], 4), at: start) == .connect(place(4)))
        let isReplaced = search.takeReplacement()
        #expect(!isReplaced)
    }

    @Test("accepts a deployment that was set up again at the old addresses, after a minute, and reports it")
    func replaced() {
        var search = ServerDiscoveryState(seeds: [place(1)], name: "m")
        _ = search.begin()
        #expect(search.answered(answer(["a"], 1), at: start) == .connect(place(1)))
        for second in [0, 30, 59] {
            _ = search.begin()
            guard case .failed = search.answered(answer(["b"], 1), at: start + .seconds(Int64(100 + second))) else {
                Issue.record("accepted after \(second) s")
                return
            }
        }
        _ = search.begin()
        #expect(search.answered(answer(["b"], 1), at: start + .seconds(160)) == .connect(place(1)))
        let reports = (search.takeReplacement(), search.takeReplacement())
        #expect(reports == (true, false))
    }

    @Test("accepts an answer without names, as of a Sentinel before Redis 6.2")
    func nameless() {
        var search = ServerDiscoveryState(seeds: [place(1)], name: "m")
        for names in [["a"], [], ["a", "b"], [], ["b"]] as [Set<String>] {
            _ = search.begin()
            #expect(search.answered(answer(names, 1), at: start) == .connect(place(1)))
        }
    }

    @Test("begins at the server that was announced while it waited")
    func announced() {
        var search = ServerDiscoveryState(seeds: [place(1)], name: "m")
        search.announced = place(7)
        #expect(search.begin() == .connect(place(7)))
        #expect(search.serverFailed(refused) == .ask(place(1)))
        search.announced = place(7)
        search.demote(place(7))
        #expect(search.begin() == .ask(place(1)))
    }

    @Test("reports every failure, with a refused login first")
    func errors() {
        var search = ServerDiscoveryState(seeds: [place(1), place(2)], name: "m")
        #expect(search.begin() == .ask(place(1)))
        #expect(search.seedFailed(.timeout(address: "h1:1", after: .seconds(2))) == .ask(place(2)))
        let nothing = ServerDiscoveryState.Answer(server: nil, seeds: [], reason: "no such master")
        let all = "h1:1: no answer within 2 s; h2:2: no such master"
        #expect(search.answered(nothing, at: start) == .failed(.connect(address: "m", reason: all)))
        let login = RedisError.authentication(address: "h9:9", reply: RedisServerError(text: "WRONGPASS"), source: "x")
        #expect(search.begin() == .ask(place(1)))
        #expect(search.answered(answer(9), at: start) == .connect(place(9)))
        #expect(search.serverFailed(login) == .ask(place(2)))
        #expect(search.seedFailed(refused) == .failed(login))
    }

    @Test("starts where a redirection points, once")
    func moved() {
        var search = ServerDiscoveryState(seeds: [place(1)], name: "c")
        search.moved(to: place(5))
        #expect(search.begin() == .connect(place(5)))
        #expect(search.serverFailed(refused) == .ask(place(1)))
        #expect(search.answered(answer(5), at: start) == .failed(refused))
        #expect(search.begin() == .ask(place(1)))
        search.moved(to: place(5))
        search.demote(place(5))
        #expect(search.begin() == .ask(place(1)))
    }

    @Test("asks a server last that was not the right one")
    func demote() {
        var search = ServerDiscoveryState(seeds: [place(1), place(2), place(3)], name: "c")
        search.demote(place(1))
        #expect(search.begin() == .ask(place(2)))
        search.demote(place(7))
        #expect(search.seeds == [place(2), place(3), place(1)])
        search.prefer(place(3))
        search.prefer(place(7))
        #expect(search.seeds == [place(3), place(2), place(1)])
    }

    @Test(
        "ends, asks no server twice, and finds the server if one honest seed remains",
        arguments: 0..<2000 as Range<UInt64>)
    func property(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let servers = (100..<105).map { place($0) }
        let seeds = (1..<12).map { place($0) }
        let configured = Array(seeds.shuffled(using: &random).prefix(Int.random(in: 1...4, using: &random)))
        var search = ServerDiscoveryState(seeds: configured, name: "m")
        for _ in 0..<20 {
            if Bool.random(using: &random) { search.demote(seeds.randomElement(using: &random)!) }
            if Int.random(in: 0..<4, using: &random) == 0 { search.moved(to: servers.randomElement(using: &random)!) }
            // The state of this round: the unavailable servers, and the right one.
            let right = servers.randomElement(using: &random)!
            let honest = configured.randomElement(using: &random)!
            let down = Set(seeds.filter { $0 != honest && Int.random(in: 0..<3, using: &random) == 0 })
            var asked: Set<RedisLocation> = []
            var tried: Set<RedisLocation> = []
            var step = search.begin()
            var steps = 0
            round: while true {
                steps += 1
                #expect(steps < 100, "the search does not end")
                if steps >= 100 { return }
                switch step {
                case .ask(let seed):
                    let isNewSeed = asked.insert(seed).inserted
                    #expect(isNewSeed, "asked twice")
                    let others = seeds.shuffled(using: &random).prefix(Int.random(in: 0...5, using: &random))
                    if down.contains(seed) {
                        step = search.seedFailed(refused)
                    } else if seed == honest {
                        step = search.answered(
                            ServerDiscoveryState.Answer(server: right, seeds: Array(others)), at: start)
                    } else {
                        step = search.answered(
                            ServerDiscoveryState.Answer(
                                server: Bool.random(using: &random) ? servers.randomElement(using: &random) : nil,
                                seeds: Array(others)), at: start)
                    }
                case .connect(let server):
                    let isNewServer = tried.insert(server).inserted
                    #expect(isNewServer, "tried twice")
                    if server == right { break round }
                    step = search.serverFailed(refused)
                case .failed:
                    Issue.record("the honest seed \(honest) was not heard")
                    break round
                }
                #expect(Set(configured).isSubset(of: Set(search.seeds)), "a seed was forgotten")
                #expect(Set(search.seeds).count == search.seeds.count)
            }
        }
    }

    @Test("is bounded in memory, whatever a network returns")
    func flood() {
        var search = ServerDiscoveryState(seeds: [place(1)], name: "m")
        _ = search.begin()
        _ = search.answered(ServerDiscoveryState.Answer(server: nil, seeds: (1...60_000).map { place($0) }), at: start)
        #expect(search.seeds.count == ServerDiscoveryState.maximumSeeds)
    }

    private func place(_ number: Int) -> RedisLocation { .host("h\(number)", port: number) }

    private func answer(_ server: Int, _ others: Int...) -> ServerDiscoveryState.Answer {
        ServerDiscoveryState.Answer(server: place(server), seeds: others.map { place($0) })
    }
}
