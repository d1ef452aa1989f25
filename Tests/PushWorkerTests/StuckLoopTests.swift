import APNS
import Dispatch
import Foundation
import Logging
import NIOCore
import PushQueue
import Redis
import ServiceLifecycle
import Telemetry
import TestSupport
import Testing

@testable import PushWorker

@Suite("A stuck event loop")
struct StuckLoopTests {
    @Test("is reported at once, delays neither probe nor scrape, and is healthy again when it runs again")
    func stuck() async throws {
        let redis = try RedisServer()
        let worker = try Self.worker(redis)
        func measured(_ metric: Metric) async throws -> Double? {
            try Exposition(await worker.metrics().text()).value(metric.name)
        }
        let running = Task { try await worker.run() }
        try await eventually("both lanes are at work") {
            let problems = await worker.health().problems
            return !problems.isEmpty && problems.allSatisfy { $0.contains("no connection to APNs") }
        }
        #expect(worker.liveness(patience: .minutes(10)).isReady)
        #expect(try await measured(WorkerMetric.lanesStuck) == 0)

        let block = DispatchSemaphore(value: 0)
        worker.lanes[1].eventLoop.execute { block.wait() }
        let stuck = "the event loop of lane 1 is stuck"
        try await eventually("the stuck loop is seen") {
            worker.liveness(patience: .seconds(4)).problems.contains(stuck)
        }
        // Until the loop counts as stuck, it is asked and does not answer. A stuck loop is not asked.
        let problems = await worker.health().problems
        #expect(problems.contains("the event loop of lane 1 does not answer") || problems.contains(stuck))
        try await eventually("it counts as stuck") { worker.liveness().problems == [stuck] }
        #expect(worker.liveness().details.first.map { $0.seconds >= 10 } == true)
        #expect(await worker.health().problems == [stuck])
        #expect(try await measured(WorkerMetric.lanesStuck) == 1)
        #expect(try await measured(WorkerMetric.lanes) == 2)

        block.signal()
        try await eventually("it turns again") { worker.liveness(patience: .seconds(4)).isReady }
        running.cancel()
        try await running.value
        #expect(await worker.health().problems == ["the worker has stopped"])
        #expect(try await measured(WorkerMetric.requests) == 0, "the last page stays")
    }

    /// A worker with two lanes and an APNs that does not answer.
    private static func worker(_ redis: RedisServer) throws -> Worker {
        let source = try ProviderTokenSource(
            key: SigningKey(pem: Data(contentsOf: URL(filePath: TestCertificates.path("AuthKey_ABC123DEFG.p8")))),
            keyID: "ABC123DEFG", teamID: "TEAM123456")
        var app = AppConfiguration(name: "app", topic: "com.example.app", credential: .providerTokens([source]))
        app.endpoint = APNSEndpoint(host: "127.0.0.1", port: try RedisServer.refusedPort())
        var configuration = WorkerConfiguration(
            redis: try RedisTopology(url: redis.url), queues: [QueueConfiguration(keys: try QueueKeys())],
            sharedKeys: SharedKeys(prefix: "push"), apps: [app], workerName: "stuck")
        configuration.lanes = 2
        configuration.drainTimeout = 1000
        return Worker(
            configuration: configuration, logger: Logger(label: "stuck", factory: { _ in SwiftLogNoOpLogHandler() }),
            isMeasured: true, wallClock: { 1_800_000_000 })
    }
}
