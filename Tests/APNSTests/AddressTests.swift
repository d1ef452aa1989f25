import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import TestSupport
import Testing

@testable import APNS

@Suite("A host's addresses", .timeLimit(.minutes(2)))
struct AddressTests {
    @Test(
        "are tried until one works",
        arguments: [
            (["::1"], ["127.0.0.1"]), ([], ["127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.1"]),
            (["::1"], ["127.0.0.2", "127.0.0.3", "127.0.0.1"]), ([], ["127.0.0.1"]),
        ])
    func dead(six: [String], four: [String]) async throws {
        let resolver = CountingResolver(six: six, four: four)
        try await withPeer(script: answersAll) { peer in
            try await withPool(host: "localhost", port: peer.port, { $0.resolver = resolver }) { client in
                try await expect(client.send(), .delivered)
                #expect(try await client.ask { $0.connections.state.failures } == 0)
            }
            #expect(peer.seen.withLockedValue(\.connections) == 1)
        }
    }

    @Test("may be IPv6 only")
    func onlySix() async throws {
        let resolver = CountingResolver(six: ["::1"], four: [])
        let peer = try await ScriptedPeer.start(host: "::1", script: answersAll)
        try await withPool(host: "localhost", port: peer.port, { $0.resolver = resolver }) { client in
            try await expect(client.send(), .delivered)
        }
        try await peer.stop()
    }

    @Test("are resolved again at each connect")
    func askedAnew() async throws {
        // The first address has no listener.
        let resolver = CountingResolver(six: [], four: ["127.0.0.9"])
        let script: ScriptedPeer.Script = { connection, event in
            switch event {
            case .connected: connection.send(.settings(maximumStreams: 10))
            case .frame(let frame):
                guard frame.kind == .data else { return }
                connection.send(.answer(frame.stream, status: 200), .goAway(lastStream: frame.stream))
                connection.close()
            }
        }
        try await withPeer(script: script) { peer in
            try await withPool(host: "localhost", port: peer.port, { $0.resolver = resolver }) { client in
                try await eventually("two failures") { try await client.ask { $0.connections.state.failures } >= 2 }
                let asked = resolver.queries.withLockedValue { $0 }
                #expect(asked >= 2)
                resolver.four.withLockedValue { $0 = ["127.0.0.1"] }
                for _ in 0..<5 { try await expect(client.send(), .delivered) }
                #expect(resolver.queries.withLockedValue { $0 } >= asked + 5)
            }
        }
    }

    @Test("that do not exist are a failure that names the host")
    func none() async throws {
        let resolver = CountingResolver(six: [], four: [])
        try await withPool(host: "localhost", port: 1, { $0.resolver = resolver }) { client in
            try await eventually("a failure") { try await client.ask { $0.connections.state.failures } >= 1 }
            #expect(
                try await client.ask { "\($0.lastFailure, default: "none")" }.hasPrefix("cannot connect to localhost:1")
            )
        }
    }
}

/// Returns fixed addresses, and counts the requests.
private final class CountingResolver: Resolver, Sendable {
    private let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
    private let six: [String]
    let four: NIOLockedValueBox<[String]>
    let queries = NIOLockedValueBox(0)

    init(six: [String], four: [String]) {
        self.six = six
        self.four = NIOLockedValueBox(four)
    }

    func initiateAAAAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        eventLoop.makeCompletedFuture { try six.map { try SocketAddress(ipAddress: $0, port: port) } }
    }

    func initiateAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        queries.withLockedValue { $0 += 1 }
        return eventLoop.makeCompletedFuture {
            try four.withLockedValue { $0 }.map { try SocketAddress(ipAddress: $0, port: port) }
        }
    }

    func cancelQueries() {}
}
