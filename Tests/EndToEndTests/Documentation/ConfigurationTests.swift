import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Configuration")
    struct ConfigurationTests {
        struct Line: Decodable {
            let key, value, source: String
            let reloaded: Bool
        }

        private static func credential() throws -> String {
            """
            key: \(try TestCertificates.path("AuthKey_ABC123DEFG.p8"))
            key_id: ABC123DEFG
            team_id: TEAM123456

            """
        }

        private static func settings(
            _ arguments: [String], environment: [String: String] = [:]
        ) async throws -> [String: Line] {
            let result = try await CommandLineTests.run(["config", "--json"] + arguments, environment: environment)
                .succeeds()
            let lines = try result.output.split(separator: "\n").map {
                try JSONDecoder().decode(Line.self, from: Data($0.utf8))
            }
            return Dictionary(uniqueKeysWithValues: lines.map { ($0.key, $0) })
        }

        /// Expects the values that `config` prints. A value may be followed by its source in parentheses.
        @discardableResult
        private static func expect(
            _ expected: [String: String], from yaml: String, flags: [String] = [], environment: [String: String] = [:],
            at location: SourceLocation = #_sourceLocation
        ) async throws -> [String: Line] {
            let folder = try TemporaryFolder(try credential() + "topic: com.example.app\n" + yaml)
            let settings = try await settings(["--config", folder.file] + flags, environment: environment)
            for (key, value) in expected {
                let line = settings[key]
                let source = (line?.source ?? "").replacing(folder.file + ":", with: "line ")
                let shown = (line?.value ?? "") + (value.hasSuffix(")") ? " (\(source))" : "")
                #expect(shown == value, "\(key)", sourceLocation: location)
            }
            return settings
        }

        // MARK: Sources of values

        @Test("flags override variables, variables override the file, and the file overrides defaults")
        func precedence() async throws {
            let settings = try await Self.expect(
                [
                    "lease": "10s (--lease)", "retry_base": "25ms (APNS_WORKER_RETRY_BASE)",
                    "retry_cap": "30ms (line 7)", "max_attempts": "10 (default)",
                        // An empty variable counts as not set.
                ], from: "lease: 8000\nretry_base: 20\nretry_cap: 30", flags: ["--lease", "10000"],
                environment: ["APNS_WORKER_LEASE": "9000", "APNS_WORKER_RETRY_BASE": "25"])
            #expect(settings["lease"]?.reloaded == false && settings["max_attempts"]?.reloaded == true)
        }

        @Test("durations and sizes have units; numbers without a unit keep their old meaning")
        func units() async throws {
            try await Self.expect(
                [
                    "lease": "90s", "idle_timeout": "10m", "dead_letters_days": "36h", "dead_letters_bytes": "64MiB",
                    "log_level": "notice", "retry_base": "500ms", "max_connection_age": "7d",
                    "retry_cap": "1h", "invalid_tokens_days": "30d", "gateway.window_bytes": "1000",
                    "request_timeout": "20s", "gateway.batch_bytes": "16KiB",
                ],
                from: """
                    lease: 1m30s
                    idle_timeout: 600
                    dead_letters_days: 36h
                    dead_letters_bytes: 64MiB
                    log_level: NOTICE
                    """, flags: ["--retry-base", "500ms", "--max-connection-age", "1w"],
                environment: [
                    "APNS_WORKER_RETRY_CAP": "1h", "APNS_WORKER_INVALID_TOKENS_DAYS": "30",
                    "APNS_WORKER_GATEWAY_WINDOW_BYTES": "1000",
                ])
        }

        @Test("an app's or a queue's own setting overrides the common one, in the file and in variables")
        func ofItsOwn() async throws {
            let folder = try TemporaryFolder(
                try Self.credential() + """
                    max_connections: 2
                    queues:
                      a: {dead_letters_bytes: 1000000}
                      b: {dead_letters_days: 7}
                    apps:
                      shop.example: {topic: com.example.shop, max_connections: 3}
                      news:
                        topic: [com.example.news, com.example.news.pro]
                        gateway: {window: 7}
                    """)
            let environment = [
                "APNS_WORKER_CONFIG": folder.file, "APNS_WORKER_MAX_CONNECTIONS": "9",
                "APNS_WORKER_APPS_NEWS_MAX_PER_SECOND": "5", "APNS_WORKER_APPS_SHOP_EXAMPLE_ENDPOINT": "sandbox",
            ]
            let settings = try await Self.settings([], environment: environment)
            #expect(settings["max_connections"]?.value == "9")
            #expect(settings["queues.a.dead_letters_bytes"]?.value == "1000000")
            #expect(settings["queues.b.dead_letters_days"]?.value == "7d")
            #expect(settings["apps.shop.example.max_connections"]?.value == "3")
            #expect(settings["apps.shop.example.endpoint"]?.source == "APNS_WORKER_APPS_SHOP_EXAMPLE_ENDPOINT")
            #expect(settings["apps.news.max_per_second"]?.value == "5")
            #expect(settings["apps.news.topic"]?.value == "com.example.news,com.example.news.pro")
            #expect(settings["apps.news.gateway.window"]?.value == "7")
        }

        @Test("its output can be used as a file and then prints the same")
        func roundTrip() async throws {
            let folder = try TemporaryFolder()
            let authority = try folder.write("", as: "a: \"b\" # c")
            try folder.write(
                try Self.credential() + """
                    redis: {url: "redis://127.0.0.1:7777/3"}
                    queues:
                      critical: {weight: 6}
                      default:
                    apps:
                      shop.example: {topic: com.example.shop, gateway: {window: 9}}
                      "42": {topic: "com.example.news", endpoint: sandbox}
                    ca: "\(authority.replacing("\"", with: "\\\""))"
                    """)
            let printed = try await CommandLineTests.run(["config", "--config", folder.file]).succeeds()
            let copy = try TemporaryFolder(printed.output)
            let (one, other) = (
                try await Self.settings(["--config", folder.file]), try await Self.settings(["--config", copy.file])
            )
            #expect(one.mapValues(\.value) == other.mapValues(\.value))
            #expect(one["queues.default.weight"]?.value == "1" && one["queues.critical.weight"]?.value == "6")
            #expect(one["ca"]?.value == authority)
        }

        @Test("secrets are never shown, and can be in files of their own")
        func secrets() async throws {
            let folder = try TemporaryFolder()
            let url = try folder.write("redis://user:pa55word@127.0.0.1:7777/3\n", as: "url")
            let key = try Data(contentsOf: URL(filePath: TestCertificates.path("AuthKey_ABC123DEFG.p8")))
            try folder.write(key.base64EncodedString(), as: "key")
            try folder.write(
                """
                redis: {url_file: \(url)}
                proxy: http://user:pa55word@localhost:3128
                apps: {shop: {key_base64_file: \(folder.url.path)/key, topic: com.example.shop}}
                """)
            let environment = [
                "APNS_WORKER_KEY_ID": "ABC123DEFG", "APNS_WORKER_TEAM_ID": "TEAM123456",
                "APNS_WORKER_KEY_PASSPHRASE": "pa55word",
            ]
            for arguments in [["config"], ["config", "--json"]] {
                try await CommandLineTests.run(
                    arguments + ["--config", folder.file], environment: environment
                ).succeeds("127.0.0.1:7777/3", "key_base64").lacks(
                    "pa55word", String(key.base64EncodedString().prefix(20)))
            }
            // Variables must give the same settings.
            let byVariable = try await Self.settings(
                ["--given"],
                environment: [
                    "APNS_WORKER_REDIS_URL_FILE": url, "APNS_WORKER_TOPIC": "a.b",
                    "APNS_WORKER_KEY_BASE64_FILE": "\(folder.url.path)/key",
                ].merging(environment) { $1 })
            #expect(byVariable["redis.url"]?.source == "APNS_WORKER_REDIS_URL_FILE")
            #expect(byVariable["redis.url"]?.value == "redis://user:***@127.0.0.1:7777/3")
        }

        // MARK: Mistakes

        /// Files with a mistake, and the line and the sentence of each error.
        static let mistakes: [(yaml: String, sentence: String)] = [
            ("lease: 8000\nmax_attemps: 3", "2: unknown setting `max_attemps`; did you mean `max_attempts`?"),
            ("redis_url: redis://x", "1: unknown setting `redis_url`; did you mean `redis.url`?"),
            ("redis:\n  ulr: redis://x", "2: unknown setting `redis.ulr`; did you mean `url`?"),
            ("\n\nlease: soon", "3: `lease` is soon; it must be a duration from 7s to 1h"),
            ("lease: 12.5", "1: `lease` is 12.5; it must be a duration from 7s to 1h"),
            ("idle_timeout: 1500ms", "1: `idle_timeout` is 1500ms; it must be in whole seconds"),
            ("retry_base: 1m1h", "1: `retry_base` is 1m1h; it must be a duration from 1ms to 1h"),
            ("lease: [1]", "1: `lease` must be a single value"),
            (
                "lease: 5",
                "1: `lease` is 5; it must be a duration from 7s to 1h (a number without a unit is in milliseconds)"
            ),
            ("log_level: inof", "1: `log_level` is inof; it must be"),
            ("apps:\n  shop:\n    topics: a", "3: unknown setting `apps.shop.topics`; did you mean `topic`?"),
            ("apps:\n  shop:\n    lease: 9000", "3: unknown setting `apps.shop.lease`"),
            ("apps: [shop]", "1: `apps` must have names as its keys"),
            ("apps: {shop: 1}", "1: `apps.shop` must have keys with values"),
            ("gateway: {frame: itmes}", "1: `gateway.frame` is itmes; it must be simple, enhanced or items"),
            ("queues: {a: {weight: 0}}", "1: `queues.a.weight` is 0; it must be a whole number from 1 to 1000"),
            (
                "dead_letters_bytes: 1gig",
                "1: `dead_letters_bytes` is 1gig; it must be a size from 1 to 1TiB, such as 64MiB, or in bytes"
            ),
            (
                "queues: {a: {dead_letters_bytes: 0}}",
                "1: `queues.a.dead_letters_bytes` is 0; it must be a size from 1 to 1TiB"
            ),
            (
                "invalid_tokens_days: -1",
                "1: `invalid_tokens_days` is -1; it must be a duration from 0 to 36500d (a number without a unit is in days)"
            ),
            ("queues: {a: {invalid_tokens_days: 3}}", "1: unknown setting `queues.a.invalid_tokens_days`"),
            ("weight: 3", "1: unknown setting `weight`"),
            ("lease: 8000\nlease: 9000", "2: the key `lease` is given twice; remove one of the two"),
            ("lease: 8000\n---\nlease: 9000", "2: a second document begins here"),
            ("lease: *none", "1: the alias `*none` has no anchor `&none` before it"),
            ("apps:\n  a: &a\n    b: *a", "3: the alias `*a` refers to itself"),
            ("apps:\n  a: &a {topic: a.b}\n  b: {<<: *a}", "3: merge keys (`<<`) are not supported"),
            ("proxy: !include proxy.yaml", "1: the tag `!include` is not supported; remove it"),
            ("a: 1\n\nlease: \u{7}", "3:8: not valid YAML: control characters are not allowed"),
            ("\tlease: 8s", "1:1: not valid YAML: found character that cannot start any token"),
            ("? [a]\n: b", "1: a key must be a word"),
            // Hostile files must fail at once. They have deep nesting, or ten lists of ten aliases each, which are ten billion values.
            (String(repeating: "[", count: 1_000_000), "1: nested more than 100 levels deep"),
            (String(repeating: "? ", count: 500_000), "1: nested more than 100 levels deep"),
            (expanding, "7: with its aliases, the file has more than 1000000 values"),
            ("a: [", "2:"), ("- a", "1: the file must have keys with values"),
            ("redis: {url_file: /no/such}", "1: `redis.url_file`: cannot read /no/such"),
            ("certificate_key_base64: [1]", "1: `certificate_key_base64` must be a single value"),
        ]

        private static let expanding = (1...9).reduce("a0: &a0 [x]\n") { text, level in
            let aliases = Array(repeating: "*a\(level - 1)", count: 10).joined(separator: ",")
            return text + "a\(level): &a\(level) [\(aliases)]\n"
        }

        @Test("the file may use all forms of YAML, including aliases")
        func forms() async throws {
            let folder = try TemporaryFolder()
            let authority = try folder.write("", as: "a b")
            try folder.write(
                """
                \u{FEFF}%YAML 1.1
                ---\r
                # A comment.
                team_id: &team "TEAM123456"
                lease: ! 8s\r
                retry_base: !!str 100ms
                'log_level': debug
                redis: {url: "redis://127.0.0.1:7777/\\x33"}
                ca: >-
                  \(folder.url.path)/a
                  b
                proxy: ~
                idle_timeout:
                queues:
                  ? default
                  : &weights {weight: 2}
                  other: *weights
                apps: {a: {topic: a.b, team_id: *team}, b: {topic: a.c}}
                ...

                """)
            let key = try TestCertificates.path("AuthKey_ABC123DEFG.p8")
            let settings = try await Self.settings(
                ["--config", folder.file], environment: ["APNS_WORKER_KEY": key, "APNS_WORKER_KEY_ID": "ABC123DEFG"])
            #expect(settings["team_id"]?.value == "TEAM123456" && settings["apps.a.team_id"]?.value == "TEAM123456")
            #expect(settings["lease"]?.value == "8s" && settings["retry_base"]?.value == "100ms")
            #expect(settings["log_level"]?.value == "debug" && settings["ca"]?.value == authority)
            #expect(settings["redis.url"]?.value == "redis://127.0.0.1:7777/3")
            #expect(settings["queues.default.weight"]?.value == "2" && settings["queues.other.weight"]?.value == "2")
            #expect(settings["apps.b.topic"]?.value == "a.c")
            #expect(settings["proxy"]?.value == nil && settings["idle_timeout"]?.source == "default")
            for empty in ["", "# nothing\n", "---\n", "\n\n"] {
                let folder = try TemporaryFolder(empty)
                try await CommandLineTests.run(["config", "--config", folder.file]).lacks("worker.yaml")
            }
        }

        @Test("a mistake in the file is reported with its line and a suggestion", arguments: mistakes.indices)
        func mistake(_ index: Int) async throws {
            let (yaml, sentence) = Self.mistakes[index]
            let folder = try TemporaryFolder(yaml)
            for command in [["config"], ["run"], ["enqueue", "--token", "ab", "--alert", "x"]] {
                let result = try await CommandLineTests.run(command + ["--config", folder.file])
                #expect(result.ending == .exited(78), "\(command)")
                #expect(result.errors.contains("worker.yaml:\(sentence)"), "\(result.errors)")
            }
        }

        @Test("all mistakes are reported at once, also those of variables and flags; Kubernetes' variables are ignored")
        func allMistakes() async throws {
            let folder = try TemporaryFolder("lease: 5\nfoo: 1")
            let variables = [
                "MAX_ATEMPTS": "1", "LANES": "many", "SERVICE_HOST": "10.0.0.1", "PORT": "tcp://10.0.0.1:80",
                "PORT_80_TCP_ADDR": "10.0.0.1", "SERVICE_PORT_METRICS": "80", "APPS_SHOP_TOPIC": "x",
                "PROXY_FILE": "/no/such",
            ]
            let result = try await CommandLineTests.run(
                ["config", "--config", folder.file, "--transport", "http"],
                environment: Dictionary(uniqueKeysWithValues: variables.map { ("APNS_WORKER_\($0)", $1) })
            ).reports(
                "worker.yaml:1: `lease` is 5", "worker.yaml:2: unknown setting `foo`",
                "unknown environment variable APNS_WORKER_MAX_ATEMPTS; did you mean APNS_WORKER_MAX_ATTEMPTS?",
                "APNS_WORKER_LANES is many; it must be a whole number from 0 to 256",
                "--transport is http; it must be http2 or gateway; did you mean http2?",
                "unknown environment variable APNS_WORKER_APPS_SHOP_TOPIC",
                "APNS_WORKER_PROXY_FILE: cannot read /no/such")
            #expect(!result.errors.contains("SERVICE") && !result.errors.contains("PORT"))
        }

        private static func check(_ environment: [String: String]) async throws -> CommandLineTests.Output {
            try await CommandLineTests.run(["check", "--no-redis", "--no-connect"], environment: environment)
        }

        private static func variables() throws -> [String: String] {
            [
                "APNS_WORKER_KEY": try TestCertificates.path("AuthKey_ABC123DEFG.p8"),
                "APNS_WORKER_KEY_ID": "ABC123DEFG", "APNS_WORKER_TEAM_ID": "TEAM123456",
                "APNS_WORKER_TOPIC": "com.example.app",
            ]
        }

        @Test("line ends after a value are not a part of it", arguments: ["\n", "\r\n", "\n\n"])
        func lineEnds(end: String) async throws {
            let variables = try Self.variables().merging([
                "APNS_WORKER_LOG_LEVEL": "info", "APNS_WORKER_REDIS_URL": "redis://127.0.0.1:6379",
                "APNS_WORKER_ENDPOINT": "localhost:30443", "APNS_WORKER_MAX_CONNECTIONS": "3",
                "APNS_WORKER_QUEUE": "a,b", "APNS_WORKER_CA": try TestCertificates.path("ca.pem"),
                "APNS_WORKER_LEASE": "60s", "APNS_WORKER_STRICT_PAYLOADS": "on",
            ]) { $1 }
            let plain = try await Self.settings([], environment: variables)
            let ended = try await Self.settings([], environment: variables.mapValues { $0 + end })
            #expect(plain.count >= variables.count && plain.mapValues(\.value) == ended.mapValues(\.value))
            try await Self.check(variables.mapValues { $0 + end }).succeeds()
        }

        @Test(
            "quotation marks and other additions are named, with the variable",
            arguments: [
                ("TOPIC", "\"com.example.app\"", "APNS_WORKER_TOPIC is in quotation marks"),
                ("TEAM_ID", "'TEAM123456'", "APNS_WORKER_TEAM_ID is in quotation marks"),
                ("TOPIC", "com.example .app", "APNS_WORKER_TOPIC names the topic com.example .app; a topic is"),
                ("KEY_ID", "abc", "APNS_WORKER_KEY_ID is abc; a key ID has ten capital letters and digits"),
                ("LANES", "\u{FEFF}3", "APNS_WORKER_LANES begins with a byte order mark"),
                ("ENDPOINT", "a\u{1B}[31m", "APNS_WORKER_ENDPOINT has a control character"),
            ])
        func additions(name: String, value: String, words: String) async throws {
            let result = try await Self.check(try Self.variables().merging(["APNS_WORKER_\(name)": value]) { $1 })
            #expect(result.ending == .exited(1) && (result.output + result.errors).contains(words), "\(result)")
        }

        @Test("all mistakes in credentials are reported at once")
        func credentials() async throws {
            try await Self.check(
                try Self.variables().merging([
                    "APNS_WORKER_KEY": "/none/no.p8", "APNS_WORKER_CA": "/none/no-ca.pem",
                    "APNS_WORKER_MIN_CONNECTIONS": "9", "APNS_WORKER_MAX_CONNECTIONS": "3",
                ]) { $1 }
            ).shows("no.p8", "no-ca.pem", "min_connections is more than max_connections")
        }

        @Test("an app's own key has its own ID and no common next key")
        func ownKey() async throws {
            let folder = try TemporaryFolder("")
            let key = try String(contentsOfFile: TestCertificates.path("AuthKey_ABC123DEFG.p8"), encoding: .utf8)
            var variables = try Self.variables()
            variables.merge([
                "APNS_WORKER_APPS": "shop,news", "APNS_WORKER_NEXT_KEY": variables["APNS_WORKER_KEY"] ?? "",
                "APNS_WORKER_NEXT_KEY_ID": "NEXTKEY123", "APNS_WORKER_APPS_NEWS_TOPIC": "com.example.news",
                "APNS_WORKER_APPS_NEWS_KEY": try folder.write(key, as: "AuthKey_NEWKEY1234.p8"),
            ]) { $1 }
            let result = try await Self.check(variables)
            let news = result.output.split(separator: "\n").filter { $0.contains("app news: signing key") }
            #expect(news.count == 1 && news[0].contains("signing key NEWKEY1234 of team TEAM123456"), "\(result)")
            #expect(result.output.contains("app shop: signing key NEXTKEY123"))
            variables["APNS_WORKER_APPS_NEWS_KEY_ID"] = "OTHERKEY12"
            try await Self.check(variables).reports("is OTHERKEY12, but the file")
        }

        @Test("a missing file is reported, and so are a directory and a file that is not text")
        func noFile() async throws {
            let folder = try TemporaryFolder("a: 1")
            for path in ["/no/such.yaml", folder.url.path] {
                try await CommandLineTests.run(["config", "--config", path]).reports(
                    "cannot read the configuration file \(path)")
            }
            try Data([0x61, 0x3A, 0xFF]).write(to: URL(filePath: folder.file))
            try await CommandLineTests.run(["config", "--config", folder.file]).reports("is not UTF-8")
        }
    }
}
