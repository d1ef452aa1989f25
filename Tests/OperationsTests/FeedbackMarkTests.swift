import Foundation
import NIOCore
import NIOPosix
import PushQueue
import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import Operations

@Suite("Feedback in the set of invalid tokens")
struct FeedbackMarkTests {
    private func record(_ token: String, at: Int64 = 5000, _ source: InvalidToken.Source = .feedback) -> InvalidToken {
        InvalidToken(
            token: ByteBuffer(string: token), at: at, reason: source == .feedback ? "Feedback" : "Unregistered",
            topic: ByteBuffer(string: "com.example.app"), environment: "production", source: source)
    }

    @Test("is added once, and skipped if the device has registered since")
    func mark() async throws {
        try await withQueue { queue in
            let keys = queue.sharedKeys
            for (token, at) in [("aa", "5001"), ("bb", "5000"), ("cc", "4999"), ("dd", "soon"), ("ee", "")] {
                try queue.redis.run("HSET", keys.registrations, token, at)
            }
            try queue.redis.run("SADD", keys.invalidTokens, "ff")
            try await withInvalidTokens(queue.client.topology, keys) { writer in
                let tokens = ["aa", "bb", "cc", "dd", "ee", "ff", "bb"]
                let first = try await writer.mark(tokens.map { record($0) })
                #expect(first == [.registeredSince, .added, .added, .added, .added, .known, .known])
                let second = try await writer.mark(tokens.map { record($0) })
                #expect(second == [.registeredSince] + [InvalidToken.Marking](repeating: .known, count: 6))
            }
            let set = try queue.redis.run("SMEMBERS", keys.invalidTokens).elements?.compactMap(\.text) ?? []
            #expect(Set(set) == ["bb", "cc", "dd", "ee", "ff"])
            let details = try queue.storedInvalidTokens().details()
            let second = try #require(details["bb"])
            #expect(
                second
                    == .init(
                        at: 5000, day: second.day, reason: "Feedback", topic: "com.example.app",
                        environment: "production", source: "feedback"))
            // `ff` had no details, so the details of this call were added.
            #expect(Set(details.keys) == Set(set))
        }
    }

    @Test("does not replace newer records, but replaces older and unreadable ones")
    func details() async throws {
        try await withQueue { queue in
            let keys = queue.sharedKeys
            try await queue.addInvalidTokens([
                record("aa", at: 5001, .apns), record("bb", at: 5000, .apns), record("cc", at: 4999, .apns),
            ])
            let strange: [String: [UInt8]] = [
                "dd": [], "ee": [7], "ff": Array(repeating: 0xFF, count: 9), "ab": Array(repeating: 0xFF, count: 11),
            ]
            for (token, bytes) in strange { try queue.storedInvalidTokens().write(bytes, for: token) }
            try await withInvalidTokens(queue.client.topology, keys) { writer in
                let tokens = ["aa", "bb", "cc"] + strange.keys.sorted()
                _ = try await writer.mark(tokens.map { record($0) })
                // One batch has a token twice, and the older report comes last.
                _ = try await writer.mark([record("b0", at: 9000), record("b0", at: 8000)])
            }
            let sources = try queue.storedInvalidTokens().details().mapValues(\.facts.source)
            #expect(sources["aa"] == "apns" && sources["bb"] == "apns")
            for token in ["cc"] + strange.keys { #expect(sources[token] == "feedback", "\(token)") }
            #expect(try queue.storedInvalidTokens().details()["b0"]?.at == 9000)
        }
    }

    @Test("accepts thousands at once")
    func many() async throws {
        try await withQueue { queue in
            try await withInvalidTokens(queue.client.topology, queue.sharedKeys) { writer in
                let records = (0..<10_000).map { record(String(format: "%08x", $0)) }
                let markings = try await writer.mark(records)
                #expect(markings == records.map { _ in .added })
                let none = try await writer.mark([])
                #expect(none.isEmpty)
            }
            #expect(try queue.redis.run("SCARD", queue.sharedKeys.invalidTokens) == 10_000)
            #expect(try queue.storedInvalidTokens().detailsCount() == 10_000)
        }
    }

    @Test("a device that registers again is remembered: older feedback skips it, newer feedback does not")
    func register() async throws {
        try await withQueue { queue in
            let keys = queue.sharedKeys
            try await queue.addInvalidTokens([record("aa", .apns), record("bb", .apns)])
            let (loop, topology) = (queue.client.eventLoop, queue.client.topology)
            let set = NIOLoopBoundBox.makeBoxSendingValue(
                InvalidTokenSet(client: queue.client, keys: keys, maximumAge: 0), eventLoop: loop)
            for at in [7000, 6000] as [Int64] {
                let _: Int = try await loop.call {
                    set.value.remove([.init(ByteBuffer(string: "aa"), .registered, registeredAt: at)], completion: $0)
                }
            }
            #expect(try queue.redis.run("SMEMBERS", keys.invalidTokens).elements?.compactMap(\.text) == ["bb"])
            #expect(try queue.storedInvalidTokens().detailsCount() == 1)
            #expect(try queue.redis.run("HGETALL", keys.registrations) == .array(["aa", "7000"]))
            try await withInvalidTokens(topology, keys) { writer in
                let older = try await writer.mark([record("aa", at: 6999)])
                let newer = try await writer.mark([record("aa", at: 7000)])
                #expect(older == [.registeredSince] && newer == [.added])
            }
        }
    }

    @Test("fails and changes nothing if a key has another type", arguments: 0..<4)
    func wrongType(which: Int) async throws {
        try await withQueue { queue in
            let keys = queue.sharedKeys
            try await withInvalidTokens(queue.client.topology, keys) { writer in
                let all = [
                    keys.invalidTokens, keys.registrations, keys.invalidTokenFacts,
                    try queue.storedInvalidTokens().detailsKey(of: "aa"),
                ]
                try queue.redis.run("SET", all[which], "x")
                // A call without tokens reads no details.
                for tokens in which == 3 ? [[record("aa")]] : [[], [record("aa")]] {
                    let failure = await #expect(throws: QueueFailure.self) { try await writer.mark(tokens) }
                    #expect(failure?.mayPass == false)
                    #expect(failure?.description.contains(all[which]) == true)
                }
                #expect(try queue.redis.run("EXISTS", all[0], all[1], all[2], all[3]) == 1)
            }
        }
    }

    @Test("works in a Cluster, where all its keys are in one slot")
    func cluster() async throws {
        let cluster = try await RedisCluster()
        let keys = SharedKeys()
        let owner = try cluster.owner(ofSlot: cluster.slot(of: keys.invalidTokens))
        try owner.run("HSET", keys.registrations, "bb", "6000")
        try owner.invalidTokens().add("cc", .init(at: 9000, source: "apns"))
        try owner.run("SREM", keys.invalidTokens, "cc")
        try await withInvalidTokens(try RedisTopology(url: cluster.url), keys) { writer in
            for expected in [InvalidToken.Marking.added, .known] {
                let markings = try await writer.mark([record("aa"), record("bb"), record("cc")])
                #expect(markings == [expected, .registeredSince, expected])
            }
        }
        #expect(Set(try owner.run("SMEMBERS", keys.invalidTokens).elements?.compactMap(\.text) ?? []) == ["aa", "cc"])
        let known = try owner.invalidTokens().details()
        #expect(Set(known.keys) == ["aa", "cc"])
        // Another program had removed the token, so its former details are not kept.
        #expect(known["cc"]?.facts.source == "feedback")
    }

    @Test("without a token finds out whether a server accepts writes")
    func readOnly() async throws {
        let server = try RedisServer()
        try await withQueue(on: server) { queue in
            try await withInvalidTokens(queue.client.topology, queue.sharedKeys) { writer in
                let none = try await writer.mark([])
                #expect(none.isEmpty)
                // No replica is in sync.
                try queue.redis.run("CONFIG", "SET", "min-replicas-to-write", "1")
                let failure = await #expect(throws: QueueFailure.self) { try await writer.mark([]) }
                #expect(failure?.mayPass == true && failure?.description.contains("NOREPLICAS") == true)
            }
        }
    }

    @Test("a record for other programs is one line of JSON, whatever it contains")
    func line() throws {
        var lines = ByteBuffer()
        var record = record("00fc")
        record.topic = ByteBuffer(string: "a\"\n\u{1F600}")
        record.writeLine(to: &lines, app: "shop\n", outcome: "added")
        record.environment = nil
        record.writeLine(to: &lines, app: "shop", outcome: "known")
        let parts = lines.text.split(separator: "\n", omittingEmptySubsequences: false)
        #expect(parts.count == 3 && parts[2].isEmpty)
        let first = try JSONSerialization.jsonObject(with: Data(parts[0].utf8)) as? NSDictionary
        #expect(
            first == [
                "token": "00fc", "at": 5000, "app": "shop\n", "topic": "a\"\n\u{1F600}", "environment": "production",
                "source": "feedback", "outcome": "added",
            ] as NSDictionary)
        #expect(!parts[1].contains("environment"))
    }
}

