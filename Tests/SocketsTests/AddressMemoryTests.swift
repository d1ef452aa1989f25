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

    /// Connects to a host with the addresses 127.0.0.1 and ::1.
    /// - Parameters:
    ///   - listening: the addresses where a server listens.
    ///   - failed: the addresses that have failed before.
    /// - Returns: the addresses of each attempt, and the address that was reached.
    private static func connect(
        _ memory: AddressMemory, _ listening: [String], failed: [String]
    ) async throws -> (attempts: [[String]], reached: String?) {
        let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
        let servers = ServerBootstrap(group: eventLoop)
        var port = 0
        var open: [any Channel] = []
        for host in listening {
            open.append(try await servers.bind(host: host, port: port).get())
            port = open[0].localAddress?.port ?? 0
        }
        // A port without a server.
        if open.isEmpty {
            let channel = try await servers.bind(host: "127.0.0.1", port: 0).get()
            port = channel.localAddress?.port ?? 0
            try await channel.close()
        }
        let address = { [port] (host: String) in try SocketAddress(ipAddress: host, port: port) }
        for host in failed { memory.failed(try address(host)) }
        let resolver = Fixed(eventLoop: eventLoop, v4: [try address("127.0.0.1")], v6: [try address("::1")])
        let attempts = NIOLockedValueBox<[[String]]>([])
        let channel = try? await eventLoop.flatSubmit { [port] in
            memory.connect(on: eventLoop, using: resolver) { chosen in
                // NIO makes both queries, for IPv4 and IPv6, at once.
                chosen.initiateAAAAQuery(host: "h", port: port).and(chosen.initiateAQuery(host: "h", port: port))
                    .flatMap { v6, v4 in
                        attempts.withLockedValue { $0.append((v6 + v4).compactMap(\.ipAddress)) }
                        return ClientBootstrap(group: eventLoop).resolver(chosen).connect(host: "h", port: port)
                    }
            }
        }.get()
        let reached = channel?.remoteAddress?.ipAddress
        for channel in open + [channel].compactMap({ $0 }) { try await channel.close() }
        return (attempts.withLockedValue { $0 }, reached)
    }

    @Test(
        "tries an address that was left out at once if no other accepts a connection",
        arguments: [
            ([], ["127.0.0.1"], [["::1", "127.0.0.1"]], "127.0.0.1"),
            (["127.0.0.1"], ["127.0.0.1", "::1"], [["::1"]], "::1"),
            (["127.0.0.1"], ["127.0.0.1"], [["::1"], ["::1", "127.0.0.1"]], "127.0.0.1"),
            (["::1"], ["127.0.0.1"], [["127.0.0.1"]], "127.0.0.1"),
            (["127.0.0.1", "::1"], ["127.0.0.1"], [["::1", "127.0.0.1"]], "127.0.0.1"),
            (["127.0.0.1"], [], [["::1"], ["::1", "127.0.0.1"]], nil),
            ([], [], [["::1", "127.0.0.1"]], nil),
        ] as [([String], [String], [[String]], String?)])
    func leftOut(failed: [String], listening: [String], attempts: [[String]], reached: String?) async throws {
        let result = try await Self.connect(AddressMemory(), listening, failed: failed)
        #expect(result.attempts == attempts)
        #expect(result.reached == reached)
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
        // A connection can begin its lookup after the end of all lookups.
        await #expect(throws: EventLoopError.shutdown) {
            try await loop.flatSubmit { SystemResolver(on: loop).initiateAQuery(host: "localhost", port: 1) }.get()
        }
        try await group.shutdownGracefully()
        #expect(answered.withLockedValue { $0 } == 500)
    }
}
