import NIOCore
import PushQueue
import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import Operations

@Suite("Going through dead letters", .queue)
struct DeadLettersTests {
    private let queue = QueueScope.queue

    @Test(
        "each filter selects what it describes",
        arguments: [
            ([], ["a", "b", "c", "d", "s", "e", "f"]),
            (["reason=BadPayload"], ["a"]), (["reason=Bad*"], ["a", "b"]), (["reason=bad*"], []),
            (["reason=*"], ["a", "b", "c", "d", "s", "e"]),
            (["reason=BadPayload", "reason=NoApp"], ["a", "c"]), (["reason=B.dPayload"], []),
            (["id=job/\"1\""], ["a"]), (["id=inside"], ["d"]), (["id=job/\"1\"", "id=inside"], ["a", "d"]),
            (["id=job"], []), (["app=one"], ["a", "b", "d"]), (["app=one", "reason=Bad*"], ["a", "b"]),
            (["token=AB cd"], ["b", "d"]), (["token=<abcd>"], ["b", "d"]), (["token=ab"], ["c"]), (["token=ef"], ["d"]),
            (["error=SHUT"], ["b"]), (["error=too l"], ["a"]), (["error=503"], ["b"]), (["error=50"], []),
            (["error=%"], []), (["older=9000"], ["f"]),
            (["older=2000"], ["d", "s", "e", "f"]), (["newer=2000"], ["a", "b", "c"]),
            (["newer=9000"], ["a", "b", "c", "d", "s", "e"]),
            (["older=1000", "newer=9000"], ["d", "s", "e"]), (["id=J1"], ["s"]), (["token=0F0F"], ["s"]),
            (["reason=') redis.call('FLUSHALL') --"], []), (["id=\u{0}\n"], []),
        ] as [([String], [String])])
    func filters(flags: [String], expected: [String]) async throws {
        let letters: [(seconds: Int64, head: String, original: String)] = [
            (100, #""reason":"BadPayload","id":"job/\"1\"","app":"one","detail":"it is TOO LARGE""#, "a"),
            (
                200, #""reason":"BadTopic","id":"2","app":"one","error":"Shutdown","status":503,"tokens":["ABCD","x"]"#,
                "b"
            ),
            (300, #""reason":"NoApp","id":"3","tokens":["ab"]"#, #"{"token":"abcd","is":"c"}"#),
            (3000, #""reason":"Poison""#, #"{"id":"inside","app":"one","tokens":["E F","a<b>cd"],"is":"d"}"#),
            (3500, #""reason":"Poison""#, #"{"class":"Push","args":[{"token":"0f0f"}],"jid":"J1","is":"s"}"#),
            (4000, #""reason":"MalformedJSON""#, "{\"token\": e"),
        ]
        for (seconds, head, original) in letters {
            try queue.bury("{\"v\":1,\"claim\":\"w:\(seconds)\",\(head)}\n" + original, secondsAgo: seconds)
        }
        try queue.bury("f, which is no letter", secondsAgo: 10_000)
        var filter = DeadLetterFilter()
        for flag in flags {
            let parts = flag.split(separator: "=", maxSplits: 1).map(String.init)
            switch parts[0] {
            case "reason": filter.reasons.append(parts[1])
            case "id": filter.ids.append(parts[1])
            case "app": filter.apps.append(parts[1])
            case "token": filter.tokens.append(parts[1])
            case "error": filter.errors.append(parts[1])
            case "older": filter.until = Moment.now - (Int64(parts[1]) ?? 0) * 1000
            default: filter.since = Moment.now - (Int64(parts[1]) ?? 0) * 1000
            }
        }
        let before = try queue.everything()
        let (found, _) = try await queue.sweep(.show, filter, newestFirst: true)
        let names = found.map { String($0.letter.original.text.last { $0.isLetter } ?? "f") }
        #expect(names == expected)
        let counted = try await queue.sweep(.count(onlyReadable: false), filter).tally
        #expect(counted == expected.count)
        #expect(try queue.everything() == before)
        // The key of a dead letter selects no other dead letter.
        for letter in found {
            var filter = DeadLetterFilter()
            filter.keys = [letter.key.uppercased()]
            #expect(try await queue.sweep(.show, filter).letters == [letter])
        }
    }

    @Test(
        "a page reads 100 dead letters or a quarter of a mebibyte, and all pages together read each dead letter once",
        arguments: [true, false])
    func pages(newestFirst: Bool) async throws {
        // Most dead letters have the same millisecond, because a batch of settlements writes them.
        for number in 0..<1100 {
            let later = max(0, number - 1000)
            try queue.bury(.numbered(number), at: Int64(5000 + later))
        }
        var (cursor, keys, looked): (String?, [String], [Int]) = (nil, [], [])
        repeat {
            let page = try await queue.letters.page(
                .list, DeadLetterFilter(), after: cursor, limit: .max, newestFirst: newestFirst)
            looked.append(page.looked)
            keys += page.letters.map(\.key)
            let times = page.letters.map(\.at)
            #expect(times == times.sorted(by: newestFirst ? (>) : (<)))
            cursor = page.cursor
        } while cursor != nil
        #expect(looked == Array(repeating: 100, count: 11) + [0])
        #expect(keys.count == 1100 && Set(keys).count == 1100)

        try queue.redis.run("DEL", queue.keys.dead)
        for number in 0..<4 {
            try queue.bury(.numbered(number) + String(repeating: "x", count: 300_000), at: Int64(number))
        }
        let first = try await queue.letters.page(
            .count(onlyReadable: true), DeadLetterFilter(), after: nil, limit: .max)
        #expect(first.looked == 1 && first.cursor != nil)
    }

    @Test(
        "no dead letter is missed when others of the same millisecond are deleted between two pages",
        arguments: [true, false])
    func removalBetweenPages(newestFirst: Bool) async throws {
        for number in 0..<600 { try queue.bury(.numbered(number), at: 5000) }
        let first = try await queue.letters.page(
            .list, DeadLetterFilter(), after: nil, limit: .max, newestFirst: newestFirst)
        for letter in first.letters.prefix(40) {
            var filter = DeadLetterFilter()
            filter.keys = [letter.key]
            #expect(try await queue.sweep(.delete, filter).tally == 1)
        }
        var (cursor, keys) = (first.cursor, Set(first.letters.map(\.key)))
        while let here = cursor {
            let page = try await queue.letters.page(
                .list, DeadLetterFilter(), after: here, limit: .max, newestFirst: newestFirst)
            keys.formUnion(page.letters.map(\.key))
            cursor = page.cursor
        }
        #expect(keys.count == 600)
    }

    @Test("deleting removes exactly the matching ones, and is counted")
    func delete() async throws {
        for number in 0..<700 { try queue.bury(.numbered(number, reason: number % 3 == 0 ? "Other" : "X"), at: 5000) }
        var filter = DeadLetterFilter()
        filter.reasons = ["Other"]
        #expect(try await queue.sweep(.delete, filter).tally == 234)
        #expect(try queue.dead().count == 466)
        #expect(try queue.dead().allSatisfy { $0.header.text.contains(#""reason":"X""#) })
        #expect(try queue.jobs().isEmpty)
        #expect(try queue.stats() == ["dead_deleted": 234])
    }

    @Test("an entry that is not a dead letter is shown and deleted, and never requeued")
    func unreadable() async throws {
        let strangers = [
            "no line feed", "no JSON\n{}", "[1]\n{}", "{\"v\":1}\n{}", "{\"reason\":5}\n{}",
            #"{"reason":"X","tokens":[]}"# + "\n{}", #"{"reason":"X","tokens":["a",1]}"# + "\n{}",
            #"{"reason":"X","tokens":"a"}"# + "\n{}",
        ]
        for stranger in strangers { try queue.bury(stranger, at: 5000) }
        let before = try queue.everything()
        #expect(try await queue.sweep(.requeue(first: false, keepsAttempts: false), .init()).tally == 0)
        #expect(try await queue.sweep(.count(onlyReadable: true), .init()).tally == 0)
        #expect(try queue.everything() == before)
        let page = try await queue.letters.page(.list, .init(), after: nil, limit: .max)
        #expect(page.reasons == ["Unreadable": strangers.count])
        #expect(Set(page.letters.map(\.letter.header.text)).isSubset(of: strangers.flatMap { [$0, $0.firstLine] }))
        #expect(try await queue.sweep(.delete, .init()).tally == strangers.count)
    }

    @Test("a hostile reason cannot harm a terminal or a script")
    func hostileReason() async throws {
        try queue.bury(#"{"reason":"a\nb \u001b[1m$(x)"}"# + "\n{}", at: 5000)
        let page = try await queue.letters.page(.count(onlyReadable: true), .init(), after: nil, limit: .max)
        #expect(page.reasons == ["a?b???1m??x?": 1])
    }

    @Test("the script refuses unknown arguments and changes nothing")
    func refusals() async throws {
        try queue.bury(.numbered(1), at: 5000)
        let before = try queue.everything()
        for arguments in [
            ["explode", "start", "1", "1"], ["delete", "start", "0", "1"], ["delete", "start", "x", "1"],
            ["delete", "start", "1", "1", "resaon", "X"], ["delete", "start", "1", "1", "reason"],
            ["delete", "start", "1", "1", "older", "soon"], ["delete", "start", "1", "1", "older", ""],
            ["delete", "0 0 0 0", "1", "1"], ["delete", "x 0 0 0 0", "1", "1"], ["delete", "", "1", "1"],
        ] {
            let command =
                ["EVAL", String(decoding: QueueScript.pageDeadLetters.source, as: UTF8.self), "3"]
                + [queue.keys.dead, queue.keys.jobs, queue.keys.statsPrefix] + arguments
            let reply = try queue.redis.run(command.map { Array($0.utf8) })
            #expect(reply.text?.hasPrefix("ERR letters: ") == true, "\(arguments): \(reply)")
        }
        #expect(try queue.everything() == before)
    }

    @Test("a key of the wrong type is named, and nothing is changed")
    func wrongType() async throws {
        try queue.bury(.numbered(1), at: 5000)
        _ = try await queue.sweep(.requeue(first: false, keepsAttempts: false), .init())
        try queue.bury(.numbered(2), at: 5000)
        let stats = try #require(queue.redis.run("KEYS", queue.keys.statsPrefix + "*").elements?.first?.text)
        for key in [queue.keys.dead, queue.keys.jobs, stats] {
            #expect(try queue.redis.run("RENAME", key, key + ":away") == .status("OK"))
            try queue.redis.run("SET", key, "something else")
            let before = try queue.everything()
            for action in [DeadLetters.Action.requeue(first: true, keepsAttempts: false), .delete] {
                let error = await #expect(throws: RedisError.self) { _ = try await queue.sweep(action, .init()) }
                #expect("\(try #require(error))".contains("WRONGTYPE \(key) holds a string"))
            }
            #expect(try queue.everything() == before)
            #expect(try queue.redis.run("RENAME", key + ":away", key) == .status("OK"))
        }
    }
}

extension TestQueue {
    var letters: DeadLetters { DeadLetters(client, keys) }

    func sweep(
        _ action: DeadLetters.Action, _ filter: DeadLetterFilter, newestFirst: Bool = false
    ) async throws -> (letters: [DeadLetters.Listed], tally: Int) {
        var (cursor, letters, tally): (String?, [DeadLetters.Listed], Int) = (nil, [], 0)
        repeat {
            let page = try await self.letters.page(action, filter, after: cursor, limit: .max, newestFirst: newestFirst)
            letters += page.letters
            tally += page.chosen
            #expect(page.reasons.values.reduce(0, +) == page.chosen)
            cursor = page.cursor
        } while cursor != nil
        return (letters, tally)
    }

    func bury(_ member: String, at time: Int64) throws { try bury(Array(member.utf8), at: time) }

    func bury(_ member: [UInt8], at time: Int64) throws {
        #expect(try redis.run([Array("ZADD".utf8), Array(keys.dead.utf8), Array("\(time)".utf8), member]) == 1)
    }

    /// Writes a dead letter with an age by Redis' clock, because filters by age use that clock.
    func bury(_ member: String, secondsAgo: Int64) throws {
        let now = try #require(redis.run("TIME").elements?.first?.number)
        try bury(member, at: (Int64(now) - secondsAgo) * 1000)
    }
}

extension String {
    /// Returns a dead letter of a distinct job.
    static func numbered(_ number: Int, reason: String = "X") -> String {
        #"{"v":1,"reason":"\#(reason)","at":5000,"claim":"w:\#(number)","attempts":2,"id":"job-\#(number)"}"# + "\n"
            + #"{"id":"job-\#(number)","token":"ab","payload":{}}"#
    }

    fileprivate var firstLine: String { String(split(separator: "\n").first ?? "") }
}
