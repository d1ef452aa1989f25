import ArgumentParser
import Foundation
import TestSupport
import Testing

@testable import apns_simulator
@testable import apns_worker

extension EndToEnd {
    /// Flags, settings and values in Redis get extreme numbers. No program may crash or hang.
    @Suite("Extreme numbers")
    struct ExtremeNumbersTests {
        private static let numbers = [
            "9223372036854775807", "-9223372036854775808", "9223372036854775808", "18446744073709551616",
            "9007199254740993", "1e300", "-1e300", "1e999", "nan", "-1", "0", "0.1", "1795590734904000",
        ]

        // MARK: Programs

        /// Runs a program, and stops it after some time.
        /// - Returns: a description of the crash or the hang; `nil` if the program ended or could be stopped.
        private static func fault(
            _ arguments: [String], of program: String = "apns-worker", _ environment: [String: String],
            within limit: Duration = .seconds(20)
        ) async throws -> String? {
            // The program runs in its own folder, because some flags name a file to write.
            let folder = try TemporaryFolder()
            let process = try ChildProcess(
                "/usr/bin/env", ["--chdir=\(folder.url.path)", BuiltProgram.path(program)] + arguments,
                environment: environment, input: Data())
            let deadline = ContinuousClock.now + limit
            while process.ending == nil, ContinuousClock.now < deadline { try await Task.sleep(for: .milliseconds(5)) }
            process.send(SIGTERM)
            let ending: ChildProcess.Ending
            do {
                ending = try await process.wait()
            } catch { return "\(program) \(arguments) does not end: \(error)" }
            guard case .signalled(let signal) = ending, signal != SIGTERM else { return nil }
            return "\(program) \(arguments) \(environment.filter { $0.key != "APNS_WORKER_REDIS_URL" }): \(ending)\n"
                + process.errors.split(separator: "\n").filter { $0.contains("Fatal") || $0.contains(".swift:") }
                .prefix(4).joined(separator: "\n")
        }

        private static func recordFaults<Case: Sendable>(
            _ cases: [Case], _ fault: @escaping @Sendable (Case) async throws -> String?
        ) async throws {
            try await withThrowingTaskGroup(of: String?.self) { group in
                var rest = cases[...]
                for one in rest.prefix(6) { group.addTask { try await fault(one) } }
                rest = rest.dropFirst(6)
                while let found = try await group.next() {
                    if let found { Issue.record("\(found)") }
                    if let one = rest.popFirst() { group.addTask { try await fault(one) } }
                }
            }
        }

        // MARK: Flags and settings

        /// The flags without which a command would refuse the other flags.
        private static func context(_ command: String) -> [String] {
            switch command {
            case "enqueue": ["--token", "ab", "--alert", "x"]
            case "jobs cancel", "jobs run", "requeue", "dead delete": ["--id", "s", "--yes"]
            case "jobs move": ["--id", "s", "--yes", "--to-queue", "other"]
            case "invalid add", "invalid remove": ["ab", "--yes"]
            default: []
            }
        }

        private static func isSetting(_ argument: DocumentedCommand.Argument) -> Bool {
            argument.abstract?.contains("(APNS_WORKER_") ?? false
        }

        /// Returns a list for each flag. An element has the arguments of the command, with the flag and an extreme number.
        private static func cases(_ program: DocumentedCommand) -> [[[String]]] {
            program.leaves().flatMap { path, command in
                let arguments = command.arguments ?? []
                let needed =
                    arguments.filter { $0.kind == "positional" && !$0.isOptional }.map { _ in "ab" }
                    + context(path.joined(separator: " "))
                return arguments.filter { $0.kind == "option" && !isSetting($0) }.map { flag in
                    ["9223372036854775807", "-9223372036854775808", "1e300", "106751991167d"].map {
                        path + needed + ["--\(flag.names?.last?.name ?? "")=\($0)"]
                    }
                }
            }
        }

        /// Returns the arguments that a process must try: all that a program accepts, and one refused number for each name of a flag. For a
        /// flag that accepts every number, returns only two numbers per command, in turn.
        ///
        /// The parser, which refuses the other numbers, runs in this process. If a number crashes the parser, the tests crash.
        private static func toRun(_ flags: [[[String]]], _ accept: ([String]) throws -> Void) -> [[String]] {
            var refused: Set<Substring> = []
            var texts: [Substring: Int] = [:]
            let needed = flags.flatMap { cases in
                // The last argument has the form `--flag=number`.
                let name = cases[0].last?.split(separator: "=").first ?? ""
                var accepted: [[String]] = []
                var others: [[String]] = []
                for arguments in cases {
                    do {
                        try accept(arguments)
                        accepted.append(arguments)
                    } catch {
                        if refused.insert(name).inserted { others.append(arguments) }
                    }
                }
                guard accepted.count == cases.count else { return accepted + others }
                let turn = texts[name, default: 0]
                texts[name] = turn + 1
                return (0..<2).map { accepted[(2 * turn + $0) % accepted.count] }
            }
            #expect(refused.count > 5 && !texts.isEmpty && needed.count > refused.count)
            return needed
        }

