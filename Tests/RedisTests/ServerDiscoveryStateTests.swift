import TestSupport
import Testing

@testable import Redis

@Suite("The search for a server")
struct ServerDiscoveryStateTests {
    typealias Location = RedisEndpoint.Location
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
        #expect(search.answered(answer(9)) == .connect(place(9)))
        #expect(search.begin() == .ask(place(2)))
        #expect(search.seeds == [place(2), place(1), place(3)])
    }

    @Test("asks others in the same search, also newly discovered ones, when the server refuses the login")
    func learning() {
        var search = ServerDiscoveryState(seeds: [place(1)], name: "m")
        #expect(search.begin() == .ask(place(1)))
        #expect(search.answered(answer(9, 2, 3)) == .connect(place(9)))
        #expect(search.serverFailed(refused) == .ask(place(2)))
        // This seed names the same server: no second attempt.
        #expect(search.answered(answer(9, 1, 3)) == .ask(place(3)))
        #expect(search.answered(answer(8, 1)) == .connect(place(8)))
        #expect(search.begin() == .ask(place(3)))
    }

    @Test("reports every failure, with a refused login first")
    func errors() {
        var search = ServerDiscoveryState(seeds: [place(1), place(2)], name: "m")
        #expect(search.begin() == .ask(place(1)))
        #expect(search.seedFailed(.timeout(address: "h1:1", after: .seconds(2))) == .ask(place(2)))
        let nothing = ServerDiscoveryState.Answer(server: nil, seeds: [], reason: "no such master")
        let all = "h1:1: no answer within 2 s; h2:2: no such master"
        #expect(search.answered(nothing) == .failed(.connect(address: "m", reason: all)))
        let login = RedisError.authentication(address: "h9:9", reply: RedisServerError(text: "WRONGPASS"))
        #expect(search.begin() == .ask(place(1)))
        #expect(search.answered(answer(9)) == .connect(place(9)))
        #expect(search.serverFailed(login) == .ask(place(2)))
        #expect(search.seedFailed(refused) == .failed(login))
    }

    @Test("starts where a redirection points, once")
    func moved() {
        var search = ServerDiscoveryState(seeds: [place(1)], name: "c")
        search.moved(to: place(5))
        #expect(search.begin() == .connect(place(5)))
        #expect(search.serverFailed(refused) == .ask(place(1)))
        #expect(search.answered(answer(5)) == .failed(refused))
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
            if Int.random(in: 0..<4, using: &random) == 0 {
                search.moved(to: servers.randomElement(using: &random)!)
            }
            // The state of this round: the unavailable servers, and the right one.
            let right = servers.randomElement(using: &random)!
            let honest = configured.randomElement(using: &random)!
            let down = Set(seeds.filter { $0 != honest && Int.random(in: 0..<3, using: &random) == 0 })
            var asked: Set<Location> = []
            var tried: Set<Location> = []
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
                        step = search.answered(ServerDiscoveryState.Answer(server: right, seeds: Array(others)))
                    } else {
                        step = search.answered(
                            ServerDiscoveryState.Answer(
                                server: Bool.random(using: &random) ? servers.randomElement(using: &random) : nil,
                                seeds: Array(others)))
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
        _ = search.answered(
            ServerDiscoveryState.Answer(server: nil, seeds: (1...60_000).map { place($0) }))
        #expect(search.seeds.count == ServerDiscoveryState.maximumSeeds)
    }

    private func place(_ number: Int) -> Location { .host("h\(number)", port: number) }

    private func answer(_ server: Int, _ others: Int...) -> ServerDiscoveryState.Answer {
        ServerDiscoveryState.Answer(server: place(server), seeds: others.map { place($0) })
    }
}
