import APNS
import LegacyAPNS
import Logging
import NIOCore
import TLS

/// The configuration of an app's transport. Making the transport from it can't fail.
enum TransportConfiguration: Sendable {
    case http2(ConnectionPool.Configuration)
    case gateway(GatewayPool.Configuration)

    init(_ app: AppConfiguration) throws {
        var connections = PoolConfiguration(endpoint: app.endpoint, tls: try app.tlsContext(for: app.credential))
        connections.proxy = app.proxy
        connections.minimumConnections = app.minimumConnections
        connections.maximumConnections = app.maximumConnections
        connections.connectTimeout = .milliseconds(Int64(app.connectTimeout))
        connections.idleTimeout = .seconds(Int64(app.idleTimeout))
        connections.maximumAge = app.maximumConnectionAge.map { .seconds(Int64($0)) }
        connections.reconnect.first = .milliseconds(Int64(app.reconnectBase))
        connections.reconnect.longest = .milliseconds(Int64(max(app.reconnectBase, app.reconnectCap)))
        let timeout = TimeAmount.milliseconds(Int64(app.requestTimeout))
        switch app.transport {
        case .http2:
            var pool = ConnectionPool.Configuration(connections)
            pool.maximumStreams = app.maximumStreams
            pool.requestTimeout = timeout
            self = .http2(pool)
        case .gateway(let options):
            var pool = GatewayPool.Configuration(connections, options)
            pool.stallTimeout = timeout
            self = .gateway(pool)
        }
    }

    func make(on eventLoop: any EventLoop, logger: Logger) -> any Transport {
        switch self {
        case .http2(let configuration): ConnectionPool(configuration, eventLoop: eventLoop, logger: logger)
        case .gateway(let configuration): GatewayPool(configuration, eventLoop: eventLoop, logger: logger)
        }
    }
}
