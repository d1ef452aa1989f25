import Glibc
import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// The addresses that accepted a connection of TCP and then failed, for all connections of the process.
///
/// A host can have several addresses, and the system sorts them the same way each time (RFC 6724). If the first accepts
/// connections and nothing more, because its path loses large packets or its backend is dead, each attempt would end
/// there. So such an address is left out for ``time``, until the others have failed, too.
package final class AddressMemory: Sendable {
    /// The memory of this process.
    package static let shared = AddressMemory()

    /// The time for which an address is left out.
    static let time = TimeAmount.minutes(5)
    /// The maximum number of addresses, so that a name with ever new ones cannot fill the memory.
    static let maximum = 1000

    /// The times of the failures.
    private let failures = NIOLockedValueBox<[SocketAddress: NIODeadline]>([:])

    package init() {}

    /// Records that a connection to an address failed after TCP.
    package func failed(_ address: SocketAddress?, now: NIODeadline = .now()) {
        guard let address else { return }
        failures.withLockedValue { failures in
            failures = failures.filter { now - $0.value < Self.time }
            if failures.count < Self.maximum { failures[address] = now }
        }
    }

    /// Records the addresses that did not accept a connection of TCP, which are not better than one that did.
    package func failed(_ error: any Error, now: NIODeadline = .now()) {
        for failure in (error as? NIOConnectionError)?.connectionErrors ?? [] { failed(failure.target, now: now) }
    }

    /// Records that a connection to an address works.
    package func worked(_ address: SocketAddress?) {
        guard let address else { return }
        failures.withLockedValue { _ = $0.removeValue(forKey: address) }
    }

    /// Records how a connection went on after TCP.
    package func note<Value, Failure>(_ result: Result<Value, Failure>, at address: SocketAddress?) {
        switch result {
        case .success: worked(address)
        case .failure: failed(address)
        }
    }

    /// Returns the addresses to try: those that have not failed lately, or all of them if each has.
    package func choice(of addresses: [SocketAddress], now: NIODeadline = .now()) -> [SocketAddress] {
        let failures = failures.withLockedValue { $0 }
        let good = addresses.filter { address in failures[address].map { now - $0 >= Self.time } ?? true }
        return good.isEmpty ? addresses : good
    }

    /// Returns a resolver for one connection; `nil` for the system's, if no address has failed lately.
    /// - Parameter resolver: the resolver whose answers are used; `nil` for the system's.
    package func resolver(
        on eventLoop: any EventLoop, using resolver: (any Resolver & Sendable)? = nil
    ) -> (any Resolver & Sendable)? {
        guard !failures.withLockedValue(\.isEmpty) else { return resolver }
        return ChoosingResolver(self, on: eventLoop, using: resolver ?? SystemResolver(on: eventLoop))
    }
}

/// Leaves out the addresses of another resolver that have failed.
private final class ChoosingResolver: Resolver, Sendable {
    private let memory: AddressMemory
    private let eventLoop: any EventLoop
    private let inner: any Resolver & Sendable
    /// The answers for IPv4 and IPv6, once asked: whether an address is left out depends on both.
    private let answers = NIOLockedValueBox<
        (v4: EventLoopFuture<[SocketAddress]>, v6: EventLoopFuture<[SocketAddress]>)?
    >(
        nil)

    init(_ memory: AddressMemory, on eventLoop: any EventLoop, using inner: any Resolver & Sendable) {
        self.memory = memory
        self.eventLoop = eventLoop
        self.inner = inner
    }

    func initiateAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        let (v4, v6) = ask(host, port)
        return choice(of: v4, besides: v6)
    }

    func initiateAAAAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> {
        let (v4, v6) = ask(host, port)
        return choice(of: v6, besides: v4)
    }

    func cancelQueries() { inner.cancelQueries() }

    private func ask(
        _ host: String, _ port: Int
    ) -> (v4: EventLoopFuture<[SocketAddress]>, v6: EventLoopFuture<[SocketAddress]>) {
        if let known = answers.withLockedValue({ $0 }) { return known }
        let asked = (
            v4: inner.initiateAQuery(host: host, port: port), v6: inner.initiateAAAAQuery(host: host, port: port)
        )
        answers.withLockedValue { $0 = asked }
        return asked
    }

    private func choice(
        of own: EventLoopFuture<[SocketAddress]>, besides others: EventLoopFuture<[SocketAddress]>
    ) -> EventLoopFuture<[SocketAddress]> {
        // Without an answer of one kind, only the addresses of the other count.
        let others = others.flatMapErrorThrowing { _ in [] }
        return own.and(others).map { [memory] own, others in
            let chosen = Set(memory.choice(of: own + others))
            return own.filter(chosen.contains)
        }
    }
}

/// The system's resolver; NIO's own is internal.
private final class SystemResolver: Resolver, Sendable {
    private let eventLoop: any EventLoop

    init(on eventLoop: any EventLoop) { self.eventLoop = eventLoop }

    func initiateAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> { ask(AF_INET, host, port) }

    func initiateAAAAQuery(host: String, port: Int) -> EventLoopFuture<[SocketAddress]> { ask(AF_INET6, host, port) }

    func cancelQueries() {}

    private func ask(_ family: Int32, _ host: String, _ port: Int) -> EventLoopFuture<[SocketAddress]> {
        NIOThreadPool.singleton.runIfActive(eventLoop: eventLoop) {
            var hints = addrinfo()
            hints.ai_family = family
            hints.ai_socktype = Int32(SOCK_STREAM.rawValue)
            hints.ai_protocol = Int32(IPPROTO_TCP)
            var first: UnsafeMutablePointer<addrinfo>?
            guard getaddrinfo(host, "\(port)", &hints, &first) == 0 else {
                throw SocketAddressError.unknown(host: host, port: port)
            }
            defer { freeaddrinfo(first) }
            return sequence(first: first, next: { $0?.pointee.ai_next }).compactMap { entry in
                guard let entry, let address = entry.pointee.ai_addr else { return nil }
                return switch entry.pointee.ai_family {
                case AF_INET:
                    address.withMemoryRebound(to: sockaddr_in.self, capacity: 1) {
                        SocketAddress($0.pointee, host: host)
                    }
                case AF_INET6:
                    address.withMemoryRebound(to: sockaddr_in6.self, capacity: 1) {
                        SocketAddress($0.pointee, host: host)
                    }
                default: nil
                }
            }
        }
    }
}
