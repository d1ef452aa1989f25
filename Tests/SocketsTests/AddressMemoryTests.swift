import NIOConcurrencyHelpers
import NIOCore
import NIOPosix
import Sockets
import Testing

@Suite("The memory of addresses")
struct AddressMemoryTests {
    private static func address(_ number: Int, port: Int = 443) throws -> SocketAddress {
        try SocketAddress(ipAddress: number < 100 ? "192.0.2.\(number)" : "2001:db8::\(number)", port: port)
    }

    @Test("leaves out an address that has failed after TCP, until the others have failed or five minutes have passed")
    func choice() throws {
        let memory = AddressMemory()
        let all = try [1, 2, 101].map { try Self.address($0) }
        let start = NIODeadline.uptimeNanoseconds(0)
        #expect(memory.choice(of: all, now: start) == all)
        memory.failed(all[0], now: start)
        #expect(memory.choice(of: all, now: start) == [all[1], all[2]])
        #expect(try memory.choice(of: [Self.address(1, port: 444)], now: start).count == 1)
        memory.failed(all[1], now: start + .seconds(1))
        #expect(memory.choice(of: all, now: start + .seconds(1)) == [all[2]])
        memory.failed(all[2], now: start + .seconds(2))
        #expect(memory.choice(of: all, now: start + .seconds(2)) == all)
        #expect(memory.choice(of: all, now: start + .seconds(301)) == Array(all[..<2]))
        memory.worked(all[2])
        #expect(memory.choice(of: all, now: start + .seconds(2)) == [all[2]])
    }

    /// A resolver with fixed answers.
    private struct Fixed: Resolver {
        let eventLoop: any EventLoop
        let v4, v6: [SocketAddress]

        func initiateAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
            eventLoop.makeSucceededFuture(v4)
        }

        func initiateAAAAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
            v6.isEmpty
                ? eventLoop.makeFailedFuture(SocketAddressError.unknown(host: host, port: port))
                : eventLoop.makeSucceededFuture(v6)
        }

        func cancelQueries() {}
    }

    @Test("chooses among the answers for IPv4 and IPv6 together")
    func resolver() async throws {
        let memory = AddressMemory()
        let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
        let (v4, v6) = (try Self.address(1), try Self.address(101))
        memory.failed(v6)
        for inner in [[v6], []] {
            let resolver = memory.resolver(on: eventLoop, using: Fixed(eventLoop: eventLoop, v4: [v4], v6: inner))
            // NIO asks for both at once.
            let second = resolver.initiateAAAAQuery(host: "h", port: 443)
            #expect(try await resolver.initiateAQuery(host: "h", port: 443).get() == [v4])
            if inner.isEmpty {
                await #expect(throws: SocketAddressError.self) { try await second.get() }
            } else {
                #expect(try await second.get().isEmpty)
            }
        }
    }

    @Test("asks the system's resolver, whether or not an address has failed", arguments: [false, true])
    func system(hasFailed: Bool) async throws {
        let memory = AddressMemory()
        if hasFailed { memory.failed(try Self.address(1)) }
        let resolver = memory.resolver(on: MultiThreadedEventLoopGroup.singleton.next())
        _ = resolver.initiateAAAAQuery(host: "localhost", port: 4242)
        let found = try await resolver.initiateAQuery(host: "localhost", port: 4242).get()
        #expect(found.map(\.ipAddress) == ["127.0.0.1"] && found.first?.port == 4242)
    }

    @Test("completes no lookup on an event loop that has ended, however late the system answers")
    func ended() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let loop = group.next()
        let answered = NIOLockedValueBox(0)
        for _ in 0..<500 {
            SystemResolver(on: loop).initiateAQuery(host: "localhost", port: 1).whenComplete { _ in
                answered.withLockedValue { $0 += 1 }
            }
        }
        try await loop.submit { SystemResolver.endLookups(on: loop) }.get()
        #expect(try await loop.submit { answered.withLockedValue { $0 } }.get() == 500)
        // A connection that was requested before begins its lookup later.
        await #expect(throws: EventLoopError.shutdown) {
            try await loop.flatSubmit { SystemResolver(on: loop).initiateAQuery(host: "localhost", port: 1) }.get()
        }
        try await group.shutdownGracefully()
        #expect(answered.withLockedValue { $0 } == 500)
    }
}
