import Glibc
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// Looks up a host with the system's resolver, for one connection.
///
/// The system's call blocks for as long as a DNS server does not answer. NIO's own resolver completes its futures afterwards, even on an
/// event loop that has ended. ``endLookups(on:)`` ends the lookups of a loop before the loop ends.
public final class SystemResolver: Resolver, LoopBound {
    /// The threads that wait for the system. They serve only lookups, so that a dead DNS server delays nothing else.
    private static let threads = {
        let threads = NIOThreadPool(numberOfThreads: 4)
        threads.start()
        return threads
    }()
    private struct Lookups {
        /// The unanswered lookups of all event loops.
        var pending: [ObjectIdentifier: Lookup] = [:]
        /// The event loops that must have no more lookups.
        var endedLoops: [EndedLoop] = []
    }

    private struct EndedLoop { weak var loop: (any EventLoop)? }

    private static let lookups = NIOLockedValueBox(Lookups())

    private let eventLoop: any EventLoop
    /// The lookup for IPv4 and IPv6, which the system answers at once; `nil` before the first query.
    private let lookup = NIOLockedValueBox<Lookup?>(nil)

    public init(on eventLoop: any EventLoop) { self.eventLoop = eventLoop }

    public func initiateAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        started(host, port).v4.futureResult
    }

    public func initiateAAAAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        started(host, port).v6.futureResult
    }

    public func cancelQueries() {
        if let lookup = lookup.withLockedValue({ $0 }) {
            Self.complete(lookup, .failure(ChannelError.ioOnClosedChannel))
        }
    }

    /// Fails the unanswered lookups of an event loop, and all later ones: a connection may begin its lookup in a later turn of the loop.
    /// Must run on this loop.
    public static func endLookups(on eventLoop: any EventLoop) {
        eventLoop.preconditionInEventLoop()
        let ended = lookups.withLockedValue { lookups in
            lookups.endedLoops.removeAll { $0.loop == nil }
            lookups.endedLoops.append(EndedLoop(loop: eventLoop))
            return lookups.pending.values.filter { $0.eventLoop === eventLoop }
        }
        for lookup in ended { complete(lookup, .failure(EventLoopError.shutdown)) }
    }

    private func started(_ host: String, _ port: Int) -> Lookup {
        lookup.withLockedValue { lookup in
            if let lookup { return lookup }
            let started = Lookup(eventLoop, host, port)
            lookup = started
            let hasEnded = Self.lookups.withLockedValue { lookups in
                let hasEnded = lookups.endedLoops.contains { $0.loop === eventLoop }
                if !hasEnded { lookups.pending[ObjectIdentifier(started)] = started }
                return hasEnded
            }
            guard !hasEnded else {
                // Nothing waits for the lookup yet, so it can fail synchronously.
                started.complete(.failure(EventLoopError.shutdown))
                return started
            }
            Self.threads.submit { state in
                // A cancelled lookup needs no answer.
                guard Self.lookups.withLockedValue({ $0.pending[ObjectIdentifier(started)] != nil }) else { return }
                Self.complete(
                    started, state == .active ? started.ask() : .failure(NIOThreadPoolError.ThreadPoolInactive()))
            }
            return started
        }
    }

    /// Answers an unanswered lookup. It holds the lock, so that ``endLookups(on:)`` cannot end the loop's lookups before the loop has this
    /// task.
    private static func complete(
        _ lookup: Lookup, _ answer: Result<(v4: [SocketAddress], v6: [SocketAddress]), any Error>
    ) {
        lookups.withLockedValue { lookups in
            guard lookups.pending.removeValue(forKey: ObjectIdentifier(lookup)) != nil else { return }
            // Completes the lookup in a later turn, because its callbacks may start another lookup, which needs the lock.
            lookup.eventLoop.execute { lookup.complete(answer) }
        }
    }
}

/// A question to the system's resolver.
private final class Lookup: LoopBound {
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

    func complete(_ answer: Result<(v4: [SocketAddress], v6: [SocketAddress]), any Error>) {
        v6.completeWith(answer.map(\.v6))
        v4.completeWith(answer.map(\.v4))
    }

    /// Asks the system's resolver, and waits for its answer.
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
