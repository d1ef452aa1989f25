import APNS
import LegacyAPNS
import Logging
import PushQueue
import PushWorker
import Redis
import Telemetry

// Every setting is defined here, once. The readers of the file and the environment, the flags, `--help`, `config`, the
// errors and the table in docs/configuration.md are made from these definitions.
//
// To add a setting:
//
// 1. Add the member with its default and its unit to the type that uses it: `WorkerConfiguration`, `QueueLimits`,
//    `AppConfiguration` or `GatewayOptions`.
// 2. Add one entry to the section below that it belongs to, with the key path of that member:
//
//        Setting("idle_timeout", .duration(.seconds, 1...86_400), .app, to: \AppConfiguration.idleTimeout, "…"),
//
//    Its place in the file, its variable, its flag and its default are derived from that. Give `stored:` if the member's unit differs from
//    that of a bare number, and `isReloadable: true` if `Worker.reload` applies it (the default for settings of apps).
// 3. Test its effect, and update the table: `UPDATE_DOCS=1 scripts/test e2e DocumentationReference`.
//
// Only a setting that code reads by name, such as a credential, has a constant here.
extension Setting {
    static let all: [Setting] = redis + queues + work + admin + app + gateway + queue
    /// The few settings that `--help` of most commands shows.
    static let bestKnown = [redisURL, prefix, queueNames, topic, key]

    // MARK: Redis

    static let redisURL = Setting(
        "redis.url", .text, .redis,
        """
        URL of Redis: redis://[user:password@]host:port/db, redis+sentinel://host,…/db?master=name or redis+cluster://host,…. \
        With rediss instead of redis, TLS is used. ?password_file=/path reads the password from a file.
        """, initial: "redis://127.0.0.1:6379", isSecret: true, flag: "redis")
    static let redisCA = Setting(
        "redis.ca", .file, .redis,
        "File with the trusted certificate authorities, PEM or DER; or `redis.ca_base64`.",
        otherwise: "the system's")
    static let redisCABase64 = Setting(
        "redis.ca_base64", .text, .redis, "The trusted certificate authorities as base64.", isSecret: true,
        hasFlag: false)
    static let redisCertificate = Setting(
        "redis.certificate", .file, .redis, "Client certificate for TLS, PEM with its chain.", otherwise: "none")
    static let redisCertificateKey = Setting(
        "redis.certificate_key", .file, .redis, "Private key of the client certificate, PEM.",
        otherwise: "the certificate's file")
    static let prefix = Setting("prefix", .text, .redis, "Prefix of all keys in Redis.", initial: "push")

    private static let redis = [redisURL, redisCA, redisCABase64, redisCertificate, redisCertificateKey, prefix]

    // MARK: Queues

    /// The queues with their weights. The file can have a mapping `queues` instead.
    static let queueNames = Setting(
        "queue", .list, .queues,
        """
        Name of the queue. A worker can have several with weights, such as critical:6,default:3,bulk:1; in the file use the \
        mapping `queues`.
        """, initial: "default")
    static let queueOrder = Setting(
        "queue_order", .choice(QueueOrder.allCases.map(\.rawValue)), .queueOrder, to: \WorkerConfiguration.queueOrder,
        """
        Order of queues that have work: weighted gives each its share, strict gives the first everything that it can use.
        """)
    /// The apps' names. The file can have a mapping `apps` instead.
    static let appNames = Setting(
        "apps", .list, .queues,
        "Names of a worker's apps. In the file use the mapping `apps` of names to settings.",
        otherwise: "one app, `default`", isReloadable: true, hasFlag: false)

    private static let queues = [queueNames, queueOrder, appNames]

    // MARK: Work

