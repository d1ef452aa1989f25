import Foundation
import NIOCore
import NIOPosix
import Sockets

/// A proxy between clients and a server on 127.0.0.1. It passes bytes on, and has faults when a test wants them.
package final class FaultProxy: Sendable {
    /// A fault lasts until ``heal()`` or the next fault.
    package enum Fault: Equatable, Sendable {
        /// Bytes arrive later by this time, in both directions.
        case delay(TimeAmount)
        /// Connections are accepted and stay open, but all bytes are lost, as if the peer's machine had lost its power.
        case blackHole
        /// The server gets all requests, but the clients get no answers.
        case noAnswers
        /// New connections are refused; open ones continue.
        case refusal
    }

    /// The port on 127.0.0.1 that clients connect to.
    package let port: Int

    private let core: FaultProxyCore
    /// Keeps the port for this process while connections are refused.
    private let reservation: BoundPort

    /// - Parameters:
    ///   - target: the server's port on 127.0.0.1.
    ///   - watch: gets the bytes that clients send, as they arrive.
    /// - Throws: if no port is free.
    package init(
        to target: Int, group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton,
        watch: (@Sendable (ByteBuffer) -> Void)? = nil
    ) async throws {
        guard let reservation = BoundPort(isShared: true) else {
            throw ChildProcess.Failure(description: "no free port on 127.0.0.1 for a proxy")
        }
        self.reservation = reservation
        port = reservation.port
        core = FaultProxyCore(target: target, port: port, eventLoop: group.next(), watch: watch)
        try await core.onLoop { $0.listen() }
    }

    deinit {
        let core = core
        core.eventLoop.execute { core.stop() }
        close(reservation.descriptor)
    }

    /// Begins a fault, for new and open connections, and ends the previous fault.
    package func begin(_ fault: Fault) async throws { try await core.onLoop { $0.begin(fault) } }

    /// Ends the fault. Resets the connections that have lost bytes, because their peers can't understand later bytes.
    package func heal() async throws { try await core.onLoop { $0.heal() } }

    /// Closes all connections, as a server that ends does.
    package func cut() async throws { try await core.onLoop { $0.closeAll(resetting: false) } }

    /// Resets all connections, as a server that does not know them does.
    package func reset() async throws { try await core.onLoop { $0.closeAll(resetting: true) } }

    /// The number of clients' open connections.
    package var connections: Int {
        get async throws { try await core.onLoop { $0.eventLoop.makeSucceededFuture($0.links.count) } }
    }
}

/// The part of a proxy on its event loop.
///
/// `@unchecked Sendable`: only the event loop uses the variables, which ``onLoop(_:)`` ensures.
final class FaultProxyCore: LoopBound, @unchecked Sendable {
    let eventLoop: any EventLoop
    let watch: (@Sendable (ByteBuffer) -> Void)?
    private(set) var links: [ObjectIdentifier: FaultProxyLink] = [:]
    private(set) var fault: FaultProxy.Fault?
    private let target: Int
    private let port: Int
    private var listener: (any Channel)?

    init(target: Int, port: Int, eventLoop: any EventLoop, watch: (@Sendable (ByteBuffer) -> Void)?) {
        self.watch = watch
        self.target = target
        self.port = port
        self.eventLoop = eventLoop
    }

    func onLoop<Value: Sendable>(
        _ body: @escaping @Sendable (FaultProxyCore) -> EventLoopFuture<Value>
    ) async throws -> Value {
        try await eventLoop.flatSubmit { body(self) }.get()
    }

    func listen() -> EventLoopFuture<Void> {
        ServerBootstrap(group: eventLoop)
            .serverChannelOption(.socketOption(.init(rawValue: SO_REUSEPORT)), value: 1)
            .serverChannelOption(.backlog, value: 256)
            .childChannelOption(.autoRead, value: false)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelInitializer { [self] client in
                client.eventLoop.makeCompletedFuture { try accept(client) }
            }
            .bind(host: "127.0.0.1", port: port)
            .assumeIsolated().map { self.listener = $0 }.nonisolated()
    }

    func begin(_ new: FaultProxy.Fault) -> EventLoopFuture<Void> {
        heal().assumeIsolated().flatMap { [self] in
            fault = new
            guard new == .refusal, let listener else { return eventLoop.makeSucceededVoidFuture() }
            self.listener = nil
            return listener.close()
        }.nonisolated()
    }

    func heal() -> EventLoopFuture<Void> {
        fault = nil
        for link in links.values where link.hasLostBytes { link.close(resetting: true) }
        return listener == nil ? listen() : eventLoop.makeSucceededVoidFuture()
    }

    func closeAll(resetting: Bool) -> EventLoopFuture<Void> {
        for link in links.values { link.close(resetting: resetting) }
        return eventLoop.makeSucceededVoidFuture()
    }

    func stop() {
        listener?.close(promise: nil)
        _ = closeAll(resetting: true)
    }

    private func accept(_ client: any Channel) throws {
        let link = try FaultProxyLink(client: client, core: self)
        links[ObjectIdentifier(link)] = link
        client.closeFuture.assumeIsolated().whenComplete { _ in
            self.links[ObjectIdentifier(link)] = nil
            link.close(resetting: false)
        }
        if fault == .blackHole {
            link.swallow()
            return
        }
        ClientBootstrap(group: eventLoop)
            .channelOption(.autoRead, value: false)
            .channelOption(.allowRemoteHalfClosure, value: true)
            .connect(host: "127.0.0.1", port: target)
            .assumeIsolated().whenComplete { result in
                switch result {
                case .success(let server): link.connected(to: server)
                case .failure: link.close(resetting: true)
                }
            }
    }
}
