import NIOConcurrencyHelpers
import NIOCore
import NIOPosix

/// The addresses that accepted a TCP connection and then failed, for all connections of the process.
///
/// A host can have several addresses, and the system always sorts them the same way (RFC 6724). The first one may accept connections and
/// then fail, because its path loses large packets or its backend is dead. Then each attempt would fail. So a failed address is left out
/// for ``time``, unless all other addresses have failed.
public final class AddressMemory: Sendable {
    public static let shared = AddressMemory()

    /// The time until a failed address is tried again.
    static let time = TimeAmount.minutes(5)
    /// The maximum number of addresses. A name that resolves to ever new addresses must not fill the memory.
    static let maximum = 1000

    private let failures = NIOLockedValueBox<[SocketAddress: NIODeadline]>([:])

    public init() {}

    /// Records that a connection to an address failed after TCP.
    public func failed(_ address: SocketAddress?, now: NIODeadline = .now()) {
        guard let address else { return }
        failures.withLockedValue { failures in
            failures = failures.filter { now - $0.value < Self.time }
            if failures.count < Self.maximum { failures[address] = now }
        }
    }

    /// Records that a connection to an address works.
    public func worked(_ address: SocketAddress?) {
        guard let address else { return }
        failures.withLockedValue { _ = $0.removeValue(forKey: address) }
    }

    /// Records whether a connection worked after TCP.
    public func note<Value, Failure>(_ result: Result<Value, Failure>, at address: SocketAddress?) {
        switch result {
        case .success: worked(address)
        case .failure: failed(address)
        }
    }

    /// Returns the addresses to try: the addresses without a recent failure, or all if each has one.
    public func choice(of addresses: [SocketAddress], now: NIODeadline = .now()) -> [SocketAddress] {
        let failures = failures.withLockedValue { $0 }
        let good = addresses.filter { address in failures[address].map { now - $0 >= Self.time } ?? true }
        return good.isEmpty ? addresses : good
    }

    /// Connects with TCP, on the event loop, to an address that has not failed lately.
    ///
    /// If none of them accepts a connection, it tries all addresses once, because the only good one may be left out. The error of this
    /// second attempt is then returned.
    /// - Parameters:
    ///   - resolver: the resolver whose answers are used; `nil` for the system's.
    ///   - attempt: connects with a resolver.
    public func connect<Connected: Sendable>(
        on eventLoop: any EventLoop, using resolver: (any Resolver & Sendable)? = nil,
        _ attempt: @escaping (any Resolver & Sendable) -> EventLoopFuture<Connected>
    ) -> EventLoopFuture<Connected> {
        // The choice waits for the answers for both IPv4 and IPv6, so it is skipped while no address has failed.
        let choosing =
            failures.withLockedValue(\.isEmpty)
            ? nil : ChoosingResolver(self, on: eventLoop, using: resolver ?? SystemResolver(on: eventLoop))
        let first = attempt(choosing ?? resolver ?? SystemResolver(on: eventLoop))
        return first.assumeIsolated().flatMapError { [self] error in
            // An address that refuses connections also counts as failed: it is not better than one that accepts connections and then fails.
            for failure in (error as? NIOConnectionError)?.connectionErrors ?? [] { failed(failure.target) }
            guard choosing?.hasLeftOut == true else { return eventLoop.makeFailedFuture(error) }
            return attempt(resolver ?? SystemResolver(on: eventLoop))
        }.nonisolated()
    }
}

/// A resolver that leaves out the addresses that have failed.
private final class ChoosingResolver: Resolver, LoopBound {
    private let memory: AddressMemory
    private let eventLoop: any EventLoop
    private let inner: any Resolver & Sendable
    /// The answers for IPv4 and IPv6; `nil` before the first query. Both are needed to decide which addresses to leave out.
    private let answers = NIOLockedValueBox<
        (v4: EventLoopFuture<[SocketAddress]>, v6: EventLoopFuture<[SocketAddress]>)?
    >(
        nil)
    private let leftOut = NIOLockedValueBox(false)

    var hasLeftOut: Bool { leftOut.withLockedValue { $0 } }

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
        // If the query for IPv4 or IPv6 fails, only the addresses of the other query count.
        let others = others.flatMapErrorThrowing { _ in [] }
        return own.and(others).map { [memory, leftOut] own, others in
            let all = own + others
            let chosen = Set(memory.choice(of: all))
            if all.contains(where: { !chosen.contains($0) }) { leftOut.withLockedValue { $0 = true } }
            return own.filter(chosen.contains)
        }
    }
}
