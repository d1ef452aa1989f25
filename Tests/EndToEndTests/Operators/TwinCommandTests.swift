import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Two names in a queue look alike. Commands, pages and the API read and change only the one that they name.
    @Suite("Twin names in commands, pages and the API")
    struct TwinCommandTests {
        private typealias Object = [String: Any]

        private static let (own, twin) = (TestJob.token("0", 1), TestJob.token("1", 1))
        private static let pairs = [("sale", "sale "), ("sale\u{200F}", "sale"), ("cafe\u{301}", "caf\u{E9}")]

        /// The arguments of each command that takes a name, in place of `NAME`. Changes are confirmed.
        private static let commands: [(command: String, arguments: [String], changes: Bool)] =
            [
                ("campaign pause", ["NAME", "--yes"], true), ("campaign resume", ["NAME", "--yes"], false),
                ("campaign limit", ["NAME", "--per-second", "5", "--yes"], true),
                ("campaign guard", ["NAME", "--stop-if", "dead>1%", "--yes"], true),
                ("campaign cancel", ["NAME", "--yes"], true), ("campaign requeue", ["NAME", "--yes"], true),
                ("campaign show", ["NAME"], false), ("campaign report", ["NAME"], false),
                ("campaign send", ["NAME", "--job", "JOB", "--tokens", "TOKENS"], true),
                ("enqueue", ["--id", "NAME", "--token", own, "--alert", "x"], true),
                ("enqueue", ["--campaign", "NAME", "--token", own, "--alert", "x"], true),
                ("enqueue", ["--fair", "NAME", "--token", own, "--alert", "x"], true),
                ("enqueue", ["--app", "NAME", "--token", own, "--alert", "x"], true),
                ("enqueue", ["--label", "tenant=NAME", "--token", own, "--alert", "x"], true),
                ("jobs show", ["--id", "NAME"], false), ("dead show", ["--id", "NAME"], false),
                ("pause", ["--app", "NAME", "--force"], true), ("resume", ["--app", "NAME"], false),
            ]
            + ["id", "campaign", "app", "fair", "label"].flatMap { filter -> [(String, [String], Bool)] in
                let choice = ["--\(filter)", filter == "label" ? "tenant=NAME" : "NAME"]
                return [
                    ("jobs list", choice, false), ("jobs export", choice, false), ("dead list", choice, false),
                    ("results", choice, false), ("jobs cancel", choice + ["--yes"], true),
                    ("jobs run", choice + ["--yes"], true),
                    ("jobs move", choice + ["--to-queue", "bulk", "--yes"], true),
                    ("dead delete", choice + ["--yes"], true), ("requeue", choice + ["--yes"], true),
                ]
            }

        /// Commands that take the name of an app in the configuration, not of an app in jobs.
        private static let ofSettings: Set = ["feedback", "channels", "web-user"]

        private static func job(_ name: String, _ token: String) -> String {
            #"{"id":"\#(name)","campaign":"\#(name)","app":"\#(name)","fair":"\#(name)","labels":{"tenant":"\#(name)"},"token":"\#(token)","alert":"x"}"#
        }

        /// Returns all names of campaigns, jobs and apps in a JSON value.
        private static func names(_ value: Any) -> [String] {
            if let list = value as? [Any] { return list.flatMap(names) }
            return (value as? Object ?? [:]).flatMap { key, value in
                if ["campaign", "id", "app", "fair"].contains(key), let name = value as? String {
                    [name]
                } else if key == "labels", let labels = value as? [String: String] {
                    Array(labels.values)
                } else {
                    names(value)
                }
            }
        }

        private struct Scene {
            let redis = Result { try RedisServer() }
            let connection: RedisTestConnection
            let names: (own: String, twin: String)

            init(_ own: String, _ twin: String) throws {
                connection = try redis.get().connect()
                names = (own, twin)
            }

            /// Writes a job with each name to each place, and the counters of the name's campaign.
            func fill() throws {
                try connection.run("FLUSHALL")
                let now = Int64(Date().timeIntervalSince1970 * 1000)
                try connection.run("RPUSH", "push:{bulk}:jobs", TestJob.text(TestJob.token("2", 1)))
                for (name, token) in [(names.own, TwinCommandTests.own), (names.twin, TwinCommandTests.twin)] {
                    let job = TwinCommandTests.job(name, token)
                    try connection.run("RPUSH", "push:{default}:jobs", job)
                    let wrapped = #"{"apns_worker":1,"attempt":2,"job":\#(job)}"#
                    try connection.run("ZADD", "push:{default}:failed", "\(now + 3_600_000)", wrapped)
                    for (set, reason) in [("dead", "X"), ("cancelled", "Cancelled")] {
                        let head =
                            #"{"v":1,"reason":"\#(reason)","at":\#(now - 1000),"claim":"w:\#(token)","attempts":2,"id":"\#(name)","campaign":"\#(name)","app":"\#(name)","fair":"\#(name)","labels":{"tenant":"\#(name)"}}"#
                        try connection.run("ZADD", "push:{default}:\(set)", "\(now - 1000)", head + "\n" + job)
                    }
                    try connection.run(
                        "XADD", "push:{default}:results", "*", "results",
                        #"[{"outcome":"dead","id":"\#(name)","campaign":"\#(name)","app":"\#(name)","fair":"\#(name)","labels":{"tenant":"\#(name)"},"notifications":[{"token":"\#(token)"}]}]"#
                    )
                    try connection.run(
                        "HSET", "push:{default}:campaign:\(name)", "total", "9", "dead", "1", "cancelled", "1")
                    try connection.run("ZADD", "push:{default}:campaigns", "\(now)", name)
                }
            }

            /// Returns everything in Redis with a name or its token: values, keys and fields.
            func everything(_ name: String, _ token: String) throws -> [String] {
                var found: [String] = []
                for key in try connection.run("KEYS", "*").strings() where key != "push:{shared}:audit" {
                    let value = "\(try connection.value(of: key))"
                    let ends =
                        [":campaign:", ":apps:"].contains { key.utf8.elementsEqual("push:{default}\($0)\(name)".utf8) }
                        || key.utf8.elementsEqual("push:{shared}:apps:\(name):paused".utf8)
                    if ends { found.append("\(key) \(value)") }
                }
                for queue in ["default", "bulk"] {
                    for (words, command) in [
                        ("list", ["LRANGE", "push:{\(queue)}:jobs", "0", "-1"]),
                        ("failed", ["ZRANGE", "push:{\(queue)}:failed", "0", "-1", "WITHSCORES"]),
                        ("sorted", ["ZRANGE", "push:{\(queue)}:sorted", "0", "-1"]),
                        ("dead", ["ZRANGE", "push:{\(queue)}:dead", "0", "-1"]),
                        ("cancelled", ["ZRANGE", "push:{\(queue)}:cancelled", "0", "-1"]),
                    ] {
                        let values = try connection.run(command.map { Array($0.utf8) }).strings()
                        for (index, value) in values.enumerated() where value.contains(token) {
                            let score = words == "failed" ? values[index + 1] : ""
                            found.append("\(queue) \(words) \(value) \(score)")
                        }
                    }
                    for kind in ["campaign", "id"] {
                        let command = try connection.run("HGET", "push:{\(queue)}:job-commands", "\(kind):\(name)").text
                        if let command { found.append("\(queue) \(kind) \(command)") }
                    }
                }
                return found.sorted()
            }
        }

        @Test("The table has each command with the name of a campaign, job or app.")
        func complete() async throws {
            let commands = try await DocumentedCommand.read("apns-worker").leaves()
            let all = Set(
                commands.filter { !Self.ofSettings.contains($0.path[0]) }.flatMap { path, command in
                    command.names.intersection(["campaign", "id", "app", "fair", "label"]).map {
                        "\(path.joined(separator: " ")) \($0)"
                    }
                })
            let known = Self.commands.map { command, arguments, _ in
                let option = arguments[0] == "NAME" ? "campaign" : String(arguments[0].dropFirst(2))
                return "\(command) \(option)"
            }
            #expect(all == Set(known), "\(all.symmetricDifference(known))")
        }

        @Test("A command changes and shows only what it names.", arguments: pairs)
        func commands(own: String, twin: String) async throws {
            let scene = try Scene(own, twin)
            let redis = try scene.redis.get()
            let folder = try TemporaryFolder()
            let job = try folder.write(#"{"alert":"x"}"#, as: "job.json")
            let tokens = try folder.write(Self.own + "\n", as: "tokens")
            for (command, arguments, changes) in Self.commands {
                try scene.fill()
                let before = (own: try scene.everything(own, Self.own), twin: try scene.everything(twin, Self.twin))
                #expect(before.own.count == 5 && before.twin.count == 5, "\(before)")
                let words = arguments.map {
                    $0 == "JOB" ? job : $0 == "TOKENS" ? tokens : $0.replacingOccurrences(of: "NAME", with: own)
                }
                let isShown = !changes && !["campaign resume", "resume"].contains(command)
                let isJSON = isShown && command != "jobs export"
                let result = try await redis.apnsWorker(
                    command.split(separator: " ").map(String.init) + words + (isJSON ? ["--json"] : []))
                #expect(result.ending == .exited(0) || command.hasSuffix("resume"), "\(command) \(words) \(result)")
                #expect(try scene.everything(twin, Self.twin) == before.twin, "\(command) \(words)")
                #expect(try (scene.everything(own, Self.own) != before.own) == changes, "\(command) \(words) \(result)")
                guard isShown else { continue }
                #expect(!result.output.contains(Self.twin), "\(command) \(words)")
                guard isJSON, !command.hasSuffix("show") else { continue }
                let shown = try result.objects.flatMap(Self.names)
                #expect(
                    !shown.isEmpty && shown.allSatisfy { $0.utf8.elementsEqual(own.utf8) },
                    "\(command) \(words) \(result)")
            }
        }

        @Test("A command on a campaign with a twin names both and asks.", arguments: pairs)
        func asks(own: String, twin: String) async throws {
            let scene = try Scene(own, twin)
            let redis = try scene.redis.get()
            try scene.fill()
            let before = try scene.everything(own, Self.own)
            for words in [
                ["campaign", "pause", own], ["dead", "delete", "--campaign", own], ["requeue", "--campaign", own],
            ] {
                let result = try await redis.apnsWorker(words)
                #expect(result.ending == .exited(64), "\(words) \(result)")
                #expect(try scene.everything(own, Self.own) == before, "\(words)")
            }
            try await redis.apnsWorker(["campaign", "pause", own]).reports("looks like", "⟨U+")
            try await redis.apnsWorker(["campaign", "pause", own, "--yes"]).succeeds().reports("looks like")
            // `enqueue` reports a similar name. With --strict, a similar name is an error.
            let name = own.utf8.elementsEqual("sale".utf8) ? twin : own
            let enqueue = ["enqueue", "--campaign", name, "--token", Self.own, "--alert", "x", "--strict"]
            try await redis.apnsWorker(enqueue).fails(64, "looks like")
            try await redis.apnsWorker(enqueue.dropLast()).succeeds()
        }

        @Test("The API and the pages change and show only what they name.", arguments: pairs)
        func api(own: String, twin: String) async throws {
            let scene = try Scene(own, twin)
            let redis = try scene.redis.get()
            try scene.fill()
            let web = try await WebProcess(redis.url, ["ada": ["--role", "operator"]])
            func prefix(_ filter: String) -> String { filter == "label" ? "tenant=" : "" }
            let description = try await web.ask("ada", "/api/v1/openapi.json").body
            var actions: Set<String> = []
            for (path, methods) in description["paths"] as? Object ?? [:]
            where path.contains("/actions/") && !path.hasSuffix("-run") {
                let members = ["post", "requestBody", "content", "application/json", "schema", "properties"]
                let properties = members.reduce(methods as Any?) { ($0 as? Object)?[$1] }
                for name in try #require(properties as? Object).keys
                where ["campaign", "id", "app", "fair", "label"].contains(name) {
                    actions.insert("\(path.split(separator: "/").last ?? "") \(name)")
                }
            }
            var bodies: [(action: String, name: String, body: Object)] = [
                ("pause-campaign", "campaign", [:]), ("resume-campaign", "campaign", [:]),
                ("limit-campaign", "campaign", ["per_second": 5]),
                ("guard-campaign", "campaign", ["stop_if": "dead>1%"]),
                ("cancel-campaign", "campaign", ["yes": true]), ("requeue-campaign", "campaign", ["yes": true]),
                ("pause-app", "app", ["force": true]), ("resume-app", "app", ["force": true]),
                ("uncancel-jobs", "id", [:]),
            ]
            for name in ["campaign", "id", "app", "fair", "label"] {
                for kind in ["cancel", "discard", "run"] {
                    bodies.append(("change-jobs", name, ["action": kind, "yes": true]))
                }
                bodies.append(
                    ("change-jobs", name, ["action": "move", "to_queue": "bulk", "queue": "default", "yes": true]))
                for kind in ["requeue", "delete"] {
                    bodies.append(("change-dead-letters", name, ["action": kind, "yes": true]))
                }
            }
            #expect(actions == Set(bodies.map { "\($0.action) \($0.name)" }), "\(actions)")
            for (action, name, body) in bodies {
                try scene.fill()
                let before = (own: try scene.everything(own, Self.own), twin: try scene.everything(twin, Self.twin))
                let answer = try await web.ask(
                    "ada", "/api/v1/actions/\(action)", json: body.merging([name: prefix(name) + own]) { $1 })
                #expect(
                    answer.status == 200 || ["resume-campaign", "resume-app", "uncancel-jobs"].contains(action),
                    "\(action) \(answer)")
                if answer.status == 200, !action.hasPrefix("resume"), action != "uncancel-jobs" {
                    try await eventually("\(action) \(body) has an effect") {
                        try scene.everything(own, Self.own) != before.own
                    }
                }
                // A run that continues would also change the next action's jobs.
                if let run = (answer.body["run"] as? Object)?["id"] as? String {
                    try await eventually("\(action) \(body) ends") {
                        let state = try await web.ask("ada", "/api/v1/runs/\(run)").body["state"] as? String
                        return ["done", "stopped", "failed"].contains(state)
                    }
                }
                #expect(try scene.everything(twin, Self.twin) == before.twin, "\(action) \(body)")
            }
            try scene.fill()
            let encoded = own.utf8.map { String(format: "%%%02X", $0) }.joined()
            for list in ["jobs", "dead-letters", "results"] {
                for name in ["campaign", "id", "app", "fair", "label"] {
                    let answer = try await web.ask("ada", "/api/v1/\(list)?\(name)=\(prefix(name))\(encoded)")
                    let shown = Self.names(answer.body)
                    #expect(answer.status == 200 && !shown.isEmpty, "\(list) \(name) \(answer)")
                    #expect(shown.allSatisfy { $0.utf8.elementsEqual(own.utf8) }, "\(list) \(name) \(shown)")
                }
            }
            // The forms of a page must send back the right name.
            for path in ["/campaigns/\(encoded)", "/jobs?campaign=\(encoded)", "/dead?campaign=\(encoded)"] {
                let page = try await web.ask("ada", path)
                #expect(page.status == 200, "\(path)")
                let values = page.text.matches(of: /name="campaign"[^>]*value="([^"]*)"/).map { String($0.1) }
                #expect(!values.isEmpty || path.hasPrefix("/dead"), "\(path)")
                #expect(values.allSatisfy { $0.utf8.elementsEqual(own.utf8) }, "\(path) \(values)")
            }
        }
    }
}