    static let maxAttempts = Setting(
        "max_attempts", .number(1...1000), .work, to: \WorkerConfiguration.retry.maximumAttempts,
        "Maximum attempts that failures of a job spend, unless the job has its own `max_attempts`. The first failure spends no attempt.",
        isReloadable: true)
    static let invalidTokensDays = Setting(
        "invalid_tokens_days", .duration(.days, 0...36_500), .work, to: \WorkerConfiguration.invalidTokenAge,
        stored: .milliseconds, "Time for which invalid tokens are kept; 0 keeps them forever.")
    static let logLevel = Setting(
        "log_level", .choice(Logger.Level.allCases.map(\.rawValue)), .work,
        "Lowest level that is logged: trace, debug, info, notice, warning, error or critical.",
        initial: .text(Logger.Level.info.rawValue), isReloadable: true)
    static let logFormat = Setting(
        "log_format", .choice(LogFormat.allCases.map(\.rawValue)), .work,
        "Format of the log: text, json, journal (for systemd's journal), or auto, which is text on a terminal, journal under systemd and "
            + "otherwise json.",
        initial: .text(LogFormat.auto.rawValue))

    private static let work = [
        Setting(
            "lanes", .number(0...256), .work, to: \WorkerConfiguration.lanes,
            "Number of event loops, each with its own connections; 0 means one per core.", initial: 0),
        Setting(
            // At least 7 s: lanes renew after a third of the lease, and an idle lane ticks only once per second.
            "lease", .duration(.milliseconds, 7000...3_600_000), .work, to: \QueueLimits.lease,
            "Time after which other workers reclaim the jobs of an unresponsive worker."),
        Setting(
            "drain_timeout", .duration(.milliseconds, 0...3_600_000), .work, to: \WorkerConfiguration.drainTimeout,
            "Maximum time to drain before exiting; unfinished jobs then return to the queue."),
        Setting(
            "retry_base", .duration(.milliseconds, 1...3_600_000), .work, to: \WorkerConfiguration.retry.base,
            "Maximum pause before the first retry; it doubles with each attempt.", isReloadable: true),
        Setting(
            "retry_cap", .duration(.milliseconds, 1...86_400_000), .work, to: \WorkerConfiguration.retry.cap,
            "Maximum pause before any retry.", isReloadable: true),
        maxAttempts,
        logLevel, logFormat,
        Setting(
            "log_summary", .duration(.milliseconds, 0...86_400_000), .work, to: \WorkerConfiguration.summaryInterval,
            "Interval of the summary in the log; 0 disables it."),
        invalidTokensDays,
        Setting(
            "token_filter_bytes", .size(0...1 << 36), .work, to: \WorkerConfiguration.tokenFilterBytes,
            "Maximum size of the filter that saves most look-ups of invalid tokens; 0 for no filter."),
    ]

    static let adminPort = Setting(
        "admin.port", .number(0...65_535), .admin,
        "Port for /metrics, /healthz and /readyz; 0 chooses a free port, which the log names.", otherwise: "none")
    static let adminHost = Setting(
        "admin.host", .text, .admin,
        "Address of the admin port; 0.0.0.0 for all interfaces. The port is unauthenticated.",
        initial: "127.0.0.1")

    static let tracesURL = Setting(
        "traces.url", .text, .admin,
        "URL of an OpenTelemetry collector (OTLP over HTTP, JSON), such as http://localhost:4318. For each traced job, it gets a span for "
            + "the wait and for each request. A job is traced if its traceparent has the flag sampled.",
        otherwise: "no spans")
    static let tracesHeaders = Setting(
        "traces.headers_file", .file, .admin,
        "File with headers for the collector, such as Authorization, one `Name: value` per line.")
    static let tracesCA = Setting(
        "traces.ca", .file, .admin, "Trusted certificate authorities for the collector, PEM or DER.",
        otherwise: "the system's")

    private static let admin = [adminPort, adminHost, tracesURL, tracesHeaders, tracesCA]

    // MARK: Apps

