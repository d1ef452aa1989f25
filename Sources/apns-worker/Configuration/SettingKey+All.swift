import APNS
import Logging
import PushQueue
import PushWorker
import Telemetry

/// Every setting there is. Its flag and what it is for stand with the options.
extension SettingKey {
    static let all: [SettingKey] = worker + app + queue

    // MARK: The worker's

    static let redisURL = SettingKey("redis.url", initial: "redis://127.0.0.1:6379", isSecret: true, flag: "redis")
    static let redisCA = SettingKey("redis.ca")
    static let redisCertificate = SettingKey("redis.certificate")
    static let redisCertificateKey = SettingKey("redis.certificate_key")
    static let prefix = SettingKey("prefix", initial: "push")
    /// The queues with their weights; in the file also as a mapping `queues`.
    static let queueNames = SettingKey("queue", .list, initial: "default")
    static let queueOrder = SettingKey(
        "queue_order", .choice(QueueOrder.allCases.map(\.rawValue)), initial: QueueOrder.weighted.rawValue)
    /// The apps' names; in the file they are the members of the mapping `apps`.
    static let appNames = SettingKey("apps", .list, isReloadable: true, hasFlag: false)
    static let lanes = SettingKey("lanes", .number(0...256), initial: "0")
    static let lease = SettingKey(
        // Renewals are made after a third of it, when an idle lane ticks, once a second.
        "lease", .number(7000...3_600_000), initial: "\(QueueLimits().lease)", unit: "ms")
    static let drainTimeout = SettingKey("drain_timeout", .number(0...3_600_000), initial: "25000", unit: "ms")
    static let retryBase = SettingKey(
        "retry_base", .number(1...3_600_000), initial: "\(RetryPolicy().base)", unit: "ms", isReloadable: true)
    static let retryCap = SettingKey(
        "retry_cap", .number(1...86_400_000), initial: "\(RetryPolicy().cap)", unit: "ms", isReloadable: true)
    static let maxAttempts = SettingKey(
        "max_attempts", .number(1...1000), initial: "\(RetryPolicy().maximumAttempts)", isReloadable: true)
    static let pause = SettingKey(
        "pause", .number(100...3_600_000), initial: "\(AppPauses.Durations().first)", unit: "ms", isReloadable: true)
    static let pauseCap = SettingKey(
        "pause_cap", .number(100...86_400_000), initial: "\(AppPauses.Durations().longest)", unit: "ms",
        isReloadable: true)
    static let logLevel = SettingKey(
        "log_level", .choice(Logger.Level.allCases.map(\.rawValue)), initial: Logger.Level.info.rawValue,
        isReloadable: true)
    static let adminPort = SettingKey("admin.port", .number(0...65_535))
    static let adminHost = SettingKey("admin.host", initial: "127.0.0.1")

    static let invalidTokensDays = SettingKey(
        "invalid_tokens_days", .number(0...36_500),
        initial: "\(InvalidTokenSet.defaultMaximumAge / Settings.dayInMilliseconds)", unit: "days")
    static let logFormat = SettingKey(
        "log_format", .choice(LogFormat.allCases.map(\.rawValue)), initial: LogFormat.auto.rawValue)
    static let logSummary = SettingKey("log_summary", .number(0...86_400_000), initial: "60000", unit: "ms")

    private static let worker = [
        redisURL, redisCA, redisCertificate, redisCertificateKey, prefix, queueNames, queueOrder, appNames, lanes,
        lease,
        drainTimeout, retryBase, retryCap, maxAttempts, pause, pauseCap, logLevel, adminPort, adminHost, logFormat,
        logSummary, invalidTokensDays,
    ]

    // MARK: The apps'

