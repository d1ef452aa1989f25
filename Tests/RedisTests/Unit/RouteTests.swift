import TestSupport
import Testing

@testable import Redis

@Suite("A client's route to its server")
struct RouteTests {
    final class Link {}

    private let moved = RedisServerError(text: "MOVED 7 a:1")

    private func request(_ name: String) -> RedisRequest {
        RedisRequest(command: RedisCommand(name), timeout: nil, completion: { _ in })
    }

    private func names(_ requests: [RedisRequest]) -> [String] {
        requests.map { String($0.command?.description.prefix { $0 != " " } ?? "") }
    }

    /// Returns the destination of a new command.
    private func destination(of name: String, _ route: inout Route<Link>) -> String {
        switch route.send(request(name)) {
        case .server: "server"
        case .kept: "kept"
        case .none: "none"
        }
    }

    private func serving(_ link: Link) -> Route<Link> {
        var route = Route<Link>()
        #expect(route.found(link) == true)
        #expect(route.switchServer()?.server === link)
        return route
    }

    @Test("is empty before there is a server, and leads to it afterwards")
    func begin() {
        var route = Route<Link>()
        #expect(destination(of: "a", &route) == "none")
        #expect(route.switchServer() == nil)
        let link = Link()
        route = serving(link)
        #expect(destination(of: "a", &route) == "server")
        #expect(route.server === link && route.retired == nil)
        #expect(route.found(Link()) == false)
    }

    @Test("keeps the order when the slot moves: redirected commands precede later ones")
    func order() throws {
        let (old, new) = (Link(), Link())
        var route = serving(old)
        #expect(route.retire(old, keepsCommands: true) == true)
        #expect(route.retire(old, keepsCommands: true) == false)
        #expect(route.sentAway(request("1"), because: moved) == true)
        #expect(destination(of: "3", &route) == "kept")
        #expect(route.sentAway(request("2"), because: moved) == true)

        // The new server must wait until the old one has answered everything.
        #expect(route.found(new) == true)
        #expect(route.switchServer() == nil)
        #expect(route.lost(old) == .ofPreviousServer)
        let taken = route.switchServer()
        let (server, kept) = try #require(taken)
        #expect(server === new && names(kept) == ["1", "2", "3"])
        #expect(kept.map(\.redirections) == [1, 1, 0])
        #expect(route.giveUpKept().isEmpty)
        #expect(route.sentAway(request("late"), because: moved) == false)
    }

    @Test("keeps nothing for the next server when the old one was dropped for another reason, or was lost")
    func failures() {
        let link = Link()
        var route = serving(link)
        #expect(route.retire(link, keepsCommands: false) == true)
        #expect(destination(of: "a", &route) == "none")
        #expect(route.sentAway(request("b"), because: moved) == false)
        #expect(route.retired === link)

        route = serving(link)
        #expect(route.lost(link) == .ofServer)
        #expect(route.lost(link) == .ofNothing)
        #expect(destination(of: "a", &route) == "none")
    }

    @Test("returns the kept commands when no server is found")
    func givenUp() {
        let (old, next) = (Link(), Link())
        var route = serving(old)
        #expect(route.retire(old, keepsCommands: true) == true)
        #expect(route.sentAway(request("1"), because: moved) == true)
        #expect(route.found(next) == true)
        #expect(route.lost(next) == .ofNextServer)
        #expect(names(route.giveUpKept()) == ["1"])
        #expect(route.giveUpKept().isEmpty)
        #expect(destination(of: "2", &route) == "none")
        #expect(route.lost(old) == .ofPreviousServer)
    }

    @Test("waits for the answers of other nodes that were asked")
    func asked() {
        let (old, new) = (Link(), Link())
        var route = serving(old)
        route.asks()
        route.asks()
        #expect(route.retire(old, keepsCommands: true) == true)
        #expect(route.found(new) == true && route.lost(old) == .ofPreviousServer)
        route.asked()
        #expect(route.switchServer() == nil)
        route.asked()
        #expect(route.switchServer()?.server === new)
    }

    @Test("a command is returned to its caller after five redirections")
    func loop() throws {
        var request = request("a")
        var link = Link()
        var route = serving(link)
        for _ in 0..<5 {
            #expect(route.retire(link, keepsCommands: true) == true)
            #expect(route.sentAway(request, because: moved) == true)
            #expect(route.lost(link) == .ofPreviousServer)
            link = Link()
            #expect(route.found(link) == true)
            let taken = route.switchServer()
            request = try #require(taken?.kept.first)
        }
        #expect(route.retire(link, keepsCommands: true) == true)
        #expect(route.sentAway(request, because: moved) == false)
    }