    static let topic = Setting(
        "topic", .list, .app,
        "Bundle identifier of the app, and topic of jobs that name no topic. Separate several identifiers by commas.",
        otherwise: "required")
    static let key = Setting(
        "key", .file, .app, "Signing key, AuthKey_….p8 from Apple's developer site; or `key_base64`.",
        otherwise: "required, unless there is a certificate")
    static let keyBase64 = Setting(
        "key_base64", .text, .app, "The signing key as base64, instead of a file.", isSecret: true,
        hasFlag: false)
    static let keyID = Setting(
        "key_id", .text, .app, "Ten-character ID of the signing key.", otherwise: "from the file's name")
    static let keyPassphrase = Setting(
        "key_passphrase", .text, .app, "Passphrase of the signing key.", isSecret: true, hasFlag: false)
    static let keyPassphraseFile = Setting(
        "key_passphrase_file", .file, .app, "File with the passphrase of the signing key.", hasFlag: false)
    static let teamID = Setting(
        "team_id", .text, .app, "Ten-character ID of the team.", otherwise: "required with a signing key")
    static let nextKey = Setting(
        "next_key", .file, .app,
        "For key rotation: the key to use when APNs refuses the first one; or `next_key_base64`.",
        otherwise: "none")
    static let nextKeyBase64 = Setting(
        "next_key_base64", .text, .app, "The next key as base64.", isSecret: true, hasFlag: false)
    static let nextKeyID = Setting(
        "next_key_id", .text, .app, "ID of the next key.", otherwise: "from the file's name")
    static let nextKeyPassphrase = Setting(
        "next_key_passphrase", .text, .app, "Passphrase of the next key.", isSecret: true, hasFlag: false)
    static let nextKeyPassphraseFile = Setting(
        "next_key_passphrase_file", .file, .app, "File with the passphrase of the next key.", hasFlag: false)
    static let certificate = Setting(
        "certificate", .file, .app,
        "Client certificate instead of a signing key, PEM with its chain or PKCS#12; or `certificate_base64`.",
        otherwise: "none")
    static let certificateBase64 = Setting(
        "certificate_base64", .text, .app, "The certificate as base64.", isSecret: true, hasFlag: false)
    static let certificateKey = Setting(
        "certificate_key", .file, .app, "Private key of the certificate, PEM; or `certificate_key_base64`.",
        otherwise: "the certificate's file")
    static let certificateKeyBase64 = Setting(
        "certificate_key_base64", .text, .app, "The private key as base64.", isSecret: true, hasFlag: false)
    static let certificatePassphrase = Setting(
        "certificate_passphrase", .text, .app, "Passphrase of the private key or the PKCS#12 file.", isSecret: true,
        hasFlag: false)
    static let certificatePassphraseFile = Setting(
        "certificate_passphrase_file", .file, .app,
        "File with the passphrase of the private key or the PKCS#12 file; or `certificate_passphrase`.",
        otherwise: "none")
    static let transport = Setting(
        "transport", .choice(["http2", "gateway"]), .app,
        "Protocol of APNs: http2, or gateway for the binary protocol that Apple has retired.",
        initial: "http2")
    static let endpoint = Setting(
        "endpoint", .text, .app, "Server of APNs: production, sandbox, or host:port of another server.",
        initial: "production")
    static let feedbackEndpoint = Setting(
        "feedback_endpoint", .text, .feedback, "Feedback service: production, sandbox, or host:port of another server.",
        otherwise: "Apple's for the app's environment, or port 2196 of `endpoint`")
    static let managementEndpoint = Setting(
        "management_endpoint", .text, .channels,
        "Server that manages channels: production, sandbox, or host:port of another server.",
        otherwise: "Apple's, or that of `endpoint`")
    static let ca = Setting(
        "ca", .file, .app, "File with the trusted certificate authorities, PEM or DER; or `ca_base64`.",
        otherwise: "the system's")
    static let caBase64 = Setting(
        "ca_base64", .text, .app, "The trusted certificate authorities as base64.", isSecret: true, hasFlag: false)
    static let proxy = Setting(
        "proxy", .text, .app, "URL of an HTTP proxy, http://[user:password@]host:port, or none to use no proxy.",
        otherwise: "from HTTPS_PROXY and NO_PROXY", isSecret: true)

    /// The settings of apps that have no effect with `run --simulate`.
    static let replacedBySimulation = [
        key, keyBase64, keyID, keyPassphrase, keyPassphraseFile, teamID, nextKey, nextKeyBase64, nextKeyID,
        nextKeyPassphrase, nextKeyPassphraseFile, certificate, certificateBase64, certificateKey, certificateKeyBase64,
        certificatePassphrase, certificatePassphraseFile, endpoint, ca, caBase64, proxy,
    ]

