import APNS
import LegacyAPNS
import Logging
import NIOCore
import TLS

/// The configuration of an app's transport, ready to be created on an event loop.
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
        switch transport {
        case .http2:
            var pool = ConnectionPool.Configuration(endpoint: endpoint, tls: try tlsContext(for: credential))
            pool.minimumConnections = minimumConnections
            pool.maximumConnections = maximumConnections
            pool.maximumStreams = maximumStreams
            pool.requestTimeout = .milliseconds(Int64(requestTimeout))
            pool.idleTimeout = .seconds(Int64(idleTimeout))
            pool.maximumAge = maximumConnectionAge.map { .seconds(Int64($0)) }
            pool.proxy = proxy
            pool.connectTimeout = .milliseconds(Int64(connectTimeout))
            pool.reconnectPause = .milliseconds(Int64(reconnectBase))
            pool.longestReconnectPause = .milliseconds(Int64(max(reconnectBase, reconnectCap)))
            return .http2(pool)
        case .gateway(let options):
            var pool = GatewayPool.Configuration(endpoint: endpoint, tls: try tlsContext(for: credential))
            pool.minimumConnections = minimumConnections
            pool.maximumConnections = maximumConnections
            pool.frame = options.frame
            pool.batchBytes = options.batchBytes
            pool.batchTime = .milliseconds(Int64(options.batchTime))
            pool.confirmAfter = .milliseconds(Int64(options.confirmAfter))
            pool.sendsBarriers = options.sendsBarriers
            pool.windowCount = options.windowCount
            pool.windowBytes = options.windowBytes
            pool.stallTimeout = .milliseconds(Int64(requestTimeout))
            pool.idleTimeout = .seconds(Int64(idleTimeout))
            pool.maximumAge = maximumConnectionAge.map { .seconds(Int64($0)) }
            pool.proxy = proxy
            pool.connectTimeout = .milliseconds(Int64(connectTimeout))
            pool.reconnectPause = .milliseconds(Int64(reconnectBase))
            pool.longestReconnectPause = .milliseconds(Int64(max(reconnectBase, reconnectCap)))
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
