import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// The kernel ignores signals to the first process of a container, unless the process has a handler.
    @Suite("SIGTERM and SIGINT")
    struct SignalTests {
        /// A command that is the first process of a PID namespace.
        private struct FirstProcess {
            let outer: ChildProcess
            /// The standard input of the command, which stays empty.
            private let pipe: StalledPipe

            init(_ arguments: [String], environment: [String: String], inputFrom pipe: StalledPipe) throws {
                self.pipe = pipe
                let options = ["--pid", "--fork", "--kill-child"]
                outer = try ChildProcess(
                    "sh",
                    [
                        "-c", "exec unshare \"$@\" <>\"$0\"", pipe.path,
                    ] + (geteuid() == 0 ? options : ["--user", "--map-root-user"] + options)
                        + [try BuiltProgram.path("apns-worker")] + arguments, environment: environment)
            }

            /// The process of the command, inside of unshare(1); `nil` until it has started.
            var identifier: Int32? {
                let path = "/proc/\(outer.processIdentifier)/task/\(outer.processIdentifier)/children"
                guard let children = try? String(contentsOfFile: path, encoding: .utf8),
                    let child = Int32(children.trimmingCharacters(in: .whitespacesAndNewlines)),
                    let program = try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(child)/exe"),
                    program.hasSuffix("/apns-worker")
                else { return nil }
                return child
            }

            /// Waits until all threads of the command sleep and use no CPU time.
            func waits() async throws {
                var (last, times) = ("", 0)
                try await outer.until("it waits: \(outer.errors)") {
                    guard let identifier, let stat = try? Self.stat(identifier) else { return false }
                    times = stat.isAsleep && stat.used == last ? times + 1 : 0
                    last = stat.used
                    return times > 5
                }
            }

            private static func stat(_ identifier: Int32) throws -> (isAsleep: Bool, used: String) {
                let threads = "/proc/\(identifier)/task"
                let stats = try FileManager.default.contentsOfDirectory(atPath: threads).map {
                    try String(contentsOfFile: "\(threads)/\($0)/stat", encoding: .utf8)
                        .split(separator: ") ").last?.split(separator: " ") ?? []
                }
                // After the program's name come the state and, as the 12th and 13th field, the used ticks.
                return (
                    stats.allSatisfy { $0.first == "S" },
                    stats.map { $0.dropFirst(11).prefix(2).joined(separator: " ") }.joined(separator: ",")
                )
            }

            func ends(at signal: Int32, _ command: String) async throws {
                guard let identifier else { throw outer.failure("\(command) does not run") }
                kill(identifier, signal)
                do { try await outer.wait(within: .seconds(20)) } catch {
                    Issue.record("\(command) does not end at signal \(signal): \(error)")
                }
            }
        }

        /// The reason why each command waits:
        ///
        /// - `always`: with these arguments, the command waits for results, workers, input or a user.
        /// - `forRedis`: with these arguments, it waits only for a Redis that does not answer.
        /// - `never`: the command sends nothing to Redis.
        private enum Wait {
            case always([String])
            case forRedis([String])
            case never
        }

        private static let commands: [String: Wait] = [
            "run": .always(["--simulate"]), "health": .never,
            "enqueue": .always(["--token", TestJob.token("a", 1), "--alert", "Hello", "--wait", "1h"]),
            "campaign send": .always([
                "spring", "--job", "JOB", "--tokens", "TOKENS", "--ahead", "1", "--job-size", "1",
            ]),
            "campaign list": .forRedis([]), "campaign show": .always(["spring", "--watch"]),
            "campaign report": .forRedis(["spring"]), "campaign pause": .forRedis(["spring"]),
            "campaign resume": .forRedis(["spring"]), "campaign limit": .forRedis(["spring", "--per-second", "5"]),
            "campaign guard": .forRedis(["spring", "--stop-if", "dead>1%"]),
            "campaign cancel": .forRedis(["spring", "--yes"]), "campaign requeue": .forRedis(["spring", "--yes"]),
            "status": .always(["--watch"]), "web": .always(["--port", "0"]),
            "jobs list": .forRedis([]), "jobs show": .forRedis(["0123456789"]),
            "jobs cancel": .forRedis(["--id", "x", "--yes"]),
            "jobs run": .forRedis(["--id", "x", "--yes"]),
            "jobs move": .forRedis(["--id", "x", "--to-queue", "b", "--force", "--yes"]),
            "jobs export": .forRedis([]), "device show": .forRedis([TestJob.token("a", 1)]),
            "device export": .forRedis([TestJob.token("a", 1)]),
            "device forget": .forRedis([TestJob.token("a", 1), "--yes"]), "results": .always(["--follow"]),
            "dead list": .forRedis([]), "dead show": .forRedis(["0123456789"]),
            "dead delete": .forRedis(["--id", "x", "--yes"]),
            "invalid list": .forRedis([]), "invalid add": .always([]),
            "invalid remove": .always(["--from", "-", "--yes"]), "invalid reshard": .forRedis(["--to", "2", "--yes"]),
            "requeue": .always(["--all", "--yes", "--rate", "1"]),
            "feedback": .always(["--interval", "1h", "--spill", "-"]), "pause": .forRedis([]), "resume": .forRedis([]),
            "quiet": .always(["--all", "--yes", "--wait"]), "stop": .always(["--all", "--yes", "--wait"]),
            "check": .always(["--jobs-from", "-", "--no-connect"]), "config": .never, "schema": .never,
            "channels create": .never, "channels read": .never, "channels delete": .never, "channels list": .never,
            "web-user": .never,
        ]

        /// More arguments with which commands wait, at other places in the code.
        private static let variants: [(String, [String])] = [
            ("results", ["--exec", "cat"]), ("results", ["--webhook", "http://127.0.0.1:1/"]), ("enqueue", []),
        ]

        private static func environment(_ redis: String) throws -> [String: String] {
            [
                "APNS_WORKER_REDIS_URL": redis, "APNS_WORKER_WEBHOOK_SECRET": "a secret of some twenty-five bytes",
                "APNS_WORKER_ENDPOINT": "localhost:1", "APNS_WORKER_FEEDBACK_ENDPOINT": "localhost:1",
                "APNS_WORKER_TOPIC": "com.example.app",
            ].merging(try TestCertificates.clientVariables()) { $1 }
        }

        private static func order(_ command: String) -> String {
            (["quiet", "stop"].contains(command) ? "0 " : "1 ") + command
        }

        @Test("The table has each command.")
        func complete() async throws {
            let all = try await DocumentedCommand.read("apns-worker").leaves().map { $0.path.joined(separator: " ") }
            #expect(Set(all) == Set(Self.commands.keys))
        }

        @Test("Each command that waits ends as the first process of a container.", arguments: [SIGTERM, SIGINT])
        func waiting(signal: Int32) async throws {
            let redis = try RedisServer()
            // The commands wait for a worker that does not obey, a campaign whose queue is full, or dead letters to requeue.
            let simulator = try await SimulatorProcess()
            let worker = try WorkerProcess(redis, simulator, environment: ["APNS_WORKER_LEASE": "120000"])
            try await eventually("the worker lives") { try !QueueContents(redis).workers.isEmpty }
            try await worker.process.pause()
            defer { worker.process.send(SIGCONT) }
            let folder = try TemporaryFolder()
            let job = try folder.write(#"{"payload":{"aps":{"alert":"Hello"}}}"#, as: "job.json")
            let tokens = try folder.write(
                (0..<50).map { TestJob.token("b", $0) + "\n" }.joined(), as: "tokens")
            let environment = try Self.environment(redis.url)
            var all: [(String, [String])] = Self.commands.compactMap { command, wait in
                if case .always(let arguments) = wait { (command, arguments) } else { nil }
            }
            all += Self.variants
            // Commands that wait for the worker come first, while the worker's lease lasts.
            for (command, arguments) in all.sorted(by: { Self.order($0.0) < Self.order($1.0) }) {
                if command == "requeue" { try redis.bury((0..<200).map { TestLetter.numbered($0) }) }
                let words = arguments.map { $0 == "JOB" ? job : $0 == "TOKENS" ? tokens : $0 }
                let process = try FirstProcess(
                    command.split(separator: " ").map(String.init) + words, environment: environment,
                    inputFrom: StalledPipe(isFull: false))
                try await process.waits()
                try await process.ends(at: signal, ([command] + words).joined(separator: " "))
            }
        }

        @Test("Each command ends while Redis does not answer.")
        func silentRedis() async throws {
            let redis = try RedisServer()
            let proxy = try await FaultProxy(to: redis.port)
            try await proxy.begin(.blackHole)
            let environment = try Self.environment("redis://127.0.0.1:\(proxy.port)")
            for (command, wait) in Self.commands.sorted(by: { $0.key < $1.key }) {
                let arguments: [String]
                switch wait {
                case .forRedis(let own): arguments = own
                case .always(let own) where !own.contains("JOB"): arguments = own
                default: continue
                }
                let process = try FirstProcess(
                    command.split(separator: " ").map(String.init) + arguments, environment: environment,
                    inputFrom: StalledPipe(isFull: false))
                try await process.waits()
                try await process.ends(at: SIGTERM, ([command] + arguments).joined(separator: " "))
            }
        }

        @Test("A command that is not the first process ends by the signal.")
        func ordinary() async throws {
            let redis = try RedisServer()
            for signal in [SIGTERM, SIGINT] {
                let process = try redis.startCommand(["results", "--follow"])
                try await eventually("it waits for results") {
                    try redis.run("CLIENT", "LIST").text?.contains("cmd=xread") == true
                }
                process.send(signal)
                #expect(try await process.wait() == .signalled(signal))
            }
        }
    }
}
