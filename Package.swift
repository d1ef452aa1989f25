// swift-tools-version: 6.3
import PackageDescription

let nioCore = Target.Dependency.product(name: "NIOCore", package: "swift-nio")
let nioPosix = Target.Dependency.product(name: "NIOPosix", package: "swift-nio")
let nioHTTP1 = Target.Dependency.product(name: "NIOHTTP1", package: "swift-nio")
let nioConcurrency = Target.Dependency.product(name: "NIOConcurrencyHelpers", package: "swift-nio")
let nioEmbedded = Target.Dependency.product(name: "NIOEmbedded", package: "swift-nio")
let logging = Target.Dependency.product(name: "Logging", package: "swift-log")
let lifecycle = Target.Dependency.product(name: "ServiceLifecycle", package: "swift-service-lifecycle")
let unixSignals = Target.Dependency.product(name: "UnixSignals", package: "swift-service-lifecycle")
let hummingbird = Target.Dependency.product(name: "Hummingbird", package: "hummingbird")
let yams = Target.Dependency.product(name: "Yams", package: "Yams")
let argumentParser = Target.Dependency.product(name: "ArgumentParser", package: "swift-argument-parser")

let package = Package(
    name: "apns-worker",
    products: [
        .executable(name: "apns-worker", targets: ["apns-worker"]),
        .executable(name: "apns-simulator", targets: ["apns-simulator"]),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-nio.git", from: "2.101.0"),
        .package(url: "https://github.com/apple/swift-log.git", from: "1.6.0"),
        .package(url: "https://github.com/apple/swift-argument-parser.git", from: "1.5.0"),
        .package(url: "https://github.com/jpsim/Yams.git", from: "6.2.0"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle.git", from: "2.6.0"),
        .package(url: "https://github.com/hummingbird-project/hummingbird.git", from: "2.28.0", traits: []),
    ],
    targets: [
        // System libraries: a module map and inline shims for macros, nothing else.
        .systemLibrary(name: "CHiredis", pkgConfig: "hiredis", providers: [.apt(["libhiredis-dev"])]),
        .systemLibrary(name: "COpenSSL", pkgConfig: "openssl", providers: [.apt(["libssl-dev"])]),
        .systemLibrary(name: "CProcess"),
        .systemLibrary(name: "CNghttp2", pkgConfig: "libnghttp2", providers: [.apt(["libnghttp2-dev"])]),
        .systemLibrary(name: "CYAML", pkgConfig: "yaml-0.1", providers: [.apt(["libyaml-dev"])]),
        .systemLibrary(name: "CZlib", pkgConfig: "zlib", providers: [.apt(["zlib1g-dev"])]),

        // Embeds the files of a module that are no Swift.
        .plugin(
            name: "EmbedResources", capability: .buildTool(), path: "Sources/EmbedResources", exclude: ["embed"]),

        // Makes texts from other programs safe for a terminal or a log.
        .target(name: "PrintableText"),
        // Readable errors of sockets, and the limit of file descriptors.
        .target(name: "Sockets", dependencies: [nioConcurrency, nioCore, nioPosix]),
        // A port for HTTP/1.1: the worker's admin port, the simulator's control port, the dashboard.
        .target(
            name: "HTTPPort",
            dependencies: ["Sockets", "TLS", hummingbird, lifecycle, nioCore, nioHTTP1, nioPosix, logging]),
        // Pages for browsers: markup, layout, charts and live updates.
        .target(
            name: "WebPages", dependencies: ["PrintableText", "PushJob", hummingbird, nioCore],
            exclude: ["Assets"], plugins: ["EmbedResources"]),
        .target(name: "TLS", dependencies: ["COpenSSL", "PrintableText", "Sockets", nioConcurrency, nioCore]),
        .target(
            name: "Redis",
            dependencies: ["CHiredis", "PrintableText", "Sockets", "TLS", nioCore, nioPosix, logging]),
        .target(name: "APNS", dependencies: ["COpenSSL", "PushJob", "Sockets", "TLS", nioCore, nioPosix, logging]),
        // Protocols that Apple has shut down and private gateways offer: the binary gateway and the feedback service.
        .target(name: "LegacyAPNS", dependencies: ["APNS", "PushJob", "Sockets", "TLS", nioCore, nioPosix, logging]),
        // Lists of device tokens: lines, CSV and JSON lines, without repetitions, in a bounded memory.
        .target(
            name: "TokenLists",
            dependencies: ["APNS", "COpenSSL", "CProcess", "CZlib", "PrintableText", "PushJob", nioCore]),
        .target(
            name: "PushJob", dependencies: ["PrintableText", nioCore], exclude: ["Schema"],
            plugins: ["EmbedResources"]),
        .target(
            name: "PushQueue", dependencies: ["COpenSSL", "PrintableText", "PushJob", "Redis", "Sockets", nioCore],
            exclude: ["Scripts"], plugins: ["EmbedResources"]),
        // What an operator sees and changes, for the commands and the dashboard.
        .target(
            name: "Operations",
            dependencies: [
                "COpenSSL", "PrintableText", "PushJob", "PushQueue", "Redis", "Sockets", logging, nioConcurrency,
                nioCore, nioPosix,
            ], exclude: ["Scripts"], plugins: ["EmbedResources"]),
        .target(
            name: "Dashboard",
            dependencies: [
                "COpenSSL", "HTTPPort", "Operations", "PrintableText", "PushJob", "PushQueue", "Redis", "TLS",
                "WebPages", hummingbird, lifecycle, logging, nioCore, nioPosix,
            ], exclude: ["API/openapi.json"], plugins: ["EmbedResources"]),
        .target(
            name: "PushWorker",
            dependencies: [
                "APNS", "LegacyAPNS", "PrintableText", "PushJob", "PushQueue", "Sockets", "Telemetry", nioCore,
                nioPosix, logging, lifecycle,
            ],
            exclude: ["Build"], plugins: ["EmbedResources"]),
        .target(
            name: "Telemetry",
            dependencies: [
                "HTTPPort", "PrintableText", "Sockets", hummingbird, lifecycle, nioConcurrency, nioCore, nioPosix,
                logging,
            ]),
        .target(
            name: "APNSSimulator",
            dependencies: [
                "APNS", "CNghttp2", "COpenSSL", "HTTPPort", "LegacyAPNS", "PrintableText", "PushJob", "Sockets", "TLS",
                "WebPages", hummingbird, nioCore, nioPosix,
            ]),
        .executableTarget(
            name: "apns-worker",
            dependencies: [
                "APNS", "APNSSimulator", "COpenSSL", "CProcess", "CYAML", "Dashboard", "HTTPPort", "LegacyAPNS",
                "Operations", "PrintableText", "PushJob", "PushQueue", "PushWorker", "Redis", "Sockets", "TLS",
                "Telemetry", "TokenLists", "WebPages", argumentParser, nioHTTP1, logging, lifecycle, unixSignals,
            ]),
        .executableTarget(
            name: "apns-simulator", dependencies: ["APNSSimulator", "Sockets", "TLS", argumentParser, unixSignals]),

        // For scripts/bench, in addition to the worker.
        .executableTarget(
            name: "Benchmarks",
            dependencies: [
                "APNS", "PushQueue", "Redis", nioCore, nioPosix, logging, argumentParser,
            ],
            path: "Tests/Benchmarks"),

        // For scripts/chaos.
        .executableTarget(
            name: "Chaos",
            dependencies: [
                "Operations", "PushJob", "PushQueue", "Redis", "TestSupport", logging, nioPosix, argumentParser,
            ],
            path: "Tests/Chaos"),

        // A pool in a process of its own, for a test of its memory.
        .executableTarget(
            name: "PoolProbe", dependencies: ["APNS", "TLS", logging, nioCore, nioPosix], path: "Tests/PoolProbe"),

        .target(
            name: "TestSupport",
            dependencies: [
                "APNS", "CHiredis", "COpenSSL", "Sockets", "TLS", logging, nioConcurrency, nioCore, nioPosix,
            ],
            path: "Tests/TestSupport"),
        .target(
            name: "QueueTestSupport",
            dependencies: ["PushJob", "PushQueue", "Redis", "Sockets", "TestSupport", logging, nioCore, nioPosix],
            path: "Tests/QueueTestSupport"),
        .testTarget(name: "PrintableTextTests", dependencies: ["PrintableText"]),
        .testTarget(name: "SocketsTests", dependencies: ["Sockets", "TestSupport", nioCore, nioPosix]),
        .testTarget(
            name: "HTTPPortTests", dependencies: ["HTTPPort", "TestSupport", hummingbird, logging, nioCore, nioPosix]),
        .testTarget(
            name: "DashboardTests",
            dependencies: [
                "Dashboard", "HTTPPort", "Operations", "PushJob", "PushQueue", "Redis", "TLS", "TestSupport",
                "WebPages",
                logging, nioCore, nioPosix,
            ]),
        .testTarget(name: "WebPagesTests", dependencies: ["PushJob", "WebPages"]),
        .testTarget(
            name: "TLSTests", dependencies: ["COpenSSL", "Sockets", "TLS", "TestSupport", nioPosix, nioEmbedded]),
        .testTarget(
            name: "RedisTests",
            dependencies: ["CHiredis", "Redis", "Sockets", "TestSupport", logging, nioCore, nioEmbedded, nioPosix]),
        .testTarget(
            name: "APNSTests",
            dependencies: [
                "APNS", "CNghttp2", "PoolProbe", "PushJob", "Sockets", "TLS", "TestSupport", logging, nioCore,
                nioEmbedded,
                nioPosix,
            ],
            exclude: ["Fuzzing/http2.corpus", "Fuzzing/hpack.corpus"]),
        .testTarget(
            name: "LegacyAPNSTests",
            dependencies: [
                "APNS", "LegacyAPNS", "Sockets", "TLS", "TestSupport", logging, nioConcurrency, nioCore, nioPosix,
            ]),
        .testTarget(
            name: "OperationsTests",
            dependencies: [
                "Operations", "PrintableText", "PushJob", "PushQueue", "QueueTestSupport", "Redis", "TestSupport",
                logging, nioCore, nioPosix,
            ]),
        .testTarget(
            name: "TokenListsTests", dependencies: ["CZlib", "PrintableText", "TokenLists", "TestSupport"]),
        .testTarget(name: "PushJobTests", dependencies: ["PushJob", "TestSupport", nioCore]),
        .testTarget(
            name: "PushQueueTests",
            dependencies: [
                "Operations", "PushJob", "PushQueue", "QueueTestSupport", "Redis", "Sockets", "TestSupport", logging,
                nioCore, nioPosix,
            ]),
        .testTarget(
            name: "PushWorkerTests",
            dependencies: [
                "PushJob", "PushWorker", "APNSSimulator", "LegacyAPNS", "Redis", "TLS", "Telemetry", "TestSupport",
                nioEmbedded, nioPosix, logging,
            ],
            exclude: ["Unit/foreign-jobs.ndjson", "schema_verdicts.py"]),
        // A module of its own, so that scripts/test can optimize it.
        .testTarget(
            name: "FleetSimulationTests",
            dependencies: [
                "APNS", "APNSSimulator", "Operations", "PushJob", "PushQueue", "PushWorker", "Redis", "TLS",
                "TestSupport", logging, nioCore,
            ]),
        .testTarget(
            name: "TelemetryTests",
            dependencies: [
                "HTTPPort", "PrintableText", "Telemetry", "TestSupport", logging, nioCore, nioPosix,
            ]),
        .testTarget(
            name: "APNSSimulatorTests",
            dependencies: [
                "APNS", "APNSSimulator", "HTTPPort", "LegacyAPNS", "PrintableText", "PushJob", "Sockets", "TLS",
                "TestSupport", "apns-simulator", nioCore, nioPosix,
            ]),
        .testTarget(
            name: "EndToEndTests",
            dependencies: [
                "APNS", "LegacyAPNS", "Operations", "PushJob", "PushQueue", "PushWorker", "Redis", "Telemetry",
                "TestSupport", "apns-worker", "apns-simulator", argumentParser, yams,
            ]),
    ],
    swiftLanguageModes: [.v6]
)

// For scripts/test module: the tests of some modules alone, so that an edit does not compile those of all others.
if let names = Context.environment["APNS_WORKER_TESTS"]?.split(separator: " ") {
    package.targets.removeAll { $0.type == .test && !names.contains(Substring($0.name)) }
}

// For scripts/fuzz: a program with libFuzzer instead of the tests that replay its corpus, because they share sources.
if Context.environment["APNS_WORKER_FUZZ"] != nil {
    package.targets.removeAll { $0.name == "APNSTests" }
    package.targets.append(
        .executableTarget(
            name: "HTTP2Fuzz", dependencies: ["APNS", "CNghttp2", nioCore], path: "Tests/APNSTests",
            exclude: ["Fuzzing/http2.corpus", "Fuzzing/hpack.corpus"],
            sources: ["Fuzzing", "HTTP2Frame.swift", "HeaderDecoder.swift"],
            swiftSettings: [.define("FUZZER")]))
}