    private static let app = [
        topic, key, keyBase64, keyID, keyPassphrase, keyPassphraseFile, teamID, nextKey, nextKeyBase64, nextKeyID,
        nextKeyPassphrase, nextKeyPassphraseFile, certificate, certificateBase64, certificateKey, certificateKeyBase64,
        certificatePassphrase, certificatePassphraseFile, transport, endpoint, feedbackEndpoint, managementEndpoint, ca,
        caBase64, proxy,
        Setting(
            "min_connections", .number(0...100), .app, to: \AppConfiguration.minimumConnections,
            "Connections per lane that stay open while nothing is sent."),
        Setting(
            "max_connections", .number(1...100), .app, to: \AppConfiguration.maximumConnections,
            "Maximum connections per lane."),
        Setting(
            "max_streams", .number(1...10_000), .app, to: \AppConfiguration.maximumStreams,
            "Maximum concurrent requests per connection; APNs may allow fewer."),
        Setting(
            "request_timeout", .duration(.milliseconds, 100...600_000), .app, to: \AppConfiguration.requestTimeout,
            "Maximum time to wait for an answer."),
        Setting(
            "connect_timeout", .duration(.milliseconds, 100...120_000), .app, to: \AppConfiguration.connectTimeout,
            "Maximum time for each step of connecting: TCP, the proxy's answer, and TLS."),
        Setting(
            "reconnect_base", .duration(.milliseconds, 10...600_000), .app, to: \AppConfiguration.reconnectBase,
            "Maximum pause after the first failure to connect; it doubles with each further failure."),
        Setting(
            "reconnect_cap", .duration(.milliseconds, 10...3_600_000), .app, to: \AppConfiguration.reconnectCap,
            "Maximum pause between attempts to connect."),
        Setting(
            "idle_timeout", .duration(.seconds, 1...86_400), .app, to: \AppConfiguration.idleTimeout,
            "Time without requests after which a connection beyond `min_connections` is closed."),
        Setting(
            "max_connection_age", .duration(.seconds, 10...604_800), .app, to: \AppConfiguration.maximumConnectionAge,
            "Age at which a connection is replaced.", otherwise: "never"),
        Setting(
            "max_per_second", .number(1...1_000_000), .app, to: \AppConfiguration.maximumPerSecond,
            "Maximum notifications per second, of all workers together.", otherwise: "unlimited"),
        Setting(
            "expiration", .duration(.seconds, 0...31_536_000), .app, to: \AppConfiguration.expiration,
            """
            Default expiration of jobs, as a duration from their creation; 0 for immediate delivery only. It does not \
            apply to broadcasts, voip and pushtotalk, whose default is 0.
            """, otherwise: "left to APNs"),
        Setting(
            "strict_payloads", .choice(["on", "off"]), .app, to: \AppConfiguration.strictPayloads,
            """
            Turn jobs into dead letters if they violate a documented Apple requirement that APNs does not check, such as a \
            background notification without content-available. When off, they are sent with a warning.
            """),
    ]

    // MARK: Binary gateway

    private static let gateway = [
        Setting(
            "gateway.frame", .choice(GatewayFrame.allCases.map(\.rawValue)), .gateway, to: \GatewayOptions.frame,
            "Command of the protocol: items (2), enhanced (1), or simple (0), whose errors do not name a notification."),
        Setting(
            "gateway.batch_bytes", .size(1...1 << 20), .gateway, to: \GatewayOptions.batchBytes,
            "Maximum size of one write; the default is the size of a TLS record."),
        Setting(
            "gateway.batch_time", .duration(.milliseconds, 0...10_000), .gateway, to: \GatewayOptions.batchTime,
            "Maximum time a write waits for more notifications."),
        Setting(
            "gateway.confirm_after", .duration(.milliseconds, 0...600_000), .gateway, to: \GatewayOptions.confirmAfter,
            "Time without an error after which a notification counts as delivered."),
        Setting(
            "gateway.barrier", .choice(["on", "off"]), .gateway, to: \GatewayOptions.sendsBarriers,
            """
            Prove delivery by sending a deliberately invalid notification when a window is full or the worker stops.
            """),
        Setting(
            "gateway.window", .number(1...1_000_000), .gateway, to: \GatewayOptions.windowCount,
            "Maximum unconfirmed notifications per connection."),
        Setting(
            "gateway.window_bytes", .size(1...1 << 30), .gateway, to: \GatewayOptions.windowBytes,
            "Maximum size of the unconfirmed notifications per connection."),
        Setting(
            "gateway.payload_limit", .size(1...16_384), .gateway, to: \GatewayOptions.payloadLimit,
            "Maximum size of a payload; 256 for the oldest gateways."),
    ]