@Suite("The patience with a Redis that refuses writes")
struct WritePatienceTests {
    private static func at(_ milliseconds: Int64) -> NIODeadline {
        .uptimeNanoseconds(1_000_000_000_000) + .milliseconds(milliseconds)
    }

    /// Returns the number of attempts until the patience ends, and the time of its end.
    private func run(_ patience: inout WritePatience, from start: Int64, random: Double) -> (tries: Int, end: Int64) {
        var (now, tries) = (start, 0)
        while true {
            tries += 1
            guard let pause = patience.failed(now: Self.at(now), random: random) else {
                return (tries, now)
            }
            #expect(pause > .zero && pause <= .seconds(1))
            now += max(1, pause.nanoseconds / 1_000_000)
        }
    }

    @Test("ends after its time limit, with growing pauses that are never zero", arguments: [0.0, 0.5, 1.0])
    func limit(random: Double) {
        var patience = WritePatience(limit: .seconds(20))
        let (tries, end) = run(&patience, from: 0, random: random)
        #expect(end == 20_000)
        #expect(tries > 15 && tries < 4100)
        #expect(patience.hasLasted(.seconds(20), now: Self.at(20_000)))
    }

    @Test("starts again after an accepted write")
    func success() {
        var patience = WritePatience(limit: .seconds(5))
        _ = run(&patience, from: 0, random: 1)
        patience.succeeded()
        #expect(!patience.hasLasted(.zero, now: Self.at(9000)))
        #expect(run(&patience, from: 10_000, random: 1).end == 15_000)
    }

