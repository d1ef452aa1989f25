import APNS
import APNSSimulator
import ArgumentParser
import FoundationEssentials
import Glibc
import Logging
import NIOCore
import Operations
import PushJob
import PushQueue
import PushWorker
import Redis
import Telemetry

/// Measures the constants of a plan on this machine: a worker in this process sends from a queue of its own in Redis to
/// a simulated APNs in this process. The CPU time of the worker is that of its lane's thread.
struct PlanMeasurement {
    /// The measured numbers of tokens per job.
    private static let sizes = [1, 10, 100, 1000]
    /// The notifications of a measurement, of which half are sent if the answers are delayed.
    static let notifications = 40_000
    /// The answers of the delayed measurements, on one connection with this number of streams.
    private static let delay = AnswerDelay(milliseconds: 20, jitterMilliseconds: 5)
    private static let streams = 500
    /// The time without a delivery after which the measurement has failed.
    private static let patience = Duration.seconds(30)

    private let settings: Settings
    private let notifications: Int
    /// All keys begin with it, and nothing else does.
    private let prefix: String
    private let keys: QueueKeys
    private let sharedKeys: SharedKeys

    /// - Parameter notifications: at least 2,000, so that there is a job of each size.
    init(_ settings: Settings, notifications: Int) throws {
        (self.settings, self.notifications) = (settings, notifications)
        let number = String(UInt64.random(in: .min ... .max), radix: 16)
        prefix = "\(RedisSettings(settings).prefix):plan-\(number)"
        do { keys = try QueueKeys(prefix: prefix) } catch { throw CommandFailure(.configuration, "\(error)") }
        sharedKeys = SharedKeys(prefix: prefix)
    }

    /// - Throws: a ``CommandFailure``, or an exit code if the process was asked to stop. The keys are deleted in any
    ///   case, unless Redis cannot be reached.
    func run() async throws -> PlanConstants {
        Interruption.watch()
        var result: PlanConstants?
        try await CommandRedis(settings).withClient(for: keys.jobs) { client in
            try await CommandRedis(settings).withClient(for: sharedKeys.invalidTokens) { shared in
                let servers = [client, shared]
                for server in servers {
                    guard try await ownKeys(server).isEmpty else {
                        throw CommandFailure(.attention, "Redis has keys that begin with \(prefix): repeat the command")
                    }
                }
                let outcome: Result<PlanConstants, any Error>
                do { outcome = .success(try await measure(client)) } catch { outcome = .failure(error) }
                for server in servers { try await deleteKeys(server) }
                result = try outcome.get()
            }
        }
        guard let result else { throw CommandFailure(.attention, "nothing was measured") }
        return result
    }

    private func measure(_ client: RedisClient) async throws -> PlanConstants {
        Terminal.note("measuring on this machine, for up to a minute\n")
        let atOnce = try await samples(client, delay: nil, notifications)
        let delayed = try await samples(client, delay: Self.delay, notifications / 2)
        if atOnce[0].sample.perSecond < 1.5 * delayed[0].sample.perSecond {
            Terminal.note("warning: this machine or Redis is busy, or has few cores, so the constants are too high\n")
        }
        var constants = try PlanConstants.ofProgram()
        constants.machine = Self.machine
        constants.commit = WorkerVersion.current
        constants.measuredAt = Moment.now
        constants.answerMilliseconds = Double(Self.delay.milliseconds)
        constants.streams = Self.streams
        constants.jobSizes = zip(Self.sizes, zip(atOnce, delayed)).map { tokens, samples in
            PlanConstants.JobSize(
                tokens: tokens, jobBytes: samples.0.jobBytes, atOnce: samples.0.sample, delayed: samples.1.sample)
        }
        return constants
    }

    // MARK: Measurements

    /// Measures all job sizes with one worker.
    private func samples(
        _ client: RedisClient, delay: AnswerDelay?, _ count: Int
    ) async throws -> [(sample: PlanConstants.Sample, jobBytes: Double)] {
        let credentials = try SimulatedCredentials()
        var simulator = try credentials.simulator()
        simulator.initialStreams = Self.streams
        simulator.delay = delay
        let server = try await APNSSimulatorServer.start(simulator)
        let worker = try worker(credentials, port: server.port)
        let running = Task { try await worker.run() }
        let outcome: Result<[(sample: PlanConstants.Sample, jobBytes: Double)], any Error>
        do {
            // Connects, and fills the caches.
            _ = try await send(1000, of: 1, client, worker)
            var samples: [(sample: PlanConstants.Sample, jobBytes: Double)] = []
            for tokens in Self.sizes { samples.append(try await send(count, of: tokens, client, worker)) }
            outcome = .success(samples)
        } catch {
            outcome = .failure(error)
        }
        running.cancel()
        let end = await running.result
        try await server.stop()
        // The reason for which a worker did not start is more useful than the wait for its deliveries.
        try end.get()
        return try outcome.get()
    }

    private func worker(_ credentials: SimulatedCredentials, port: Int) throws -> Worker {
        let topic = SimulatedCredentials.defaultTopic
        var app = AppConfiguration(
            name: "default", topic: topic,
            credential: try credentials.credential(topic: topic, otherTopics: [], usesGateway: false))
        app.endpoint = APNSEndpoint(host: "127.0.0.1", port: port)
        app.trust = credentials.trust
        app.maximumConnections = 1
        app.maximumStreams = Self.streams
        var configuration = WorkerConfiguration(
            redis: try RedisSettings(settings).topology(), queues: [QueueConfiguration(keys: keys)],
            sharedKeys: sharedKeys,
            apps: [app], workerName: "plan.\(UInt32.random(in: .min ... .max))")
        configuration.redisClient = try RedisSettings(settings).client()
        configuration.summaryInterval = 0
        let output = LogOutput.standardError(.auto, environment: ProcessInfo.processInfo.environment)
        let logger = Logger(label: "plan", factory: output.handlers(SharedLogLevel(.error)))
        return Worker(configuration: configuration, logger: logger, wallClock: { Int64(time(nil)) })
    }

