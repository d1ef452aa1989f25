import NIOCore
import NIOPosix
import Sockets
import TLS

/// Sets up TCP, the proxy's tunnel and TLS, for any protocol on top of them.
public struct Dialer: Sendable {
    public var endpoint: APNSEndpoint
    /// The trusted authorities, and the client certificate if it is the credential.
    public var tls: TLSContext
    /// The proxy to connect through; it also resolves the endpoint's name.
    public var proxy: HTTPProxy?
    /// The timeout of each step: TCP, the proxy's answer, and TLS.
    public var connectTimeout = TimeAmount.seconds(10)
    /// Resolves host names again for each connection. `nil` for the system's resolver.
    var resolver: (any Resolver & Sendable)?

    public init(endpoint: APNSEndpoint, tls: TLSContext, proxy: HTTPProxy? = nil) {
        self.endpoint = endpoint
        self.tls = tls
        self.proxy = proxy
    }

    /// Connects with TCP. Call it on the event loop.
    /// - Parameter tune: sets further channel options.
    public func connect(
        on eventLoop: any EventLoop, _ tune: (ClientBootstrap) -> ClientBootstrap = { $0 }
    ) -> EventLoopFuture<any Channel> {
        let bootstrap = tune(
            ClientBootstrap(group: eventLoop)
                .connectTimeout(connectTimeout)
                .channelOption(.tcpOption(.tcp_nodelay), value: 1)
                // Reads once per event: a second read usually finds nothing and costs as much as the first. If more data has arrived, the
                // event loop reads again at once.
                .channelOption(.maxMessagesPerRead, value: 1)
        )
        return AddressMemory.shared.connect(on: eventLoop, using: resolver) { [proxy, endpoint] resolver in
            bootstrap.resolver(resolver).connect(host: proxy?.host ?? endpoint.host, port: proxy?.port ?? endpoint.port)
        }
    }

    /// Adds TLS, preceded by the proxy's tunnel, below the handlers of a channel.
    /// - Parameter onTLS: called when the TLS handshake begins.
    public func secure(_ channel: any Channel, onTLS: @escaping () -> Void) throws {
        let pipeline = channel.pipeline.syncOperations
        guard let proxy else {
            try pipeline.addHandler(TLSHandler(client: tls, host: endpoint.host), position: .first)
            return onTLS()
        }
        let tunnel = ProxyHandler(
            proxy, to: endpoint, timeout: connectTimeout,
            thenTLS: { [tls, endpoint] in TLSHandler(client: tls, host: endpoint.host) }, onConnected: onTLS)
        try pipeline.addHandler(tunnel, position: .first)
    }

    public func cannotConnect(_ error: any Error) -> APNSConnectionError {
        let reason = ConnectFailure.reason(error)
        if let proxy { return .proxy(proxy, endpoint, "it cannot be reached: \(reason)") }
        // The error already contains the remedy for a shortage of file descriptors.
        guard ConnectFailure.shortage(error) == nil else { return .cannotConnect(endpoint, reason) }
        return .cannotConnect(
            endpoint, "\(reason); is the address right, and can this host reach it? Check the firewall")
    }
}
