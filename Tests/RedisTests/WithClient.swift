import Logging
import NIOCore
import NIOPosix
import Redis

/// A started client on an event loop of its own, closed when `body` ends.
func withClient(
    _ url: String, _ configuration: RedisClientConfiguration = RedisClientConfiguration(),
    logger: Logger = Logger(label: "test", factory: { _ in SwiftLogNoOpLogHandler() }), waiting: Bool = true,
    prepare: @Sendable (RedisClient) -> Void = { _ in },
    _ body: (RedisClient) async throws -> Void
) async throws {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let client = RedisClient(
        endpoint: try RedisEndpoint(url: url), eventLoop: group.next(), configuration: configuration, logger: logger)
    prepare(client)
    client.start()
    let result: Result<Void, any Error>
    do {
        if waiting { try await client.waitUntilReady(timeout: .seconds(10)) }
        try await body(client)
        result = .success(())
    } catch {
        result = .failure(error)
    }
    try await client.close().get()
    try await group.shutdownGracefully()
    try result.get()
}

/// Asks again and again until it is so; fails after ten seconds.
func eventually(_ isSo: () async throws -> Bool) async throws {
    let deadline = ContinuousClock.now + .seconds(10)
    while try await !isSo() {
        guard ContinuousClock.now < deadline else { throw NeverSo() }
        try await Task.sleep(for: .milliseconds(5))
    }
}

struct NeverSo: Error {}