    @Test("is empty after it is closed, and returns all commands")
    func close() {
        let (old, new) = (Link(), Link())
        var route = serving(old)
        #expect(route.retire(old, keepsCommands: true) == true)
        _ = route.send(request("1"))
        #expect(route.found(new) == true)
        let (links, kept) = route.close()
        #expect(links.map(ObjectIdentifier.init) == [old, new].map(ObjectIdentifier.init))
        #expect(names(kept) == ["1"])
        #expect(destination(of: "2", &route) == "none")
        #expect(route.found(Link()) == false && route.switchServer() == nil && route.close().links.isEmpty)
    }

    /// A client's use of a node: the commands in flight, in order.
    private final class NodeLink {
        let node: Int
        var pending: [RedisRequest] = []

        init(to node: Int) { self.node = node }
    }

    @Test("each command is executed once, in order, or fails, whatever happens and when", arguments: 0..<1000)
    func model(seed: Int) {
        var random = SeededGenerator(seed: UInt64(seed))
        var route = Route<NodeLink>()
        var links: [NodeLink] = []
        var (owner, next) = (0, 0)
        var (executed, failed): ([Int], [Int]) = ([], [])

        func number(_ request: RedisRequest) -> Int { Int(names([request])[0]) ?? -1 }
        func switchServer() {
            guard let (server, kept) = route.switchServer() else { return }
            server.pending += kept
        }
        func search() {
            let link = NodeLink(to: owner)
            guard route.server == nil, route.found(link) else { return }
            links.append(link)
            switchServer()
        }
        func send() {
            let request = request("\(next)")
            next += 1
            switch route.send(request) {
            case .server(let link): link.pending.append(request)
            case .kept: break
            case .none: failed.append(number(request))
            }
        }
        func answer() {
            guard let link = [route.server, route.retired].compactMap({ $0 }).randomElement(using: &random),
                !link.pending.isEmpty
            else { return }
            let request = link.pending.removeFirst()
            if link.node == owner {
                executed.append(number(request))
            } else {
                _ = route.retire(link, keepsCommands: true)
                if !route.sentAway(request, because: moved) { failed.append(number(request)) }
            }
            if link.pending.isEmpty, route.retired === link { _ = route.lost(link) }
            switchServer()
        }
        func lose(_ link: NodeLink) {
            _ = route.lost(link)
            failed += link.pending.map(number)
            link.pending = []
            switchServer()
        }
        /// Moves the slot, unless commands sent to a previous owner are still unanswered.
        func migrate() { if links.allSatisfy({ $0.pending.isEmpty || $0.node == owner }) { owner = 1 - owner } }

        search()
        for _ in 0..<400 {
            switch Int.random(in: 0..<100, using: &random) {
            case 0..<50: send()
            case 50..<85: answer()
            case 85..<93: search()
            case 93..<97: migrate()
            case 97: links.randomElement(using: &random).map(lose)
            default: failed += route.giveUpKept().map(number)
            }
        }
        for _ in 0..<2000 where executed.count + failed.count < next {
            search()
            answer()
        }
        #expect((executed + failed).sorted() == Array(0..<next))
        #expect(executed == executed.sorted())
        #expect(!executed.isEmpty)
    }
}

@Suite("The connection to a node")
struct NodeStateTests {
    private func use(_ user: Int, _ node: inout NodeState<String, Int>) -> String {
        switch node.use(user) {
        case .connection(let connection): connection
        case .wait: "wait"
        case .closed: "closed"
        }
    }

    @Test("is opened for the first user, then given to all waiting users in order, and to later ones")
    func sharing() {
        var node = NodeState<String, Int>(first: 1)
        #expect(use(2, &node) == "wait")
        #expect(node.connection == nil && node.users == 0)
        #expect(node.connected("c") == [1, 2])
        #expect(use(3, &node) == "c")
        #expect(node.users == 3 && node.connection == "c")
        #expect(node.close().isEmpty)
        #expect(use(4, &node) == "closed")
    }

    @Test("is missing if the attempt fails or is no longer needed")
    func failure() {
        var node = NodeState<String, Int>(first: 1)
        _ = node.use(2)
        #expect(node.close() == [1, 2])
        #expect(node.connected("c").isEmpty && node.connection == nil)
        #expect(node.release() == false)
    }

    @Test("is idle when the last user has released it, until there is another one")
    func idle() {
        var node = NodeState<String, Int>(first: 1)
        _ = node.connected("c")
        _ = node.use(2)
        #expect(node.release() == false)
        #expect(node.idle(since: node.useCount) == nil)
        #expect(node.release() == true)
        let since = node.useCount
        #expect(node.idle(since: since) == "c")
        _ = node.use(3)
        #expect(node.idle(since: since) == nil)
        #expect(node.release() == true)
        // The connection was used in between, so the idle time starts again.
        #expect(node.idle(since: since) == nil)
        #expect(node.idle(since: node.useCount) == "c")
    }
}