    static let topic = SettingKey("topic", .list, .app)
    static let key = SettingKey("key", .text, .app)
    static let keyBase64 = SettingKey("key_base64", .text, .app, isSecret: true, hasFlag: false)
    static let keyID = SettingKey("key_id", .text, .app)
    static let keyPassphrase = SettingKey("key_passphrase", .text, .app, isSecret: true, hasFlag: false)
    static let keyPassphraseFile = SettingKey("key_passphrase_file", .text, .app, hasFlag: false)
    static let teamID = SettingKey("team_id", .text, .app)
    static let nextKey = SettingKey("next_key", .text, .app)
    static let nextKeyBase64 = SettingKey("next_key_base64", .text, .app, isSecret: true, hasFlag: false)
    static let nextKeyID = SettingKey("next_key_id", .text, .app)
    static let nextKeyPassphrase = SettingKey("next_key_passphrase", .text, .app, isSecret: true, hasFlag: false)
    static let nextKeyPassphraseFile = SettingKey("next_key_passphrase_file", .text, .app, hasFlag: false)
    static let certificate = SettingKey("certificate", .text, .app)
    static let certificateBase64 = SettingKey("certificate_base64", .text, .app, isSecret: true, hasFlag: false)
    static let certificateKey = SettingKey("certificate_key", .text, .app)
    static let certificateKeyBase64 = SettingKey(
        "certificate_key_base64", .text, .app, isSecret: true, hasFlag: false)
    static let certificatePassphrase = SettingKey(
        "certificate_passphrase", .text, .app, isSecret: true, hasFlag: false)
    static let certificatePassphraseFile = SettingKey("certificate_passphrase_file", .text, .app)
    static let transport = SettingKey("transport", .choice(["http2", "gateway"]), .app, initial: "http2")
    static let endpoint = SettingKey("endpoint", .text, .app, initial: "production")
    static let feedbackEndpoint = SettingKey("feedback_endpoint", .text, .app)
    static let managementEndpoint = SettingKey("management_endpoint", .text, .app)
    static let ca = SettingKey("ca", .text, .app)
    static let proxy = SettingKey("proxy", .text, .app, isSecret: true)
    static let minConnections = SettingKey("min_connections", .number(0...100), .app, initial: "1")
    static let maxConnections = SettingKey("max_connections", .number(1...100), .app, initial: "4")
    static let maxStreams = SettingKey("max_streams", .number(1...10_000), .app, initial: "1000")
    static let requestTimeout = SettingKey(
        "request_timeout", .number(100...600_000), .app, initial: "20000", unit: "ms")
    static let idleTimeout = SettingKey("idle_timeout", .number(1...86_400), .app, initial: "300", unit: "s")
    static let maxConnectionAge = SettingKey("max_connection_age", .number(10...604_800), .app, unit: "s")
    static let maxPerSecond = SettingKey("max_per_second", .number(1...1_000_000), .app)
    static let maxBadTokens = SettingKey("max_bad_tokens", .number(1...100), .app, initial: "50", unit: "%")
    static let gatewayFrame = SettingKey(
        "gateway.frame", .choice(GatewayFrame.allCases.map(\.rawValue)), .app, initial: GatewayOptions().frame.rawValue)
    static let gatewayBatchBytes = SettingKey(
        "gateway.batch_bytes", .number(1...1 << 20), .app, initial: "\(GatewayOptions().batchBytes)", unit: "bytes")
    static let gatewayBatchTime = SettingKey(
        "gateway.batch_time", .number(0...10_000), .app, initial: "\(GatewayOptions().batchTime)", unit: "ms")
    static let gatewayConfirmAfter = SettingKey(
        "gateway.confirm_after", .number(0...600_000), .app, initial: "\(GatewayOptions().confirmAfter)", unit: "ms")
    static let gatewayBarrier = SettingKey("gateway.barrier", .choice(["on", "off"]), .app, initial: "on")
    static let gatewayWindow = SettingKey(
        "gateway.window", .number(1...1_000_000), .app, initial: "\(GatewayOptions().windowCount)")
    static let gatewayWindowBytes = SettingKey(
        "gateway.window_bytes", .number(1...1 << 30), .app, initial: "\(GatewayOptions().windowBytes)", unit: "bytes")
    static let gatewayPayloadLimit = SettingKey(
        "gateway.payload_limit", .number(1...16_384), .app, initial: "\(GatewayOptions().payloadLimit)",
        unit: "bytes")

    private static let app = [
        topic, key, keyBase64, keyID, keyPassphrase, keyPassphraseFile, teamID, nextKey, nextKeyBase64, nextKeyID,
        nextKeyPassphrase, nextKeyPassphraseFile, certificate, certificateBase64, certificateKey, certificateKeyBase64,
        certificatePassphrase, certificatePassphraseFile, transport, endpoint, feedbackEndpoint, managementEndpoint, ca,
        proxy, minConnections, maxConnections, maxStreams, requestTimeout, idleTimeout, maxConnectionAge, maxPerSecond,
        maxBadTokens, gatewayFrame, gatewayBatchBytes, gatewayBatchTime, gatewayConfirmAfter, gatewayBarrier,
        gatewayWindow, gatewayWindowBytes, gatewayPayloadLimit,
    ]

    // MARK: The queues'

    /// How much of the worker a queue has while others have work too.
    static let weight = SettingKey(
        "weight", .number(1...1000), .queue, initial: "1", hasFlag: false, canBeCommon: false)

    static let format = SettingKey(
        "format", .choice(JobWriter.allCases.map(\.rawValue)), .queue, initial: JobWriter.native.rawValue)
    static let list = SettingKey("list", .text, .queue)
    static let jobClass = SettingKey("job_class", .list, .queue)

    static let results = SettingKey(
        "results", .choice(ResultsKept.allCases.map(\.rawValue)), .queue, initial: ResultsKept.off.rawValue)
    static let resultsLimit = SettingKey(
        "results_limit", .number(1...100_000_000), .queue, initial: "\(QueueLimits().maximumResults)")

    static let deadLettersLimit = SettingKey(
        "dead_letters_limit", .number(1...100_000_000), .queue, initial: "\(QueueLimits().maximumDeadLetters)")
    static let deadLettersBytes = SettingKey(
        "dead_letters_bytes", .number(1...1 << 40), .queue, initial: "\(QueueLimits().maximumDeadLetterBytes)",
        unit: "bytes")
    static let deadLettersDays = SettingKey(
        "dead_letters_days", .number(1...36_500), .queue,
        initial: "\(QueueLimits().maximumDeadLetterAge / Settings.dayInMilliseconds)", unit: "days")

    private static let queue = [
        weight, format, list, jobClass, results, resultsLimit, deadLettersLimit, deadLettersBytes, deadLettersDays,
    ]
}
