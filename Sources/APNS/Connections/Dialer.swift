import NIOCore
import NIOPosix
import Sockets
import TLS

/// How TCP, the proxy's tunnel and TLS are set up under whatever is to be spoken.
struct Dialer {
    /// Where to.
    var endpoint: APNSEndpoint
    var tls: TLSContext
    /// The proxy to connect through; the endpoint's name is then looked up by the proxy.
    var proxy: HTTPProxy?
    /// How long TCP, the proxy's answer and TLS may each take.
    var timeout: TimeAmount
    /// Looks up host names; `nil` asks the system.
    var resolver: (any Resolver & Sendable)? = nil

    /// Sets up TCP.
    /// - Parameter tune: sets further options of the connection.
    func connect(
        on group: any EventLoopGroup, _ tune: (ClientBootstrap) -> ClientBootstrap = { $0 }
    ) -> EventLoopFuture<any Channel> {
        tune(
            ClientBootstrap(group: group)
                .resolver(resolver)
                .connectTimeout(timeout)
                .channelOption(.tcpOption(.tcp_nodelay), value: 1)
                // A second read that finds nothing costs as much as the first; if there is more, the loop comes back at
                // once.
                .channelOption(.maxMessagesPerRead, value: 1)
        ).connect(host: proxy?.host ?? endpoint.host, port: proxy?.port ?? endpoint.port)
    }

    /// Puts TLS, and before it the proxy's tunnel, under a handler of the channel.
    /// - Parameter onTLS: called when the TLS handshake begins.
    func secure(_ channel: any Channel, onTLS: @escaping () -> Void) throws {
        let pipeline = channel.pipeline.syncOperations
        guard let proxy else {
            try pipeline.addHandler(TLSHandler(client: tls, host: endpoint.host), position: .first)
            return onTLS()
        }
        let tunnel = ProxyHandler(
            proxy, to: endpoint, timeout: timeout,
            thenTLS: { [tls, endpoint] in TLSHandler(client: tls, host: endpoint.host) }, onConnected: onTLS)
        try pipeline.addHandler(tunnel, position: .first)
    }

    /// Why TCP could not be set up, in words.
    func cannotConnect(_ error: any Error) -> APNSConnectionError {
        let reason = ConnectFailure.reason(error)
        if let proxy { return .proxy(proxy, endpoint, "it cannot be reached: \(reason)") }
        // A shortage of file descriptors names its own remedy.
        guard ConnectFailure.shortage(error) == nil else { return .cannotConnect(endpoint, reason) }
        return .cannotConnect(
            endpoint, "\(reason); is the address right, and can this host reach it? Check the firewall")
    }
}
