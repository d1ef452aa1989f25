import Foundation
import NIOCore
import PushJob
import PushQueue
import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import Operations

@Suite("Forgetting devices")
struct ForgetDevicesTests {
    private var scene: OperatorScene { SceneScope.scene }

    private static let token = OperatorScene.token
    private static let other = "91c013adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
    private static let later = "4000000000000"

    /// The keys by their names in the documentation. The value is true if the key can name a device: `fill` must then fill it. The test
    /// takes all keys from the documentation, so each new key needs a decision here.
    private static let keys: [String: Bool] = [
        "push:{default}:jobs": true, "push:{default}:inbox": true, "push:{default}:retry": true,
        "push:{default}:failed": true, "push:{default}:sorted": true,
        "push:{default}:claimed:<lane>": true, "push:{default}:dead": true, "push:{default}:cancelled": true,
        "push:{default}:results": true, "push:{default}:results-parked:<group>": true,
        // A producer may put a token into an ID.
        "push:{default}:request:<digest>": false, "push:{default}:unique:<id>": true,
        "push:{default}:newest:<key>": true, "push:{default}:announced:<id>": true,
        "push:{default}:job-commands": true,
        // Names, times and numbers. A campaign and a `fair` are names of many jobs, so they name no device.
        "push:{default}:shares": false, "push:{default}:workers": false, "push:{default}:dead-bytes": false,
        "push:{default}:cancelled-bytes": false,
        "push:{default}:gauges": false, "push:{default}:results-marks": false,
        "push:{default}:results-positions": false, "push:{default}:largest": false,
        "push:{default}:paused": false,
        "push:{default}:worker-info": false, "push:{default}:configurations": false, "push:{default}:source": false,
        "push:{default}:campaigns": false, "push:{default}:deliveries": false, "push:{default}:next:<lane>": false,
        "push:{default}:order:<process>": false,
        "push:{default}:campaign:<name>": false, "push:{default}:stats:<day>": false,
        // Digests of a whole list.
        "push:{default}:campaign-list:<name>": false,
        "push:{default}:minute:<minute>": false,
        "push:{shared}:invalid-tokens": true, "push:{shared}:registrations": true,
        "push:{shared}:throttled-tokens": true, "push:{shared}:invalid-tokens:changes": true,
        // The name has a part of a hash of the token. The details of a token are removed with the token.
        "push:{shared}:invalid-tokens:details:<part>": false,
        "push:{shared}:invalid-tokens:facts": false, "push:{shared}:invalid-tokens:division": false,
        // The audit log masks tokens, and has a hash of forgotten tokens.
        "push:{shared}:audit": false,
        "push:{shared}:apps:<app>:paused": false, "push:{shared}:apps:<app>:resumed": false,
        "push:{shared}:apps:<app>:rate": false,
        "push:{shared}:campaigns:<name>:rate": false, "push:{shared}:fair:<key>:rate": false,
        "push:{shared}:web-session:<digest>": false,
        "push:{shared}:provider-token:<team>:<key>": false,
    ]

    private static func change(_ tokens: String..., wait: Int = 0) throws -> ForgetDevices {
        try ForgetDevices(Fields([("tokens", tokens.joined(separator: "\n")), ("wait", "\(wait)")])) {
            TokenText.normalized($0)
        }
    }

    /// Returns the keys of a server that have a token in their name or value, in hex of either case or base64.
    private static func traces(_ scene: OperatorScene, of token: String = token) throws -> Set<String> {
        let finder = TokenFinder([token])
        var found: Set<String> = []
        for key in try scene.texts("KEYS", "*") {
            let value = try scene.connection.value(of: key)
            if finder.isIn(ByteBuffer(string: key)) || finder.isIn(ByteBuffer(string: "\(value)")) { found.insert(key) }
        }
        return found
    }

    private static func result(_ token: String) -> NotificationResult {
        var result = NotificationResult(.dead, reason: "BadTopic", attempt: 1)
        result.token = ByteBuffer(string: token)
        return result
    }

