import Glibc
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// Looks a host up with the system's resolver, for one connection.
///
/// The system's call blocks for as long as a DNS server does not answer. NIO's own resolver then completes its futures on
/// an event loop that may have ended; ``endLookups(on:)`` ends the lookups of a loop before that.
package final class SystemResolver: Resolver, Sendable {
    /// The threads that wait for the system. They serve lookups alone, so that a dead DNS server delays nothing else.
    private static let threads = {
        let threads = NIOThreadPool(numberOfThreads: 4)
        threads.start()
        return threads
    }()
    /// The lookups that have no answer yet, of all event loops.
    private static let pending = NIOLockedValueBox<[ObjectIdentifier: Lookup]>([:])

    private let eventLoop: any EventLoop
    /// `nil` before the first query: the system answers for IPv4 and IPv6 at once.
    private let lookup = NIOLockedValueBox<Lookup?>(nil)

    package init(on eventLoop: any EventLoop) { self.eventLoop = eventLoop }

    package func initiateAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        started(host, port).v4.futureResult
    }

    package func initiateAAAAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        started(host, port).v6.futureResult
    }

    package func cancelQueries() {
        if let lookup = lookup.withLockedValue({ $0 }) {
            Self.complete(lookup, .failure(ChannelError.ioOnClosedChannel))
        }
    }

    /// Fails the lookups of an event loop that have no answer yet. Must run on this loop, as the last that connects.
    package static func endLookups(on eventLoop: any EventLoop) {
        eventLoop.preconditionInEventLoop()
        let ended = pending.withLockedValue { $0.values.filter { $0.eventLoop === eventLoop } }
        for lookup in ended { complete(lookup, .failure(EventLoopError.shutdown)) }
    }

    private func started(_ host: String, _ port: Int) -> Lookup {
        lookup.withLockedValue { lookup in
            if let lookup { return lookup }
            let started = Lookup(eventLoop, host, port)
            lookup = started
            Self.pending.withLockedValue { $0[ObjectIdentifier(started)] = started }
            Self.threads.submit { state in
                // Nobody waits for a lookup that has been cancelled.
                guard Self.pending.withLockedValue({ $0[ObjectIdentifier(started)] != nil }) else { return }
                Self.complete(
                    started, state == .active ? started.ask() : .failure(NIOThreadPoolError.ThreadPoolInactive()))
            }
            return started
        }
    }

    /// Answers a lookup, unless it has an answer. The lock is held meanwhile: a loop whose lookups have ended is not used.
    private static func complete(
        _ lookup: Lookup, _ answer: Result<(v4: [SocketAddress], v6: [SocketAddress]), any Error>
    ) {
        pending.withLockedValue { pending in
            guard pending.removeValue(forKey: ObjectIdentifier(lookup)) != nil else { return }
            // Not at once: on the loop itself, what waits for the answer could start another lookup.
            lookup.eventLoop.execute {
                lookup.v6.completeWith(answer.map(\.v6))
                lookup.v4.completeWith(answer.map(\.v4))
            }
        }
    }
}

/// A question to the system's resolver.
private final class Lookup: Sendable {
    let eventLoop: any EventLoop
    let v4, v6: EventLoopPromise<[SocketAddress]>
    private let host: String
    private let port: Int

    init(_ eventLoop: any EventLoop, _ host: String, _ port: Int) {
        self.eventLoop = eventLoop
        (v4, v6) = (eventLoop.makePromise(), eventLoop.makePromise())
        self.host = host
        self.port = port
    }

    /// Asks the system, and waits for it.
    func ask() -> Result<(v4: [SocketAddress], v6: [SocketAddress]), any Error> {
        var hints = addrinfo()
        hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
        hints.ai_protocol = Int32(IPPROTO_TCP)
        var first: UnsafeMutablePointer<addrinfo>?
        guard getaddrinfo(host, "\(port)", &hints, &first) == 0 else {
            return .failure(SocketAddressError.unknown(host: host, port: port))
        }
        defer { freeaddrinfo(first) }
        var found: (v4: [SocketAddress], v6: [SocketAddress]) = ([], [])
        for entry in sequence(first: first, next: { $0?.pointee.ai_next }) {
            guard let entry, let address = entry.pointee.ai_addr else { continue }
            switch entry.pointee.ai_family {
            case AF_INET:
                address.withMemoryRebound(to: sockaddr_in.self, capacity: 1) {
                    found.v4.append(SocketAddress($0.pointee, host: host))
                }
            case AF_INET6:
                address.withMemoryRebound(to: sockaddr_in6.self, capacity: 1) {
                    found.v6.append(SocketAddress($0.pointee, host: host))
                }
            default: break
            }
        }
        return .success(found)
    }
}