        @Test("in any flag of any command end no command", arguments: ["apns-worker", "apns-simulator"])
        func flags(program: String) async throws {
            let redis = try RedisServer()
            let flags = Self.cases(try await DocumentedCommand.read(program))
            #expect(flags.count > 25)
            let cases = Self.toRun(flags) {
                if program == "apns-worker" {
                    _ = try ApnsWorker.parseAsRoot($0)
                } else {
                    _ = try SimulatorCommand.parseAsRoot($0)
                }
            }
            try await Self.recordFaults(cases) { arguments in
                try await Self.fault(
                    arguments, of: program, ["APNS_WORKER_REDIS_URL": redis.url], within: .milliseconds(400))
            }
        }

        @Test("in any setting end no worker")
        func settings() async throws {
            let redis = try RedisServer()
            let command = try await DocumentedCommand.read("apns-worker")
            let config = try #require(command.children.first { $0.commandName == "config" })
            let flags = (config.arguments ?? []).filter(Self.isSetting).compactMap { $0.names?.last?.name }
                .filter { $0 != "redis" }
            #expect(flags.count > 40)
            let cases = Self.toRun(flags.map { flag in Self.numbers.map { ["--\(flag)=\($0)"] } }) { arguments in
                let parts = arguments[0].split(separator: "=")
                guard let setting = Setting.all.first(where: { $0.flag == String(parts[0]) }) else { return }
                _ = try Settings(
                    filePath: nil, flags: [setting: String(parts[1])], isSimulated: true, environment: [:])
            }
            try await Self.recordFaults(cases) { flag in
                try await Self.fault(
                    ["run", "--simulate", "--exit-when-done"] + flag, ["APNS_WORKER_REDIS_URL": redis.url],
                    within: .seconds(3))
            }
        }

        // MARK: Keys

        private struct Contents {
            private var keys: [(name: String, type: String, elements: [RedisValue])] = []

            var types: [String: Int] { Dictionary(keys.map { ($0.type, 1) }, uniquingKeysWith: +) }

            init(_ redis: RedisTestConnection) throws {
                for name in (try redis.run("KEYS", "*").elements ?? []).compactMap(\.text).sorted() {
                    guard case .status(let type) = try redis.run("TYPE", name) else { continue }
                    let content = try redis.value(of: name)
                    keys.append((name, type, content.elements ?? [content]))
                }
            }

            /// Writes all keys with other numbers.
            /// - Parameter share: the share of the numbers that are replaced.
            func write(to redis: RedisTestConnection, share: Double, _ random: inout SeededGenerator) throws {
                try redis.run("FLUSHALL")
                func changed(_ value: RedisValue) -> String {
                    let text = value.text ?? ""
                    return text.replacing(/-?\d+(?:\.\d+)?(?:e\d+)?/) { match in
                        Double.random(in: 0..<1, using: &random) < share
                            ? numbers.randomElement(using: &random) ?? "" : String(match.0)
                    }
                }
                for (name, type, elements) in keys {
                    let pairs = stride(from: 0, to: elements.count - 1, by: 2).map { (elements[$0], elements[$0 + 1]) }
                    switch type {
                    case "string": try redis.run("SET", name, changed(elements[0]))
                    case "list": for element in elements { try redis.run("RPUSH", name, changed(element)) }
                    case "set": for element in elements { try redis.run("SADD", name, element.text ?? "") }
                    case "zset":
                        let scores = numbers.filter { !["nan", "1e999"].contains($0) } + ["inf", "-inf"]
                        for (member, score) in pairs {
                            let other = Double.random(in: 0..<1, using: &random) < share
                            let member = member.text ?? ""
                            try redis.run(
                                "ZADD", name, other ? scores.randomElement(using: &random) ?? "" : score.text ?? "",
                                member.contains("{") ? changed(.string(member)) : member)
                        }
                    case "hash":
                        for (field, value) in pairs { try redis.run("HSET", name, field.text ?? "", changed(value)) }
                    default:
                        for entry in elements {
                            guard let parts = entry.elements, let fields = parts[1].elements else { continue }
                            let changed = fields.enumerated().map { $0 % 2 == 0 ? $1.text ?? "" : changed($1) }
                            try redis.run((["XADD", name, parts[0].text ?? "*"] + changed).map { Array($0.utf8) })
                        }
                    }
                }
            }
        }

        private static let commands = [
            ["status"], ["status", "--json"], ["status", "--check"], ["jobs", "list"], ["jobs", "list", "--json"],
            ["jobs", "show", "--id", "s"], ["jobs", "cancel", "--id", "s", "--dry-run"],
            ["jobs", "export", "--id", "s"],
            ["jobs", "list", "--by", "campaign"], ["dead", "list"], ["dead", "list", "--json"], ["dead", "show"],
            ["dead", "list", "--by", "reason"], ["requeue", "--all", "--dry-run"], ["campaign", "list"],
            ["campaign", "list", "--json"], ["campaign", "show", "spring"], ["campaign", "show", "spring", "--json"],
            ["device", TestJob.token("a", 1)], ["device", TestJob.token("b", 1)], ["results"], ["results", "--json"],
            ["invalid", "list"], ["invalid", "list", "--json"], ["invalid", "export"],
        ]