    /// Fills each key that can name a device. Workers' keys are written by the workers' own scripts.
    private static func fill(_ scene: OperatorScene) async throws {
        let (token, other) = (token, other)
        try await withQueue(on: scene.redis) { queue in
            let keys = try QueueKeys()
            let worker = TestWorker("w", client: queue.client, keys: keys, limits: QueueLimits())
            try scene.push(OperatorScene.job("result"), OperatorScene.job("letter"))
            try await worker.claim(2)
            try await worker.settle { settlement in
                settlement.end(1, .dead, results: .of(result(token), result(other), result(token.uppercased())))
                settlement.bury(2, reason: "BadTopic", attempts: 1, members: ByteBuffer(), original: 0..<100)
            }
        }
        let both = #"{"id":"both","tokens":["\#(other)","\#(token)"],"alert":"x"}"#
        for job in [OperatorScene.job("waits"), both, #"{"token":"\#(other)","alert":"x"}"#] {
            try scene.run("RPUSH", "push:{default}:inbox", job)
            let wrapped = #"{"apns_worker":1,"attempt":2,"job":\#(job)}"#
            for set in ["retry", "failed"] { try scene.run("ZADD", "push:{default}:\(set)", later, wrapped) }
            try scene.run("ZADD", "push:{default}:sorted", "5", SortedJobsTests.member(job.utf8.count, job))
            try scene.run("ZADD", "push:{default}:sorted", "7", SortedJobsTests.member(1000 + job.utf8.count, wrapped))
            try scene.push(job, job.replacing(token, with: token.uppercased()))
            try scene.bury("letter-\(job.utf8.count)", job: job)
        }
        try scene.push(#"{"class":"P","args":["{\"tokens\":[\"\#(token)\",\"\#(other)\"],\"alert\":\"x\"}"]}"#)
        try scene.push(TokenText.forms(ofHex: token)[1], "{broken \(token)")
        let cancel = try JobsChange(
            .cancel, Fields([("id", "waits"), ("state", "retrying"), ("state", "scheduled")]), now: 0)
        _ = try await scene.desk().perform(cancel)
        let commands = try JobsChange(.cancel, Fields([("id", "welcome-\(token)")]), now: 0)
        _ = try await scene.desk().perform(commands)
        try scene.run("SET", "push:{default}:unique:welcome-\(token)", "w:1.x")
        try scene.run("SET", "push:{default}:unique:welcome", "w:1.x")
        try scene.run("SET", "push:{default}:newest:position-\(token)", "a")
        try scene.run("SET", "push:{default}:newest:position", "update-\(token)")
        try scene.run("SET", "push:{default}:newest:score", "b")
        try scene.run("SET", "push:{default}:announced:update-\(token)", "1")
        for name in [token, other] {
            try scene.run("XADD", "push:{default}:results-parked:billing", "*", "entry", "1-0/0", "token", name)
            try scene.run("HSET", "push:{shared}:registrations", name, "1795279247000")
            try scene.run("ZADD", "push:{shared}:throttled-tokens", later, name)
            try scene.run("XADD", "push:{shared}:invalid-tokens:changes", "*", "throttled", name)
        }
        let invalid = [token, other].map {
            InvalidToken(
                token: ByteBuffer(string: $0), at: 1_795_279_247_001, reason: "Unregistered",
                topic: ByteBuffer(string: "com.example.app"),
                source: .apns)
        }
        _ = try await scene.tokens.mark(invalid)
    }

    @Test("The notifications of removed jobs are taken out of their campaign's total, so that it can end", .scene)
    func campaignTotal() async throws {
        let campaign = #""campaign":"sale","alert":"x"}"#
        let (both, own) = (
            #"{"tokens":["\#(Self.other)","\#(Self.token)"],"# + campaign, #"{"token":"\#(Self.token)","# + campaign
        )
        let innocent = #"{"token":"\#(Self.other)","# + campaign
        try scene.push(both, own, innocent, own, #"{"token":"\#(Self.token)","alert":"x"}"#)
        let later = "\(Moment.now + 3_600_000)"
        let wrapped = #"{"apns_worker":1,"attempt":2,"tokens":["\#(Self.token)"],"job":\#(both)}"#
        try scene.run("ZADD", "push:{default}:failed", later, wrapped)
        try scene.run("ZADD", "push:{default}:sorted", "5", SortedJobsTests.member(own.utf8.count, own))
        // The notification of a dead letter has ended, so it stays in the total.
        try scene.bury("letter", job: own)
        try scene.run(
            "HSET", "push:{default}:campaign:sale", "total", "10", "delivered", "2", "dead", "1", "open", "1")
        try scene.run("ZADD", "push:{default}:campaigns", "5", "sale")
        func total() throws -> String? { try scene.run("HGET", "push:{default}:campaign:sale", "total").text }
        _ = try await scene.desk().perform(Self.change(Self.token))
        #expect(try total() == "5")
        // The same change, made again, removes nothing.
        _ = try await scene.desk().perform(Self.change(Self.token))
        #expect(
            try total() == "5" && scene.run("HEXISTS", "push:{default}:campaign:sale", "finished_at").number == 0)
        // Without the last notifications, the campaign has ended.
        try scene.run("HDEL", "push:{default}:campaign:sale", "open")
        _ = try await scene.desk().perform(Self.change(Self.other))
        #expect(
            try total() == "3" && scene.run("HEXISTS", "push:{default}:campaign:sale", "finished_at").number == 1)
        let results = "\(try scene.run("XRANGE", "push:{default}:results", "-", "+"))"
        #expect(results.ranges(of: "campaign_finished").count == 1, "\(results)")
    }

