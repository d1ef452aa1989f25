import APNS
import LegacyAPNS
import Logging
import NIOCore
import TLS

/// The configuration of an app's transport. Making the transport from it can't fail.
enum TransportConfiguration: Sendable {
    case http2(ConnectionPool.Configuration)
    case gateway(GatewayPool.Configuration)

    func make(on eventLoop: any EventLoop, logger: Logger) -> any Transport {
        switch self {
        case .http2(let configuration): ConnectionPool(configuration, eventLoop: eventLoop, logger: logger)
        case .gateway(let configuration): GatewayPool(configuration, eventLoop: eventLoop, logger: logger)
        }
    }

    /// The same configuration with a single connection.
    var single: TransportConfiguration {
        switch self {
        case .http2(var configuration):
            (configuration.minimumConnections, configuration.maximumConnections) = (1, 1)
            return .http2(configuration)
        case .gateway(var configuration):
            (configuration.minimumConnections, configuration.maximumConnections) = (1, 1)
            return .gateway(configuration)
        }
    }
}

extension AppConfiguration {
    func transportConfiguration() throws -> TransportConfiguration {
        var connections = PoolConfiguration(endpoint: endpoint, tls: try tlsContext(for: credential))
        connections.proxy = proxy
        connections.minimumConnections = minimumConnections
        connections.maximumConnections = maximumConnections
        connections.connectTimeout = .milliseconds(Int64(connectTimeout))
        connections.idleTimeout = .seconds(Int64(idleTimeout))
        connections.maximumAge = maximumConnectionAge.map { .seconds(Int64($0)) }
        connections.reconnect.first = .milliseconds(Int64(reconnectBase))
        connections.reconnect.longest = .milliseconds(Int64(max(reconnectBase, reconnectCap)))
        let timeout = TimeAmount.milliseconds(Int64(requestTimeout))
        switch transport {
        case .http2:
            var pool = ConnectionPool.Configuration(connections)
            pool.maximumStreams = maximumStreams
            pool.requestTimeout = timeout
            return .http2(pool)
        case .gateway(let options):
            var pool = GatewayPool.Configuration(connections, options)
            pool.stallTimeout = timeout
            return .gateway(pool)
        }
    }

    package func tlsContext(for credential: Credential) throws -> TLSContext {
        var tls = TLSClientConfiguration()
        tls.trust = trust
        if case .http2 = transport { tls.applicationProtocols = ["h2"] }
        if case .certificate(let identity) = credential { tls.identity = identity }
        return try TLSContext.client(tls)
    }
}
