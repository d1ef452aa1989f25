import NIOCore
import TLS
import TestSupport
import Testing

@testable import APNS

/// A pool of HTTP/2 connections.
typealias PoolClient = TransportClient<ConnectionPool>

extension PoolClient {
    /// - Parameters:
    ///   - eventLoop: nil for one shared with other tests and with servers.
    ///   - host: the host to connect to and verify.
    ///   - ticks: true to call the pool's `check` periodically.
    static func start(
        on eventLoop: (any EventLoop)? = nil, host: String = "127.0.0.1", port: Int, trusted: String = "ca.pem",
        ticks: Bool = true,
        _ change: @Sendable (inout ConnectionPool.Configuration) -> Void = { _ in }
    ) async throws -> PoolClient {
        var tls = TLSClientConfiguration()
        tls.trust = .file(try TestCertificates.path(trusted))
        tls.applicationProtocols = ["h2"]
        var configuration = ConnectionPool.Configuration(
            PoolConfiguration(endpoint: APNSEndpoint(host: host, port: port), tls: try TLSContext.client(tls)))
        configuration.maximumConnections = 1
        change(&configuration)
        return try await start(on: eventLoop, ticks: ticks) { [configuration] eventLoop, logger in
            ConnectionPool(configuration, eventLoop: eventLoop, logger: logger)
        }
    }
}

/// Runs a body with a pool, and closes the pool at once afterwards.
func withPool<Result>(
    host: String = "127.0.0.1", port: Int, trusted: String = "ca.pem",
    _ change: @Sendable (inout ConnectionPool.Configuration) -> Void = { _ in },
    _ body: (PoolClient) async throws -> Result
) async throws -> Result {
    let client = try await PoolClient.start(host: host, port: port, trusted: trusted, change)
    return try await client.closingAfter(body)
}

extension RequestResult {
    static let delivered = RequestResult.response(Response(status: 200))
}

extension [RequestResult] {
    static func delivered(_ count: Int) -> [RequestResult] { Array(repeating: .delivered, count: count) }
}

/// Expects a request to have this result.
func expect(
    _ future: EventLoopFuture<RequestResult>, _ expected: RequestResult,
    sourceLocation: SourceLocation = #_sourceLocation
) async throws {
    var result = try await future.get()
    // Servers of others answer without an ID.
    if expected == .delivered, case .response(var response) = result, response.origin == .unnamed {
        response.origin = .apns
        result = .response(response)
    }
    #expect(result == expected, sourceLocation: sourceLocation)
}