    @Test("each key of the documentation is known to have tokens or not, and those that have them are filled here")
    func everyKey() async throws {
        let page = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "../../docs/redis.md")
        let text = try String(contentsOf: page, encoding: .utf8)
        let documented = Set(text.matches(of: /\n\| `(push:[^`]*)` \|/).map { String($0.1) })
        #expect(documented == Set(Self.keys.keys), "\(documented.symmetricDifference(Self.keys.keys).sorted())")
        try await OperatorScene.with { scene in
            try await Self.fill(scene)
            let filled = try Self.traces(scene)
            for (name, hasTokens) in Self.keys where name != "push:{default}:claimed:<lane>" {
                let prefix = name.prefix { $0 != "<" }
                let isFilled = filled.contains { $0 == name || name.contains("<") && $0.hasPrefix(prefix) }
                #expect(isFilled == hasTokens, "\(name)")
            }
        }
    }

    @Test("no byte of a forgotten token is left in Redis, and everything about others is", .scene)
    func forget() async throws {
        try await Self.fill(scene)
        let desk = try scene.desk()
        let change = try Self.change(Self.token)
        let plan = try await desk.plan(change)
        let groups = plan.groups
        #expect(groups["job"] == 15 && groups["dead_letter"] == 3 && groups["cancelled_job"] == 2, "\(groups)")
        #expect(groups["result"] == 4 && groups["parked_result"] == 1, "\(groups)")
        #expect(groups["reserved_id"] == 4 && groups["job_command"] == 1, "\(groups)")
        for kind in ["invalid_token", "registration", "throttle"] { #expect(groups[kind] == 1, "\(kind)") }
        // There is one announcement of an invalid token, and one of a throttled token.
        #expect(groups["announcement"] == 2, "\(groups)")
        #expect(plan.question?.contains("This cannot be undone.") == true)
        let result = try await desk.apply(change, plan)
        #expect(result.error == nil && result.parts.first?.groups == groups, "\(result)")
        let left = try Self.traces(scene)
        #expect(left.isEmpty, "\(left)")

        // The jobs of the other device are left, each with its own token only.
        let rest = #"{"id":"both","tokens":["\#(Self.other)"],"alert":"x"}"#
        let own = #"{"token":"\#(Self.other)","alert":"x"}"#
        let sidekiq = #"{"class":"P","args":["{\"tokens\":[\"\#(Self.other)\"],\"alert\":\"x\"}"]}"#
        #expect(
            try scene.texts("LRANGE", "push:{default}:jobs", "0", "-1").sorted()
                == [rest, rest, own, own, sidekiq].sorted())
        #expect(try scene.texts("LRANGE", "push:{default}:inbox", "0", "-1").sorted() == [rest, own].sorted())
        for set in ["retry", "failed"] {
            #expect(try scene.run("ZCARD", "push:{default}:\(set)").number == 2)
            #expect(
                try scene.texts("ZRANGE", "push:{default}:\(set)", "0", "-1", "WITHSCORES").contains(Self.later))
        }
        let sorted = try scene.texts("ZRANGE", "push:{default}:sorted", "0", "-1", "WITHSCORES")
        #expect(
            stride(from: 0, to: sorted.count, by: 2).map { SortedMember(ByteBuffer(string: sorted[$0])).job.text }
                == [own, rest, own, rest].enumerated().map {
                    $0.offset < 2 ? $0.element : #"{"apns_worker":1,"attempt":2,"job":\#($0.element)}"#
                })
        #expect(sorted.enumerated().filter { $0.offset % 2 == 1 }.map(\.element) == ["5", "5", "7", "7"])
        #expect(try scene.dead().count == 2)
        let letters = try scene.texts("ZRANGE", "push:{default}:dead", "0", "-1")
        #expect(letters.allSatisfy { $0.contains(Self.other) })
        let page = try await ResultPage.read(
            from: "-", to: "+", count: 10, scene.fleet.client(for: "push:{default}:results"), QueueKeys())
        #expect(page.results.compactMap { $0["token"] } == [Self.other])
        #expect(try scene.run("EXISTS", "push:{default}:unique:welcome").number == 1)
        #expect(try scene.run("EXISTS", "push:{default}:newest:score").number == 1)
        #expect(try scene.run("XLEN", "push:{default}:results-parked:billing").number == 1)
        for key in ["registrations", "throttled-tokens", "invalid-tokens", "invalid-tokens:changes"] {
            #expect(try Self.traces(scene, of: Self.other).contains("push:{shared}:\(key)"), "\(key)")
        }

        // Now there is nothing to do, and the audit log has a hash.
        #expect(try await desk.plan(change).isEmpty)
        let entry = try #require(
            try await AuditLog.latest(1, scene.fleet.client(for: "push:{shared}:audit"), scene.fleet.sharedKeys)
                .first)
        #expect(entry.action == .forgetDevices && entry.count == result.count)
        // printf %s TOKEN | sha256sum
        #expect(entry.subject == "1 device, sha256 \(Self.hash)", "\(entry.subject)")
    }

    private static let hash = "09ff825c4a48d460b41c8bc6cded15e1"

    @Test("results that are written again keep their time", .scene)
    func time() async throws {
        let keys = try QueueKeys()
        let client = try await scene.fleet.client(for: keys.results)
        try scene.run(
            "XADD", keys.results, "1795278873351-0", "results",
            #"[{"outcome":"dead","notifications":[{"token":"\#(Self.token)"},{"token":"\#(Self.other)"}]}]"#)
        _ = try await scene.desk().perform(Self.change(Self.token))
        let page = try await ResultPage.read(from: "-", to: "+", count: 10, client, keys)
        #expect(page.results.map(\.time) == [1_795_278_873_351])
        #expect(page.results.first?.entry != "1795278873351-0")
    }

    @Test("a job that a worker has claimed is waited for, and reported if it has not ended", .scene)
    func claimed() async throws {
        try await withQueue(on: scene.redis) { queue in
            let worker = TestWorker("w", client: queue.client, keys: try QueueKeys(), limits: QueueLimits())
            try scene.push(OperatorScene.job("flies"))
            try await worker.claim(1)
            let first = try await scene.desk().perform(Self.change(Self.token))
            #expect(first.error?.contains("1 job about a device is still claimed") == true, "\(first)")
            #expect(try await scene.audit().first?.hasPrefix("forget_devices failed") == true)
            // The worker puts the job back while the change waits.
            let (desk, change) = (try scene.desk(), try Self.change(Self.token, wait: 60))
            async let second = desk.perform(change)
            _ = try await worker.release()
            let result = try await second
            #expect(result.error == nil && result.parts.first?.groups == ["job": 1], "\(result)")
            #expect(try Self.traces(scene).isEmpty)
        }
    }

    @Test("many jobs are forgotten, and no other one", .scene)
    func many() async throws {
        var jobs: [String] = []
        for number in 0..<3000 {
            jobs.append(
                number % 3 == 0 ? OperatorScene.job("\(number)") : #"{"id":"\#(number)","token":"\#(Self.other)"}"#)
        }
        try scene.connection.run((["RPUSH", "push:{default}:jobs"] + jobs).map { Array($0.utf8) })
        let result = try await scene.desk().perform(Self.change(Self.token))
        #expect(result.count == 1000 && result.error == nil)
        let left = try scene.texts("LRANGE", "push:{default}:jobs", "0", "-1")
        #expect(left.sorted() == jobs.filter { !$0.contains(Self.token) }.sorted())
    }

    @Test("a token of a divided set is forgotten", .scene)
    func shards() async throws {
        try await Self.fill(scene)
        // The worker of `fill` has ended.
        try scene.run("DEL", "push:{default}:workers")
        _ = try await scene.desk().perform(ReshardInvalidTokens(to: 4, pause: .zero))
        _ = try await scene.tokens.division()
        #expect(try Self.traces(scene).contains { $0.hasPrefix("push:{shared.4.") })
        let result = try await scene.desk().perform(Self.change(Self.token, Self.other))
        #expect(result.error == nil, "\(result)")
        #expect(try Self.traces(scene).isEmpty && Self.traces(scene, of: Self.other).isEmpty)
    }

    @Test("no device is forgotten while the number of shards of the invalid tokens is changed", .scene)
    func resharding() async throws {
        try await Self.fill(scene)
        let traces = try Self.traces(scene)
        try scene.run("SET", "push:{shared}:invalid-tokens:division", "1 4 1795279247000")
        _ = try await scene.tokens.division()
        await #expect(throws: QueueFailure.self) { _ = try await scene.desk().perform(Self.change(Self.token)) }
        #expect(try Self.traces(scene) == traces)
    }

    @Test("the scripts' second run finds nothing, and a full Redis does not keep a device", .scene)
    func again() async throws {
        try await Self.fill(scene)
        try scene.run("CONFIG", "SET", "maxmemory-policy", "noeviction")
        try scene.run("CONFIG", "SET", "maxmemory", "1")
        let result = try await scene.desk().perform(Self.change(Self.token))
        #expect(result.error == nil, "\(result)")
        try scene.run("CONFIG", "SET", "maxmemory", "0")
        #expect(try Self.traces(scene).isEmpty)
        let keys = try QueueKeys()
        let client = try await scene.fleet.client(for: keys.jobs)
        try scene.push(OperatorScene.job("a"))
        let values = [
            (place: "0", value: ByteBuffer(string: OperatorScene.job("a")), rest: ByteBuffer(), results: 0)
        ]
        for expected in [true, false] {
            let replaced = try await QueueScript.replaceValues(
                "list", keys.jobs, end: .right, most: 1, values, client)
            #expect(replaced == [expected])
        }
        #expect(try scene.run("LLEN", keys.jobs).number == 5)
    }

    @Test("an export has everything about the device, and nothing about others", .scene)
    func export() async throws {
        try await Self.fill(scene)
        var export = DeviceExport(Self.token)
        try await export.read(scene.fleet)
        try await export.read(scene.fleet.jobs(of: QueueKeys()))
        let json = export.json(isDetailed: true)
        #expect(!json.lowercased().contains(Self.other))
        let object = try #require(try JSONSerialization.jsonObject(with: Data(json.utf8)) as? [String: Any])
        func count(_ name: String) -> Int? { (object[name] as? [Any])?.count }
        #expect(count("jobs") == 15 && count("dead_letters") == 5 && count("results") == 4)
        #expect(count("parked_results") == 1 && count("ids") == 5)
        #expect(object["registered_at"] as? Int == 1_795_279_247_000 && object["invalid"] != nil)
        #expect(object["throttled_until"] as? Int == Int(Self.later))
    }

    @Test(
        "tokens that are missing, shortened or not tokens are refused",
        arguments: [("", "tokens is missing"), ("00fc13ad…", "the beginning of a token"), ("zz", "not a device token")])
    func fields(text: String, words: String) {
        let mistake = #expect(throws: FieldMistake.self) {
            _ = try ForgetDevices(Fields([("tokens", text)])) { $0 == "zz" ? nil : $0 }
        }
        #expect(mistake?.text(.member).contains(words) == true)
    }
}
