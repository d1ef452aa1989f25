import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Sockets
import TestSupport
import Testing

@testable import APNS

@Suite("A host's addresses", .timeLimit(.minutes(10)))
struct AddressTests {
    @Test(
        "are tried until one works, and may be IPv6 only",
        arguments: [
            ("127.0.0.1", ["::1"], ["127.0.0.1"]), ("127.0.0.1", [], ["127.0.0.1"]), ("::1", ["::1"], []),
            ("127.0.0.1", [], ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.1"]),
            ("127.0.0.1", ["::1"], ["127.0.0.2", "127.0.0.3", "127.0.0.1"]),
        ])
    func dead(server: String, six: [String], four: [String]) async throws {
        let resolver = CountingResolver(six: six, four: four)
        let seen = try await withPool(
            against: answersAll, address: server, host: "localhost", { $0.resolver = resolver }
        ) { client, _ in
            try await expect(client.send(), .delivered)
            #expect(try await client.failures() == 0)
            #expect(try await client.ask { ($0.connections.state.connecting, $0.usableConnections) } == (0, 1))
        }
        #expect(seen.connections == 1)
    }

    @Test("are resolved again at each connect")
    func askedAnew() async throws {
        // The first address has no listener.
        let resolver = CountingResolver(six: [], four: ["127.0.0.9"])
        let script = handling { connection, frame in
            connection.send(.answer(frame.stream, status: 200), .goAway(lastStream: frame.stream))
            connection.close()
        }
        try await withPool(against: script, host: "localhost", { $0.resolver = resolver }) { client, _ in
            try await eventually("two failures") { try await client.failures() >= 2 }
            let asked = resolver.queries.withLockedValue { $0 }
            #expect(asked >= 2)
            resolver.four.withLockedValue { $0 = ["127.0.0.1"] }
            for _ in 0..<5 { try await expect(client.send(), .delivered) }
            #expect(resolver.queries.withLockedValue { $0 } >= asked + 5)
        }
    }

    @Test("that do not exist are a failure that names the host")
    func none() async throws {
        let resolver = CountingResolver(six: [], four: [])
        try await withPool(host: "localhost", port: 1, { $0.resolver = resolver }) { client in
            try await eventually("a failure") { try await client.failures() >= 1 }
            #expect(try await client.lastFailure().hasPrefix("cannot connect to localhost:1"))
        }
    }
}

private final class CountingResolver: Resolver, LoopBound {
    private let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
    private let six: [String]
    let four: NIOLockedValueBox<[String]>
    let queries = NIOLockedValueBox(0)

    init(six: [String], four: [String]) { (self.six, self.four) = (six, NIOLockedValueBox(four)) }

    func initiateAAAAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        eventLoop.makeCompletedFuture { try six.map { try SocketAddress(ipAddress: $0, port: port) } }
    }

    func initiateAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        queries.withLockedValue { $0 += 1 }
        let addresses = four.withLockedValue { $0 }
        return eventLoop.makeCompletedFuture { try addresses.map { try SocketAddress(ipAddress: $0, port: port) } }
    }

    func cancelQueries() {}
}
