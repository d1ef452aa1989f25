import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// A request that chooses nothing must not change everything. The wrong requests are made from the API's own description.
    @Suite("Nothing chosen")
    struct NothingChosenTests {
        private typealias Object = [String: Any]

        /// A dashboard, its Redis, and an operator's token.
        private struct Scene {
            let redis: RedisServer
            let connection: RedisTestConnection
            let web: WebProcess

            init() async throws {
                redis = try RedisServer()
                connection = try redis.connect()
                web = try await WebProcess(redis.url, ["ada": ["--role", "operator"]])
            }

            func post(_ action: String, _ body: Object) async throws -> WebProcess.Answer {
                try await web.ask("ada", "/api/v1/actions/\(action)", json: body)
            }

            func get(_ path: String) async throws -> WebProcess.Answer {
                try await web.ask("ada", "/api/v1\(path)")
            }

            /// Everything in Redis except the audit log, which also records refused changes.
            func everything() throws -> [String: RedisValue] {
                var values: [String: RedisValue] = [:]
                for key in try connection.run("KEYS", "*").strings() where key != "push:{shared}:audit" {
                    values[key] = try connection.value(of: key)
                }
                return values
            }

            /// Writes one of each thing that actions can change.
            func fill() async throws {
                try connection.run("FLUSHALL")
                let now = Int64(Date().timeIntervalSince1970 * 1000)
                let job = { (id: String) in
                    #"{"id":"\#(id)","token":"\#(NothingChosenTests.device)","app":"shop","topic":"com.example","campaign":"sale","alert":"hello","enqueued_at":\#(now / 1000 - 60)}"#
                }
                for queue in ["q", "r"] {
                    for id in ["a1", "a2", "a3"] { try connection.run("RPUSH", "push:{\(queue)}:jobs", job(id)) }
                    let later = #"{"apns_worker":1,"attempt":2,"error":"X","job":\#(job("f1"))}"#
                    try connection.run("ZADD", "push:{\(queue)}:failed", "\(now + 3_600_000)", later)
                    for id in ["d1", "d2"] {
                        let head =
                            #"{"v":1,"reason":"X","at":\#(now - 1000),"claim":"w:\#(id)","attempts":2,"id":"\#(id)"}"#
                        try connection.run("ZADD", "push:{\(queue)}:dead", "\(now - 1000)", head + "\n" + job(id))
                    }
                    try connection.run("ZADD", "push:{\(queue)}:workers", "\(now + 3_600_000)", "host.1.a.0")
                    let report =
                        #"{"process":"host.1.a","host":"host","pid":1,"lane":0,"lanes":1,"started_at":\#(now),"updated_at":\#(now),"state":"running"}"#
                    try connection.run("HSET", "push:{\(queue)}:worker-info", "host.1.a.0", report)
                }
                for (action, body) in [
                    ("pause-queue", ["queue": "q"]), ("pause-app", ["app": "shop", "force": true]),
                    ("pause-campaign", ["campaign": "held", "force": true]),
                    ("cancel-campaign", ["campaign": "gone", "force": true, "yes": true]),
                    ("change-jobs", ["action": "cancel", "id": ["x1"], "yes": true]),
                    ("add-invalid-tokens", ["tokens": NothingChosenTests.device]),
                ] as [(String, Object)] {
                    let answer = try await post(action, body)
                    #expect(answer.status == 200, "\(action) \(answer)")
                }
                try await eventually("the commands are there") {
                    for queue in ["q", "r"] {
                        let number = try connection.run("HLEN", "push:{\(queue)}:job-commands").number
                        if number != 4 { return false }
                    }
                    return true
                }
            }
        }

        private static let device = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
        private static let other = "11fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"

        /// A good request for each action.
        private static var good: [(action: String, body: Object)] {
            let edited = #"{"token":"\#(other)","topic":"com.example","alert":"x"}"#
            return [
                ("pause-queue", ["queue": "q", "reason": "x", "now": true, "force": true]),
                ("resume-queue", ["queue": "q"]), ("pause-app", ["app": "shop", "reason": "x", "force": true]),
                ("resume-app", ["app": "shop"]), ("quiet-worker", ["worker": ["host.1.a"]]),
                ("quiet-worker", ["all": true]), ("work-worker", ["all": "yes"]),
                ("stop-worker", ["worker": "host.1.a", "yes": true]), ("stop-worker", ["all": true, "yes": true]),
                ("pause-campaign", ["campaign": "sale", "reason": "x"]), ("resume-campaign", ["campaign": "held"]),
                ("limit-campaign", ["campaign": "sale", "per_second": 5, "reason": "x"]),
                ("guard-campaign", ["campaign": "sale", "stop_if": "dead>1%", "min": 10, "reason": "x"]),
                ("cancel-campaign", ["campaign": "sale", "discard": true, "reason": "x", "yes": true]),
                ("requeue-campaign", ["campaign": "gone", "rate": 100, "yes": "TRUE"]),
                ("change-jobs", ["action": "discard", "all": true, "yes": true]),
                ("change-jobs", ["action": "cancel", "id": "a1", "queue": ["q"], "limit": 1, "rate": 10, "yes": 1]),
                ("change-jobs", ["action": "move", "campaign": ["sale"], "queue": "q", "to_queue": "r", "yes": "on"]),
                ("change-jobs", ["action": "run", "state": "retrying", "yes": true]),
                ("uncancel-jobs", ["id": ["x1"]]),
                ("change-dead-letters", ["action": "delete", "all": true, "yes": true]),
                (
                    "change-dead-letters",
                    [
                        "action": "requeue", "reason": "X", "queue": ["q"], "limit": 1, "rate": 10, "first": true,
                        "keep_attempts": "no", "yes": true,
                    ]
                ),
                ("edit-and-requeue", ["queue": "q", "key": "of a dead letter", "job": edited, "force": true]),
                ("add-invalid-tokens", ["tokens": other, "reason": "X", "topic": "com.example", "environment": "a"]),
                ("remove-invalid-tokens", ["all": true, "yes": true]),
                ("remove-invalid-tokens", ["token": device, "yes": true]),
                ("forget-devices", ["tokens": device, "wait": 0, "yes": true]),
            ]
        }

        /// A good value of each filter.
        private static var filters: [(action: String, body: Object, filters: Object)] {
            [
                (
                    "change-jobs", ["action": "discard", "yes": true],
                    [
                        "state": "waiting", "key": "0123456789", "id": ["a1"], "token": device, "app": "shop",
                        "topic": "com.example", "campaign": "sale", "reason": "X", "match": "hello", "since": "7d",
                        "until": "1s", "due_before": "7d",
                    ]
                ),
                (
                    "change-dead-letters", ["action": "delete", "yes": true],
                    [
                        "key": "0123456789", "id": "d1", "token": [device], "app": "shop", "campaign": "sale",
                        "reason": "X*", "error": "X", "since": "7d", "until": "1s",
                    ]
                ),
                (
                    "remove-invalid-tokens", ["yes": true],
                    [
                        "topic": "com.example", "reason": "Imported", "source": "import", "environment": "production",
                        "since": "7d", "until": "0s", "token": device,
                    ]
                ),
            ]
        }

        /// Returns bodies with wrong forms of a field: renamed, empty or mistyped.
        private static func wrong(_ body: Object, _ name: String, kind: String) -> [(words: String, body: Object)] {
            func with(_ value: Any?, as other: String? = nil) -> Object {
                var changed = body
                changed[name] = nil
                if let value { changed[other ?? name] = value }
                return changed
            }
            let value = body[name] ?? ""
            var found: [(String, Object)] = [
                ("renamed", with(value, as: String(name.dropLast()))),
                ("in capitals", with(value, as: name.uppercased())),
                ("with a space", with(value, as: name + " ")),
                ("empty", with("")), ("blank", with("  ")), ("an empty list", with([String]())),
                ("a list of an empty text", with([""])), ("null", with(NSNull())), ("an object", with(["a": "b"])),
                ("a list of lists", with([["a"]])),
            ]
            switch kind {
            case "boolean":
                for text in ["maybe", "nul", "2", "tru"] { found.append((text, with(text))) }
            case "integer":
                for text in ["x", "-1", "1.5", "99999999999999999999"] { found.append((text, with(text))) }
                found.append(("true", with(true)))
            case "array": found.append(("true", with(true)))
            default:
                found.append(("true", with(true)))
                found.append(("two values", with(["a", "b"])))
            }
            return found
        }

        private static func kinds(_ description: Object, _ action: String) throws -> [String: String] {
            func member(_ object: Any?, _ names: String...) throws -> Any {
                try names.reduce(try #require(object)) { object, name in try #require((object as? Object)?[name]) }
            }
            let properties = try member(
                description, "paths", "/api/v1/actions/\(action)", "post", "requestBody", "content",
                "application/json", "schema", "properties")
            return try #require(properties as? [String: Object]).mapValues { $0["type"] as? String ?? "" }
        }

        @Test("A renamed, empty or mistyped field of any action changes nothing, and a good request does")
        func actions() async throws {
            let scene = try await Scene()
            try await scene.fill()
            let description = try await scene.get("/openapi.json").body
            let requests = Self.good
            let described = (description["paths"] as? Object)?.keys.filter { $0.contains("/actions/") } ?? []
            let known = Set(described.compactMap { $0.split(separator: "/").last.map(String.init) })
            #expect(known.subtracting(["confirm-run", "stop-run"]) == Set(requests.map(\.action)))
            for (action, request) in requests {
                try await scene.fill()
                var body = request
                if body["key"] != nil {
                    let letters = try await scene.get("/dead-letters?queue=q").body["dead_letters"] as? [Object]
                    body["key"] = try #require(letters?.first?["key"] as? String)
                }
                let before = try scene.everything()
                let kinds = try Self.kinds(description, action)
                for name in body.keys.sorted() {
                    for (words, wrong) in Self.wrong(body, name, kind: try #require(kinds[name])) {
                        let answer = try await scene.post(action, wrong)
                        #expect((400..<500).contains(answer.status), "\(action) \(name) \(words): \(answer)")
                    }
                }
                // Fields of other actions are refused, and so is a request that chooses nothing.
                for name in ["campaigns", "filter_campaign", "unknown"] where body.count > 1 {
                    let answer = try await scene.post(action, body.merging([name: "x"]) { $1 })
                    #expect(answer.status == 400, "\(action) \(name): \(answer)")
                }
                #expect((400..<500).contains(try await scene.post(action, ["yes": true]).status), "\(action)")
                // Without a confirmation, the request is valid and changes nothing.
                for value in ["False", "NO", "off", "0"] where body["yes"] != nil {
                    let answer = try await scene.post(action, body.merging(["yes": value]) { $1 })
                    #expect(answer.status == 200, "\(action) \(value): \(answer)")
                }
                #expect(try scene.everything() == before, "\(action) \(body)")
                #expect(try await scene.post(action, body).status == 200)
                try await eventually("\(action) has an effect") { try scene.everything() != before }
            }
        }

        @Test("A renamed, empty or mistyped filter of any action chooses nothing, and so do none and one beside all")
        func filters() async throws {
            let scene = try await Scene()
            try await scene.fill()
            let description = try await scene.get("/openapi.json").body
            let before = try scene.everything()
            for (action, rest, filters) in Self.filters {
                let kinds = try Self.kinds(description, action)
                for (name, value) in filters.sorted(by: { $0.key < $1.key }) {
                    let body = rest.merging([name: value]) { $1 }
                    for (words, wrong) in Self.wrong(body, name, kind: try #require(kinds[name])) {
                        let answer = try await scene.post(action, wrong)
                        #expect((400..<500).contains(answer.status), "\(action) \(name) \(words): \(answer)")
                    }
                    let both = try await scene.post(action, body.merging(["all": true]) { $1 })
                    #expect(both.status == 400, "\(action) \(name) and all: \(both)")
                    let none = try await scene.post(action, body.filter { $0.key != name })
                    #expect(none.status == 400, "\(action) without \(name): \(none)")
                }
                let no = try await scene.post(action, rest.merging(["all": false]) { $1 })
                #expect(no.status == 400, "\(action): \(no)")
            }
            let states = try await scene.post("change-jobs", ["action": "discard", "state": "xwaiting", "yes": true])
            #expect(states.status == 400 && states.error.contains("did you mean waiting?"), "\(states)")
            #expect(try scene.everything() == before)
        }

        @Test("An action that names no queue also acts on a queue that has just appeared.")
        func newQueue() async throws {
            let scene = try await Scene()
            try await scene.fill()
            // The dashboard finds the queues, and keeps the result for ten seconds.
            #expect(try await scene.get("/jobs").status == 200)
            for id in ["new", "innocent"] {
                try scene.connection.run(
                    "RPUSH", "push:{late}:jobs", #"{"id":"\#(id)","token":"\#(Self.device)","alert":"x"}"#)
            }
            #expect(try await scene.post("change-jobs", ["action": "cancel", "id": "new", "yes": true]).status == 200)
            try await eventually("the job is cancelled") {
                try scene.connection.run("ZCARD", "push:{late}:cancelled").number == 1
            }
            #expect(try scene.connection.run("LRANGE", "push:{late}:jobs", "0", "-1").strings().count == 1)
            #expect(try scene.connection.run("LLEN", "push:{q}:jobs").number == 3)
        }

        @Test("An unknown, empty or mistyped parameter of a GET is refused, and so is a cursor that no answer had")
        func queries() async throws {
            let scene = try await Scene()
            try await scene.fill()
            let description = try await scene.get("/openapi.json").body
            let paths = try #require(description["paths"] as? [String: Object])
            var number = 0
            for (path, methods) in paths.sorted(by: { $0.key < $1.key }) {
                guard let parameters = (methods["get"] as? Object)?["parameters"] as? [Object] else { continue }
                let place = path.replacing("/api/v1", with: "").replacing(/\{[a-z]+\}/, with: "x")
                let unknown = try await scene.get(place + "?campaigns=sale")
                #expect(unknown.status == 400, "\(path): \(unknown)")
                for parameter in parameters where parameter["in"] as? String == "query" {
                    let name = try #require(parameter["name"] as? String)
                    number += 1
                    for query in ["\(name)=", "\(name)", "\(name.dropLast())=x", "\(name)=%20"] {
                        let answer = try await scene.get(place + "?" + query)
                        #expect(answer.status == 400, "\(path)?\(query): \(answer)")
                    }
                    if name == "after" {
                        for cursor in ["zzz", "q", "none%7C1", "q%7Czzz"] {
                            let answer = try await scene.get(place + "?after=" + cursor)
                            #expect(answer.status == 400, "\(path) \(cursor): \(answer)")
                        }
                    }
                }
            }
            #expect(number > 40)
            // Valid requests are still answered.
            for path in ["/jobs?state=waiting&queue=q&queue=r", "/jobs", "/results?newest_first=no", "/status"] {
                #expect(try await scene.get(path).status == 200, "\(path)")
            }
        }
    }
}