    @Test("is shorter once the process must stop, and never longer")
    func shorten() {
        var patience = WritePatience(limit: .seconds(300))
        _ = patience.failed(now: Self.at(0), random: 1)
        for now in [60_000, 62_000] as [Int64] { patience.shorten(to: .seconds(5), now: Self.at(now)) }
        #expect(run(&patience, from: 62_000, random: 1).end == 65_000)
        var short = WritePatience(limit: .seconds(2))
        short.shorten(to: .seconds(5), now: Self.at(0))
        #expect(run(&short, from: 0, random: 1).end == 2000)
    }

    @Test(
        "distinguishes temporary failures from permanent ones",
        arguments: [
            ("LOADING Redis is loading", true), ("OOM command not allowed", true), ("READONLY You can't write", true),
            ("CLUSTERDOWN Hash slot not served", true), ("WRONGTYPE x holds a list", false),
            ("NOPERM this user has no permissions", false), ("ERR unknown command", false),
        ])
    func mayPass(text: String, expected: Bool) {
        #expect(QueueFailure.redis(.server(RedisServerError(text: text))).mayPass == expected)
        #expect(QueueFailure.redis(.notConnected(address: "x", reason: "y")).mayPass)
        let login = RedisServerError(text: "WRONGPASS no")
        #expect(!QueueFailure.redis(.authentication(address: "x", reply: login, source: "x")).mayPass)
    }
}
