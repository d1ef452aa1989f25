import Logging
import NIOCore
import NIOPosix
import Redis
import Synchronization
import TestSupport

/// Runs a body with a started client on a separate event loop, and closes the client afterwards.
func withClient(
    _ url: String, _ configuration: RedisClientConfiguration = RedisClientConfiguration(),
    key: String = "", masterWatch: MasterWatch? = nil,
    logger: Logger = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }), waiting: Bool = true,
    prepare: @Sendable (RedisClient) -> Void = { _ in },
    _ body: (RedisClient) async throws -> Void
) async throws {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let client = RedisClient(
        topology: try RedisTopology(url: url), key: key, eventLoop: group.next(), configuration: configuration,
        masterWatch: masterWatch, logger: logger)
    prepare(client)
    client.start()
    let result: Result<Void, any Error>
    do {
        if waiting { try await client.waitUntilReady(timeout: .minutes(3)) }
        try await body(client)
        result = .success(())
    } catch {
        result = .failure(error)
    }
    try await client.close().get()
    try await group.shutdownGracefully()
    try result.get()
}

/// Returns the reason why the first attempt to connect fails.
func failure(
    of url: String, _ configuration: RedisClientConfiguration = RedisClientConfiguration()
) async throws -> RedisError {
    let states = States()
    try await withClient(url, configuration, waiting: false, prepare: states.record) { _ in
        try await eventually { !states.failures.isEmpty }
    }
    return states.failures[0]
}

/// The states of a client, in order.
final class States: Sendable {
    private let recorded = Mutex<[RedisClient.State]>([])

    @Sendable func record(_ client: RedisClient) {
        client.onStateChange = { state in self.recorded.withLock { $0.append(state) } }
    }

    var all: [RedisClient.State] { recorded.withLock { $0 } }

    var failures: [RedisError] {
        all.compactMap { state in if case .disconnected(let error, _) = state { error } else { nil } }
    }
}