    // MARK: Settings of queues

    static let weight = Setting(
        "weight", .number(1...1000), .format,
        "Share of the worker's sending that the queue gets while other queues have jobs. Only under `queues.<name>`.",
        initial: 1, hasFlag: false, canBeCommon: false)
    static let format = Setting(
        "format", .choice(ProducerFormat.allCases.map(\.rawValue)), .format,
        """
        Format of the jobs and their list: native on push:{<queue>}:jobs, sidekiq on queue:<queue>, resque on \
        resque:queue:<queue>. Jobs of ActiveJob are recognized in the formats sidekiq and resque.
        """, initial: .text(ProducerFormat.native.rawValue))
    static let list = Setting(
        "list", .text, .format, "Key of the list of jobs, such as shop:queue:push.", otherwise: "by `format`")
    static let jobClass = Setting(
        "job_class", .list, .format,
        """
        Classes of the jobs to send, separated by commas, for the formats sidekiq and resque. Jobs of other classes become \
        dead letters.
        """, otherwise: "all")

    static let results = Setting(
        "results", .choice(ResultsKept.allCases.map(\.rawValue)), .kept, to: \QueueLimits.results,
        "Results to keep for producers, in a stream per queue: all (the default with --simulate), failures or off.")

    private static let queue = [
        weight, format, list, jobClass, results,
        Setting(
            "results_limit", .number(1...100_000_000), .kept, to: \QueueLimits.maximumResults,
            "Approximate maximum number of results per queue; the oldest are removed."),
        Setting(
            "results_days", .duration(.days, 0...36_500), .kept, to: \QueueLimits.maximumResultAge,
            stored: .milliseconds, "Time for which results are kept; 0 keeps results until `results_limit` is reached."),
        Setting(
            "dead_letters_limit", .number(1...100_000_000), .kept, to: \QueueLimits.maximumDeadLetters,
            "Maximum number of dead letters per queue; the oldest are removed."),
        Setting(
            "dead_letters_bytes", .size(1...1 << 40), .kept, to: \QueueLimits.maximumDeadLetterBytes,
            "Maximum total size of a queue's dead letters; the oldest are removed."),
        Setting(
            "dead_letters_days", .duration(.days, 1...36_500), .kept, to: \QueueLimits.maximumDeadLetterAge,
            stored: .milliseconds, "Time for which dead letters are kept."),
    ]
}

// MARK: - Configurations with the defaults

extension WorkerConfiguration: ConfigurationRoot {
    static let scope = Setting.Scope.worker
    static var initial: WorkerConfiguration {
        let redis = RedisTopology.single(RedisEndpoint(location: .host("localhost", port: 0)))
        return WorkerConfiguration(redis: redis, queues: [], sharedKeys: SharedKeys(), apps: [], workerName: "")
    }
}

extension AppConfiguration: ConfigurationRoot {
    static let scope = Setting.Scope.app
    static var initial: AppConfiguration { AppConfiguration(name: "", topic: "", credential: .providerTokens([])) }
}

extension QueueLimits: ConfigurationRoot {
    static let scope = Setting.Scope.queue
    static var initial: QueueLimits { QueueLimits() }
}

extension GatewayOptions: ConfigurationRoot {
    static let scope = Setting.Scope.app
    static var initial: GatewayOptions { GatewayOptions() }
}

extension QueueOrder: SettingValueType {}
extension ResultsKept: SettingValueType {}
extension GatewayFrame: SettingValueType {}

// MARK: - Values

/// The library that writes the jobs.
enum ProducerFormat: String, CaseIterable {
    case native, sidekiq, resque

    /// Returns the list of a queue's jobs, if the format has its own.
    func list(of queue: String) -> String? {
        switch self {
        case .native: nil
        case .sidekiq: "queue:\(queue)"
        case .resque: "resque:queue:\(queue)"
        }
    }

    /// The end of the list from which jobs are claimed. Sidekiq pushes on the left. Producers of other formats push on the right.
    var head: QueueKeys.Head { self == .sidekiq ? .right : .left }
}