    /// Sends notifications from a backlog, and measures from the first claim to the last answer.
    private func send(
        _ count: Int, of tokens: Int, _ client: RedisClient, _ worker: Worker
    ) async throws -> (sample: PlanConstants.Sample, jobBytes: Double) {
        let jobs = max(1, count / tokens)
        let prepared = "\(prefix):{\(keys.queue)}:prepared"
        var made = 0
        while made < jobs {
            let some = min(jobs - made, max(1, 1000 / tokens))
            var push = RedisCommand("RPUSH", expecting: some + 1, bytes: some * (500 + 70 * tokens))
            push.append(prepared)
            for number in made..<made + some { push.append(try Self.job(number, tokens: tokens)) }
            _ = try await client.call(push)
            made += some
            try Self.checkInterruption()
        }
        let usage = try await client.call(RedisCommand("MEMORY", "USAGE", prepared, "SAMPLES", "0"))
        let bytes = Double(usage.root.number ?? 0) / Double(jobs)
        let before = (
            cpu: try await worker.laneCPUTime(), redis: try await Self.cpuTime(client),
            delivered: await worker.counters()[.delivered]
        )
        let clock = ContinuousClock()
        let start = clock.now
        _ = try await client.call(RedisCommand("RENAME", prepared, keys.jobs))
        var (seen, progress) = (before.delivered, start)
        while seen < before.delivered + jobs * tokens {
            try Self.checkInterruption()
            try await Task.sleep(for: .milliseconds(5))
            let now = await worker.counters()[.delivered]
            if now > seen { progress = clock.now }
            seen = now
            guard clock.now - progress < Self.patience else {
                throw CommandFailure(
                    .attention,
                    "the worker delivered \(seen - before.delivered) of \(jobs * tokens) notifications, then none for "
                        + "\(Self.patience.components.seconds) s")
            }
        }
        let seconds = max((clock.now - start) / .seconds(1), 1e-6)
        let used = (
            cpu: try await worker.laneCPUTime() - before.cpu, redis: try await Self.cpuTime(client) - before.redis
        )
        let sent = Double(jobs * tokens)
        return (
            PlanConstants.Sample(
                perSecond: sent / seconds, workerMicroseconds: max(Double(used.cpu) / 1000 / sent, 0.001),
                redisMicroseconds: max(used.redis * 1e6 / sent, 0.0001)), max(bytes, 1)
        )
    }

    private static func checkInterruption() throws {
        if Interruption.isRequested { throw ExitCode(130) }
    }

    /// Returns a job like that of `scripts/bench`.
    private static func job(_ number: Int, tokens: Int) throws -> ByteBuffer {
        var generator = SystemRandomNumberGenerator()
        var job = JobEncoder(
            tokens: (0..<tokens).map { _ in
                (0..<4).map { _ in
                    let digits = String(generator.next(), radix: 16)
                    return String(repeating: "0", count: 16 - digits.count) + digits
                }.joined()
            }, payload: payload)
        job.id = "job-\(number)"
        job.topic = SimulatedCredentials.defaultTopic
        job.pushType = "alert"
        job.priority = 10
        return try job.encode()
    }

    private static let payload = ByteBuffer(
        string: """
            {"aps":{"alert":{"title":"Your order is on its way","body":"The parcel will be with you today between 14:00 and \
            16:00."},"badge":1,"sound":"default","thread-id":"orders"},"order":"7c2f91d0-4b1e-4a57-9d3e-0f6c2b8a1e44",\
            "sent_us":1790000000000000}
            """)

    /// Returns the CPU time of the server in seconds.
    private static func cpuTime(_ client: RedisClient) async throws -> Double {
        let text = try await client.call(RedisCommand("INFO", "cpu")).root.string ?? ""
        guard let time = ServerInfo(text).cpuTime else {
            throw CommandFailure(.attention, "Redis does not report its CPU time, so it cannot be measured here")
        }
        return time
    }

    private static var machine: String {
        let cores = System.coreCount
        var processor = "unknown processor"
        if let file = FileManager.default.contents(atPath: "/proc/cpuinfo") {
            let line = String(decoding: file, as: UTF8.self).split(separator: "\n").first { $0.hasPrefix("model name") }
            if let name = line?.split(separator: ":").last { processor = String(name.drop { $0 == " " }) }
        }
        return "\(processor), \(Words.count(cores, "core"))"
    }

    // MARK: Keys

    /// Returns the keys of a server that begin with the prefix.
    private func ownKeys(_ client: RedisClient) async throws -> [String] {
        let own = prefix + ":"
        let pattern = own.escapedForMatch + "*"
        var keys: [String] = []
        var cursor = "0"
        repeat {
            let reply = try await client.call(RedisCommand("SCAN", cursor, "MATCH", pattern, "COUNT", "1000"))
            guard reply.root.count == 2 else { throw CommandFailure(.attention, "unexpected reply to SCAN") }
            cursor = reply.root[0].string ?? "0"
            keys += reply.root[1].children.compactMap(\.string).filter { $0.hasPrefix(own) }
        } while cursor != "0"
        return keys
    }

    private func deleteKeys(_ client: RedisClient) async throws {
        for key in try await ownKeys(client) { _ = try await client.call(RedisCommand("UNLINK", key)) }
    }
}