        private static func contents(_ redis: RedisServer, _ environment: [String: String]) async throws -> Contents {
            let now = Int(Date().timeIntervalSince1970)
            func token(_ number: Int) -> String { #""token":"\#(TestJob.token("a", number))","alert":"x""# }
            let tokens = (0..<5).map { "\"\(TestJob.token("a", $0))\"" }.joined(separator: ",")
            let simulator = try await SimulatorProcess()
            let first = try WorkerProcess(
                redis, simulator, environment: environment.merging(["APNS_WORKER_MAX_PER_SECOND": "1000"]) { $1 })
            try redis.push([
                #"{"id":"a",\#(token(1)),"campaign":"spring","enqueued_at":\#(now)}"#,
                #"{"id":"b","tokens":[\#(tokens)],"alert":"x","labels":{"u":"1"}}"#,
                #"{"id":"s",\#(token(2)),"send_at":\#(now + 9999)}"#,
                #"{"id":"u","unique_for":"600s",\#(token(3)),"campaign":"spring","badge":3}"#,
                #"{"token":"ab"}"#, #"{"id":"x",\#(token(5)),"app":"none"}"#,
            ])
            try await eventually("dead letters") { try redis.run("ZCARD", "push:{default}:dead") == 2 }
            func command(_ arguments: String...) async throws {
                let output = try await CommandLineTests.run(arguments, environment: environment)
                #expect(output.ending == .exited(0), "\(arguments): \(output)")
            }
            try await command("campaign", "limit", "spring", "--per-second", "5")
            try await command("invalid", "add", TestJob.token("b", 1))
            try await command("pause", "--queue", "default")
            try await command("pause", "--app", "default")
            try await command("jobs", "cancel", "--campaign", "zz", "--yes")
            try await command("quiet", "--all", "--yes", "--wait")
            try redis.run("HSET", "push:{default}:campaign:spring", "total", "100")
            try redis.run("ZADD", "push:{shared}:throttled-tokens", "\((now + 600) * 1000)", TestJob.token("a", 7))
            try redis.run("HSET", "push:{shared}:registrations", TestJob.token("b", 1), "\(now * 1000)")
            first.process.kill()
            try redis.push([#"{"id":"w",\#(token(4)),"enqueued_at":\#(now)}"#])
            // This lane is dead, and has claims.
            try redis.run("ZADD", "push:{default}:workers", "\((now - 600) * 1000)", "w.0")
            try redis.run("HSET", "push:{default}:claimed:w.0", "1.s2", #"{"id":"c",\#(token(6))}"#)
            let contents = try Contents(redis.connect())
            _ = try await simulator.stop()
            return contents
        }

        /// Requests the pages of the dashboard from link to link, and returns their number.
        private static func crawl(_ web: WebProcess) async throws -> Int {
            var seen: Set<String> = []
            var found: Set<String> = ["/"]
            while let path = found.min(), seen.count < 120 {
                found.remove(path)
                seen.insert(path)
                let page = try await RawConnection.request(path, port: web.port, within: .seconds(180)).body
                for rest in page.components(separatedBy: "href=\"/").dropFirst() {
                    let link = "/" + rest.prefix { $0 != "\"" }.replacing("&amp;", with: "&")
                    let isPage = !link.contains("#") && !link.hasSuffix(".css") && !link.hasSuffix(".js")
                    if isPage, !seen.contains(link) { found.insert(link) }
                }
            }
            return seen.count
        }

        @Test("in any key end no command, page or worker", arguments: 0..<3)
        func keys(seed: Int) async throws {
            let redis = try RedisServer()
            let connection = try redis.connect()
            let environment = [
                "APNS_WORKER_REDIS_URL": redis.url, "APNS_WORKER_RESULTS": "all", "APNS_WORKER_LEASE": "7000",
            ]
            let contents = try await Self.contents(redis, environment)
            #expect(contents.types.count == 6, "\(contents.types)")
            var random = SeededGenerator(seed: UInt64(seed))
            let share = [0.05, 0.3, 0.9][seed % 3]
            try contents.write(to: connection, share: share, &random)

            try await Self.recordFaults(Self.commands) { try await Self.fault($0, environment) }
            let web = try await WebProcess(redis.url, [:])
            #expect(try await Self.crawl(web) > 20)
            #expect(web.process.ending == nil, "\(web.process.failure("the dashboard ended"))")

            let simulator = try await SimulatorProcess()
            let worker = try WorkerProcess(redis, simulator, environment: environment)
            // The worker reads these numbers at its start, and other numbers while it runs.
            for _ in 0..<3 {
                try redis.push([#"{"id":"n","token":"\#(TestJob.token("a", 8))","alert":"x"}"#])
                let calls = try redis.scriptCalls()
                try await worker.process.until("it reads them") { try redis.scriptCalls() > calls + 10 }
                try contents.write(to: connection, share: share, &random)
            }
            #expect(worker.process.ending == nil, "\(worker.process.failure("the worker ended"))")
            worker.process.kill()
        }
    }
}
