import TestSupport
import Testing

@testable import Redis

@Suite("The search for a server")
struct ServerSearchTests {
    typealias Location = RedisEndpoint.Location
    let refused = RedisError.connect(address: "x", reason: "Connection refused")

    @Test("of a single server is one attempt, with its own error")
    func single() {
        var search = ServerSearch(server: place(1))
        #expect(search.begin() == .connect(place(1)))
        #expect(search.serverFailed(refused) == .failed(refused))
        #expect(search.begin() == .connect(place(1)))
    }

    @Test("asks one after the other, and begins the next time with who knew")
    func order() {
        var search = ServerSearch(advisers: [place(1), place(2), place(3)], name: "m")
        #expect(search.begin() == .ask(place(1)))
        #expect(search.adviserFailed(refused) == .ask(place(2)))
        #expect(search.advised(advice(9)) == .connect(place(9)))
        #expect(search.begin() == .ask(place(2)))
        #expect(search.advisers == [place(2), place(1), place(3)])
    }

    @Test("asks others in the same search, also such as it has only just heard of, when the server lets nobody in")
    func learning() {
        var search = ServerSearch(advisers: [place(1)], name: "m")
        #expect(search.begin() == .ask(place(1)))
        #expect(search.advised(advice(9, 2, 3)) == .connect(place(9)))
        #expect(search.serverFailed(refused) == .ask(place(2)))
        // It names the same server: no second attempt.
        #expect(search.advised(advice(9, 1, 3)) == .ask(place(3)))
        #expect(search.advised(advice(8, 1)) == .connect(place(8)))
        #expect(search.begin() == .ask(place(3)))
    }

    @Test("tells of every failure, and of a refused login before all")
    func errors() {
        var search = ServerSearch(advisers: [place(1), place(2)], name: "m")
        #expect(search.begin() == .ask(place(1)))
        #expect(search.adviserFailed(.timeout(address: "h1:1", after: .seconds(2))) == .ask(place(2)))
        let nothing = ServerSearch.Advice(server: nil, advisers: [], reason: "no such master")
        let all = "h1:1: no answer within 2 s; h2:2: no such master"
        #expect(search.advised(nothing) == .failed(.connect(address: "m", reason: all)))
        let login = RedisError.authentication(address: "h9:9", reply: RedisServerError(text: "WRONGPASS"))
        #expect(search.begin() == .ask(place(1)))
        #expect(search.advised(advice(9)) == .connect(place(9)))
        #expect(search.serverFailed(login) == .ask(place(2)))
        #expect(search.adviserFailed(refused) == .failed(login))
    }

    @Test("begins where a redirection points, once")
    func moved() {
        var search = ServerSearch(advisers: [place(1)], name: "c")
        search.moved(to: place(5))
        #expect(search.begin() == .connect(place(5)))
        #expect(search.serverFailed(refused) == .ask(place(1)))
        #expect(search.advised(advice(5)) == .failed(refused))
        #expect(search.begin() == .ask(place(1)))
        search.moved(to: place(5))
        search.mistrust(place(5))
        #expect(search.begin() == .ask(place(1)))
    }

    @Test("hears a server last that was not the right one")
    func mistrust() {
        var search = ServerSearch(advisers: [place(1), place(2), place(3)], name: "c")
        search.mistrust(place(1))
        #expect(search.begin() == .ask(place(2)))
        search.mistrust(place(7))
        #expect(search.advisers == [place(2), place(3), place(1)])
        search.prefer(place(3))
        search.prefer(place(7))
        #expect(search.advisers == [place(3), place(2), place(1)])
    }

    @Test(
        "ends, asks nobody twice, and finds the server when one honest adviser is left",
        arguments: 0..<2000 as Range<UInt64>)
    func property(seed: UInt64) {
        var random = SeededGenerator(seed: seed)
        let servers = (100..<105).map { place($0) }
        let advisers = (1..<12).map { place($0) }
        let seeds = Array(advisers.shuffled(using: &random).prefix(Int.random(in: 1...4, using: &random)))
        var search = ServerSearch(advisers: seeds, name: "m")
        for _ in 0..<20 {
            if Bool.random(using: &random) { search.mistrust(advisers.randomElement(using: &random)!) }
            if Int.random(in: 0..<4, using: &random) == 0 {
                search.moved(to: servers.randomElement(using: &random)!)
            }
            // The world of this round: who is down, and which server is the right one.
            let right = servers.randomElement(using: &random)!
            let honest = seeds.randomElement(using: &random)!
            let down = Set(advisers.filter { $0 != honest && Int.random(in: 0..<3, using: &random) == 0 })
            var asked: Set<Location> = []
            var tried: Set<Location> = []
            var step = search.begin()
            var steps = 0
            round: while true {
                steps += 1
                #expect(steps < 100, "the search does not end")
                if steps >= 100 { return }
                switch step {
                case .ask(let adviser):
                    let isNewAdviser = asked.insert(adviser).inserted
                    #expect(isNewAdviser, "asked twice")
                    let others = advisers.shuffled(using: &random).prefix(Int.random(in: 0...5, using: &random))
                    if down.contains(adviser) {
                        step = search.adviserFailed(refused)
                    } else if adviser == honest {
                        step = search.advised(ServerSearch.Advice(server: right, advisers: Array(others)))
                    } else {
                        step = search.advised(
                            ServerSearch.Advice(
                                server: Bool.random(using: &random) ? servers.randomElement(using: &random) : nil,
                                advisers: Array(others)))
                    }
                case .connect(let server):
                    let isNewServer = tried.insert(server).inserted
                    #expect(isNewServer, "tried twice")
                    if server == right { break round }
                    step = search.serverFailed(refused)
                case .failed:
                    Issue.record("the honest adviser \(honest) was not heard")
                    break round
                }
                #expect(Set(seeds).isSubset(of: Set(search.advisers)), "a seed was forgotten")
                #expect(Set(search.advisers).count == search.advisers.count)
            }
        }
    }

    @Test("does not fill the memory with what a network says")
    func flood() {
        var search = ServerSearch(advisers: [place(1)], name: "m")
        _ = search.begin()
        _ = search.advised(
            ServerSearch.Advice(server: nil, advisers: (1...60_000).map { place($0) }))
        #expect(search.advisers.count == ServerSearch.maximumAdvisers)
    }

    private func place(_ number: Int) -> Location { .host("h\(number)", port: number) }

    private func advice(_ server: Int, _ others: Int...) -> ServerSearch.Advice {
        ServerSearch.Advice(server: place(server), advisers: others.map { place($0) })
    }
}
