import Foundation
import TestSupport
import Testing

@testable import apns_worker

extension EndToEnd {
    /// Each setting gets the text of a key. No program may print a part of the key.
    @Suite("Secrets in the wrong place")
    struct SecretsTests {
        /// A setting in the table of the documentation.
        private struct Row {
            let name: String
            let flag: String?
            let variable: String
            /// True if the setting refuses every text. One message names all such settings, so one process can test all of them.
            let refusesTexts: Bool
        }

        private static func rows() throws -> [Row] {
            let text = try Repository.text("docs/configuration.md")
            return text.split(separator: "\n").compactMap { line in
                guard let name = line.prefixMatch(of: /\| `([a-z_0-9.]+)` \|/)?.1,
                    let variable = line.firstMatch(of: /`(APNS_WORKER_[A-Z_0-9]+)`/)?.1
                else { return nil }
                let refusesTexts =
                    switch Setting.all.first(where: { $0.variable == variable })?.kind {
                    case .number, .choice, .duration, .size: true
                    case .text, .file, .list, nil: false
                    }
                return Row(
                    name: String(name), flag: (line.firstMatch(of: /`(--[a-z-]+)`/)?.1).map(String.init),
                    variable: String(variable), refusesTexts: refusesTexts)
            }
        }

        /// Returns the key in several forms: as it is, in one line, as base64, and only its contents.
        private static func forms() throws -> [String] {
            let pem = try String(contentsOfFile: TestCertificates.path("AuthKey_ABC123DEFG.p8"), encoding: .utf8)
            let lines = pem.split(separator: "\n")
            return [
                pem, lines.joined(separator: " "), lines.joined(separator: #"\n"#),
                Data(pem.utf8).base64EncodedString(), lines.dropFirst().dropLast().joined(),
            ]
        }

        /// Returns the parts of the secret that no text may have: each 16 characters in a row, except those that all keys have.
        private static func parts(_ forms: [String]) -> [String] {
            let all = forms.flatMap { form in
                form.split(whereSeparator: \.isWhitespace).flatMap { word in
                    stride(from: 0, to: max(0, word.count - 16), by: 8).map { String(word.dropFirst($0).prefix(16)) }
                }
            }
            return all.filter { !$0.contains("PRIVATE") && !$0.contains("BEGIN") }
        }

        /// Returns a configuration file in which all these members have the value.
        private static func yaml(_ names: [String], _ value: String) throws -> String {
            let quoted = try String(decoding: JSONEncoder().encode(value), as: UTF8.self).replacing("\\/", with: "/")
            let paths = names.map { $0.split(separator: ".") }
            let groups = Dictionary(grouping: paths.filter { $0.count == 2 }) { $0[0] }
            return paths.filter { $0.count == 1 }.map { "\($0[0]): \(quoted)\n" }.joined()
                + groups.map { group, members in
                    "\(group):\n" + members.map { "  \($0[1]): \(quoted)\n" }.joined()
                }.joined()
        }

        /// Returns the first of the parts that the text contains.
        private static func leak(_ text: String, _ parts: [String]) -> String? {
            let text = Data(text.utf8)
            return parts.first { text.end(of: $0) != nil }
        }

        private static func output(
            _ arguments: [String], _ environment: [String: String]
        ) async throws -> (text: String, ending: ChildProcess.Ending) {
            let process = try ChildProcess(
                BuiltProgram.path("apns-worker"), arguments, environment: environment, input: Data())
            let ending = try await process.wait()
            return (process.output + process.errors, ending)
        }

        /// The commands that read settings, with arguments that make them end soon.
        private static let commands = [
            ["config"], ["config", "--json"], ["check", "--no-connect"], ["run", "--exit-when-done"],
            ["feedback", "--timeout", "1s"], ["status", "--timeout", "1s"], ["channels", "list"],
            ["enqueue", "--token", "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0", "--alert", "x"],
            ["health"],
        ]

        @Test("no setting prints one: as a flag, a variable, a member of the file, or the name of a file")
        func settings() async throws {
            let (rows, forms) = (try Self.rows(), try Self.forms())
            let parts = Self.parts(forms)
            #expect(rows.count > 60 && parts.count > 60)
            let redis = try RedisServer()
            // The message must contain `names`.
            var runs: [(arguments: [String], environment: [String: String], names: [String])] = []
            let refusing = rows.filter(\.refusesTexts)
            #expect(refusing.count > 40)
            let folder = try TemporaryFolder()
            for (number, form) in forms.enumerated() {
                let variables = refusing.map(\.variable)
                let flags = refusing.compactMap(\.flag)
                let environment = Dictionary(uniqueKeysWithValues: variables.map { ($0, form) })
                // `health` prints one line, so it can't name all settings.
                for command in Self.commands where command != ["health"] {
                    runs.append((command, environment, variables))
                }
                let files = variables.map { $0 + "_FILE" }
                runs.append((["config"], Dictionary(uniqueKeysWithValues: files.map { ($0, form) }), files))
                runs.append((["run", "--exit-when-done"] + flags.map { "\($0)=\(form)" }, [:], flags))
                // The parser takes a value that begins with a dash for a flag.
                runs.append((["config"] + flags.flatMap { [$0, form] }, [:], form.hasPrefix("-") ? [] : flags))
                for suffix in ["", "_file"] {
                    let members = refusing.map { $0.name + suffix }
                    let file = try folder.write(Self.yaml(members, form), as: "all-\(number)\(suffix).yaml")
                    runs.append((["config", "--config", file], [:], members.map { "`\($0)`" }))
                }
            }
            for (index, row) in rows.enumerated() {
                for (number, form) in forms.enumerated() {
                    let command = Self.commands[(index + number) % Self.commands.count]
                    let isShared = row.refusesTexts
                    // Each setting gets only one form, so that the test takes less than a minute.
                    let turn = (number - index % forms.count + forms.count) % forms.count
                    let isTried = isShared ? command == ["health"] : turn < 3
                    if isTried { runs.append((command, [row.variable: form], [])) }
                    guard !isShared, turn == 0 else { continue }
                    runs.append((["config"], [row.variable: form], []))
                    runs.append((["config"], [row.variable + "_FILE": form], []))
                    if let flag = row.flag {
                        runs.append((["config", flag, form], [:], []))
                        runs.append((["run", "--exit-when-done", "\(flag)=\(form)"], [:], []))
                    }
                    for suffix in ["", "_file"] {
                        let file = try folder.write(Self.yaml([row.name + suffix], form), as: "\(index)\(suffix).yaml")
                        runs.append((["config", "--config", file], [:], []))
                    }
                }
            }
            for form in forms {
                runs += [(["config", "--config", form], [:], []), (["config", form], [:], []), ([form], [:], [])]
            }
            let url = ["APNS_WORKER_REDIS_URL": redis.url]
            try await withThrowingTaskGroup(of: String?.self) { group in
                var rest = runs[...]
                func start() -> Bool {
                    guard let run = rest.popFirst() else { return false }
                    group.addTask {
                        let (text, ending) = try await Self.output(run.arguments, url.merging(run.environment) { $1 })
                        if case .signalled = ending { return "\(run.arguments) \(run.environment.keys) \(ending)" }
                        if let missing = run.names.first(where: { !text.contains($0) }) {
                            return "\(run.arguments.prefix(2)) does not name \(missing)"
                        }
                        return Self.leak(text, parts).map {
                            "\(run.arguments.prefix(2)) \(run.environment.keys): \($0)\n\(text)"
                        }
                    }
                    return true
                }
                for _ in 0..<4 { _ = start() }
                var leaks = 0
                while let leak = try await group.next() {
                    if let leak {
                        leaks += 1
                        if leaks <= 10 { Issue.record("\(leak)") }
                    }
                    _ = start()
                }
                #expect(leaks == 0)
            }
        }

        @Test("a key, a certificate or a passphrase instead of a path: the message names the setting to use")
        func messages() async throws {
            let forms = try Self.forms()
            for (variable, itself) in [
                ("APNS_WORKER_KEY", "APNS_WORKER_KEY_BASE64"),
                ("APNS_WORKER_CERTIFICATE", "APNS_WORKER_CERTIFICATE_BASE64"),
                ("APNS_WORKER_CA", "APNS_WORKER_CA_BASE64"),
            ] {
                for form in forms {
                    let (text, ending) = try await Self.output(["config"], [variable: form])
                    #expect(ending == .exited(78))
                    #expect(text.contains("\(variable) is not the path of a file; its text is not shown"), "\(text)")
                    #expect(text.contains("belongs in `") && text.contains("(\(itself))"), "\(text)")
                }
            }
            for variable in ["APNS_WORKER_KEY_PASSPHRASE_FILE", "APNS_WORKER_REDIS_URL_FILE", "APNS_WORKER_PROXY_FILE"]
            {
                let (text, ending) = try await Self.output(["config"], [variable: "hunter2-secret"])
                #expect(ending == .exited(78) && !text.contains("hunter2"), "\(text)")
                #expect(text.contains(variable) && text.contains(variable.dropLast("_FILE".count)), "\(text)")
            }
            let (text, _) = try await Self.output(["config"], ["APNS_WORKER_KEY": "/no/such/AuthKey_ABC123DEFG.p8"])
            #expect(text.contains("/no/such/AuthKey_ABC123DEFG.p8"), "\(text)")
        }

        @Test("those in the right place are in no log, page, metric or key of Redis")
        func inUse() async throws {
            let forms = try Self.forms()
            let parts = Self.parts(forms)
            let redis = try RedisServer(password: "hunter2-Zq9")
            let simulator = try await SimulatorProcess()
            let worker = try WorkerProcess(
                redis, simulator, ["--admin-port", "0", "--log-level", "trace"],
                environment: ["APNS_WORKER_KEY": "", "APNS_WORKER_KEY_BASE64": forms[3]])
            let port = try await worker.adminPort()
            try redis.push(TestJob.many(20) + ["{}"])
            try await redis.has(20)
            let web = try await WebProcess(redis.url, [:], environment: ["APNS_WORKER_KEY_BASE64": forms[3]])
            var texts: [(name: String, text: String)] = []
            for path in ["/metrics", "/readyz"] { texts.append((path, try await MetricsTests.get(port, path).body)) }
            for path in ["/", "/workers", "/apps", "/redis", "/dead", "/api/v1/status", "/activity"] {
                let page = try await RawConnection.request(path, port: web.port)
                #expect(page.body.count > 100)
                texts.append((path, page.head + page.body))
            }
            for command in [["status", "--json"], ["config"], ["check"], ["activity"]] {
                let (text, _) = try await Self.output(
                    command,
                    [
                        "APNS_WORKER_REDIS_URL": redis.url, "APNS_WORKER_KEY_BASE64": forms[3],
                        "APNS_WORKER_KEY_ID": "ABC123DEFG", "APNS_WORKER_TEAM_ID": "TEAM123456",
                        "APNS_WORKER_TOPIC": "com.example.app", "APNS_WORKER_ENDPOINT": "localhost:\(simulator.port)",
                        "APNS_WORKER_CA": try TestCertificates.path("ca.pem"),
                    ])
                texts.append((command[0], text))
            }
            // Everything in Redis, as a replica would get it.
            let connection = try redis.connect()
            for key in try connection.run("KEYS", "*").strings() {
                texts.append((key, "\(try connection.value(of: key))"))
            }
            #expect(texts.count > 18)
            _ = try await worker.stop()
            texts += [("the log", worker.log), ("the dashboard's log", web.process.errors)]
            for (name, text) in texts { #expect(Self.leak(text, parts) == nil && !text.contains("hunter2"), "\(name)") }
        }

        @Test("a password in a flag is accepted, and the command says who can read it")
        func passwordInFlag() async throws {
            let redis = try RedisServer(password: "hunter2")
            let url = redis.url
            let (text, ending) = try await Self.output(["status", "--redis", url], [:])
            #expect(ending == .exited(0), "\(text)")
            let expected =
                "warning: --redis has a password, which all users of this machine can read in the list of processes"
            #expect(text.contains(expected) && text.contains("?password_file=") && !text.contains("hunter2"), "\(text)")
            let (other, _) = try await Self.output(["status"], ["APNS_WORKER_REDIS_URL": url])
            #expect(!other.contains("warning"), "\(other)")
            let simulator = try await SimulatorProcess()
            let worker = try WorkerProcess(
                redis: url, endpoint: simulator.port, options: ["--redis", url, "--proxy", "none"])
            try await worker.logs("secret_in_flag", "--redis has a password")
            try await worker.logs("started")
            _ = try await worker.stop()
            #expect(!worker.log.contains("hunter2"))
        }
    }
}
