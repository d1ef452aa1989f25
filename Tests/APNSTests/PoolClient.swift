import NIOCore
import TLS
import TestSupport
import Testing

@testable import APNS

typealias PoolClient = TransportClient<ConnectionPool>

extension PoolClient {
    /// - Parameters:
    ///   - eventLoop: nil for one shared with other tests and with servers.
    ///   - host: the host to connect to and to verify.
    ///   - ticks: true to call the pool's `check` periodically.
    static func start(
        on eventLoop: (any EventLoop)? = nil, host: String = "127.0.0.1", port: Int, trusted: String = "ca.pem",
        ticks: Bool = true,
        _ change: @Sendable (inout ConnectionPool.Configuration) -> Void = { _ in }
    ) async throws -> PoolClient {
        var configuration = ConnectionPool.Configuration(
            PoolConfiguration(
                endpoint: APNSEndpoint(host: host, port: port),
                tls: try TestCertificates.client(trusting: trusted, protocols: ["h2"])))
        configuration.maximumConnections = 1
        change(&configuration)
        return try await start(on: eventLoop, ticks: ticks) { [configuration] eventLoop, logger in
            ConnectionPool(configuration, eventLoop: eventLoop, logger: logger)
        }
    }
}

extension PoolClient {
    func failures() async throws -> Int { try await ask { $0.connections.state.failures } }

    func lastFailure() async throws -> String { try await ask { "\($0.lastFailure, default: "none")" } }

    func check(_ time: NIODeadline = .now()) async throws { try await ask { $0.check(now: time) } }

    /// Waits for a server's SETTINGS with this limit of streams.
    func waitForSettings(_ streams: Int = 10) async throws {
        try await eventually("the settings") { try await ask { $0.capacity } == streams }
    }
}

/// Runs a body with a pool, and then closes the pool at once.
func withPool<Result>(
    host: String = "127.0.0.1", port: Int, trusted: String = "ca.pem",
    _ change: @Sendable (inout ConnectionPool.Configuration) -> Void = { _ in },
    _ body: (PoolClient) async throws -> Result
) async throws -> Result {
    let client = try await PoolClient.start(host: host, port: port, trusted: trusted, change)
    return try await client.closingAfter(body)
}

/// Runs a body with a scripted peer and a pool that connects to it.
/// - Parameters:
///   - address: the peer's address.
///   - host: the host to connect to and to verify.
/// - Returns: what the peer saw until the pool was closed.
@discardableResult
func withPool(
    against script: @escaping ScriptedPeer.Script, protocols: [String] = ["h2"],
    transport: ScriptedPeer.Transport = .tls, address: String = "127.0.0.1", host: String = "127.0.0.1",
    trusted: String = "ca.pem", ticks: Bool = true,
    _ change: @Sendable (inout ConnectionPool.Configuration) -> Void = { _ in },
    _ body: (PoolClient, ScriptedPeer) async throws -> Void
) async throws -> ScriptedPeer.Seen {
    let peer = try await ScriptedPeer.start(host: address, protocols: protocols, transport: transport, script: script)
    return try await running(
        {
            let client = try await PoolClient.start(
                host: host, port: peer.port, trusted: trusted, ticks: ticks, change)
            try await client.closingAfter { try await body($0, peer) }
            return peer.seen.withLockedValue { $0 }
        }, thenAlways: peer.stop)
}

extension RequestResult {
    static let delivered = RequestResult.response(Response(status: 200))
}

extension [RequestResult] {
    static func delivered(_ count: Int) -> [RequestResult] { Array(repeating: .delivered, count: count) }
}

func expect(
    _ future: EventLoopFuture<RequestResult>, _ expected: RequestResult,
    sourceLocation: SourceLocation = #_sourceLocation
) async throws {
    var result = try await future.get()
    // Third-party servers answer without an ID.
    if expected == .delivered, case .response(var response) = result, response.origin == .unnamed {
        response.origin = .apns
        result = .response(response)
    }
    #expect(result == expected, sourceLocation: sourceLocation)
}

struct Unexpected: Error, CustomStringConvertible {
    let description: String

    init(_ result: RequestResult?) { description = "the result is \(result, default: "missing")" }
}
