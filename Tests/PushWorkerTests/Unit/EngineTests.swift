import APNS
import LegacyAPNS
import NIOCore
import PushJob
import PushQueue
import Redis
import Testing

@testable import PushWorker

/// The engine's real parts, from a claim to its settlement, without a server.
@Suite("The engine")
struct EngineTests {
    private let scene: EngineScene

    init() throws { scene = try EngineScene() }

    // MARK: Answers

    /// The outcome of a notification after an answer.
    enum Becomes {
        case ended(Outcome)
        case postponed(Postponement)
        case resent
    }

    /// Answers of each kind to a job with one token and the topic of its app. `VerdictTests` has all answers.
    static let rows: [(RequestResult, Becomes, reason: String?)] = [
        (EngineScene.delivered, .ended(.delivered), nil),
        (.answer(.unregistered), .ended(.invalidToken), "Unregistered"),
        (.answer(.badDeviceToken), .postponed(.retried), "BadDeviceToken"),
        (.answer(.tooManyRequests), .postponed(.retried), "TooManyRequests"),
        (.answer(.serviceUnavailable), .postponed(.retried), "ServiceUnavailable"),
        (.response(Response(status: 502)), .postponed(.retried), "HTTP502"),
        (.uncertain(.timedOut), .postponed(.retried), "NoAnswer"),
        (.uncertain(.connectionLost("x")), .postponed(.retried), "ConnectionLost"),
        (.notProcessed(.goingAway(reason: nil)), .resent, "GoAway"),
        (.notProcessed(.refusedStream), .resent, "RefusedStream"),
        (.notProcessed(.noOtherConnection), .postponed(.deferred), "NoOtherConnection"),
        (.answer(.tooManyProviderTokenUpdates), .resent, "TooManyProviderTokenUpdates"),
        (.answer(.forbidden), .resent, "Forbidden"),
        (.answer(.broadcastFeatureNotEnabled), .postponed(.deferred), "BroadcastFeatureNotEnabled"),
        (.response(Response(status: 404)), .postponed(.retried), "HTTP404"),
        (.response(Response(status: 400, reasonText: "NewReason")), .postponed(.retried), "NewReason"),
        (.response(Response(status: 410)), .postponed(.retried), "HTTP410"),
        (.answer(.unregistered, status: 500), .postponed(.retried), "HTTP500"),
        (.answer(.invalidProviderToken), .resent, "InvalidProviderToken"),
        (.answer(.topicDisallowed), .postponed(.retried), "TopicDisallowed"),
        (.answer(.payloadTooLarge), .ended(.dead), "PayloadTooLarge"),
        (.refused(.processingError), .postponed(.retried), "ProcessingError"),
        (.refused(.missingTopic), .postponed(.retried), "MissingTopic"),
        (.refused(.invalidPayloadSize), .ended(.dead), "InvalidPayloadSize"),
        (.notProcessed(.discarded), .resent, "Discarded"),
    ]

    @Test("ends, retries, defers or sends again by the answer", arguments: rows.indices)
    func answers(row: Int) throws {
        let (result, becomes, reason) = Self.rows[row]
        scene.pushOne()
        #expect(scene.transport.sent.count == 1)
        scene.finish(result)
        switch becomes {
        case .ended(let outcome):
            #expect(scene.stats == [outcome.rawValue: 1] && scene.counters[outcome] == 1)
            #expect(outcome != .dead || scene.queue.dead.map(\.reason) == [reason])
        case .postponed(let postponement):
            #expect(scene.queue.stats[postponement.rawValue] == 1 && scene.counters.postponed(postponement) == 1)
            #expect(scene.queue.stats["\(postponement.rawValue):\(reason ?? "")"] == 1, "\(scene.queue.stats)")
            #expect(scene.queue.postponed.count == 1)
        case .resent:
            #expect(scene.transport.sent.count == 2 && scene.counters.resent == 1)
            #expect(scene.transport.sent[0].apnsID == scene.transport.sent[1].apnsID)
            scene.finish()
            #expect(scene.stats == ["delivered": 1])
        }
        #expect(scene.isDone)
    }

    @Test("writes an invalid token before its job is settled")
    func invalidFirst() throws {
        scene.pushOne()
        let since: Int64 = 1_700_000_000_123
        scene.transport.answer(.response(Response(status: 410, reason: .unregistered, timestamp: since)))
        // No settlement may be written before the invalid token.
        for _ in 0..<100 where scene.fleet.invalid.isEmpty {
            #expect(scene.queue.stats["invalid_token"] == nil)
            scene.run(.milliseconds(1))
        }
        let token = try #require(scene.fleet.invalid.first)
        #expect(
            token.at == since && token.reason == "Unregistered"
                && token.topic.map { String(buffer: $0) } == "com.example.shop")
        scene.run()
        #expect(scene.stats == ["invalid_token": 1] && scene.queue.held.isEmpty)
    }

    @Test(
        "takes APNs' time of an invalid token if its clock is at most a second ahead",
        arguments: [(ahead: Int64(1), isTaken: true), (1000, true), (1200, false)])
    func invalidAhead(ahead: Int64, isTaken: Bool) throws {
        scene.pushOne()
        let now = EngineScene.time(scene.loop.now)
        scene.transport.answer(.response(Response(status: 410, reason: .unregistered, timestamp: now + ahead)))
        scene.run()
        let token = try #require(scene.fleet.invalid.first)
        #expect(isTaken ? token.at == now + ahead : (now - 100...now).contains(token.at))
    }

    @Test(
        "counts an unanswered request as a possible duplicate, or drops it, without an attempt while none is answered",
        arguments: [false, true])
    func uncertain(isUnanswered: Bool) throws {
        scene.push(EngineScene.job("aa"), EngineScene.job("bb", #""alert":"x","on_uncertain":"drop""#))
        scene.transport.isUnanswered = isUnanswered
        scene.run()
        #expect(scene.log.events.contains("scope_slow") == isUnanswered)
        scene.answer(.uncertain(.timedOut))
        scene.finish(.uncertain(.timedOut))
        #expect(scene.stats == ["retried": 1, "dropped": 1, "possible_duplicates": 1])
        #expect(scene.counters.possibleDuplicates == 1)
        #expect(scene.queue.postponed.first?.body.contains(#""attempt":1"#) == true)
    }

    @Test("gives a job up when it has no attempt left, with the last failure as the error")
    func exhausted() throws {
        scene.pushOne(token: "ab", #""alert":"hi","max_attempts":1"#)
        scene.finish(.tooManyRequests)
        #expect(scene.queue.dead.isEmpty, "no other was delivered since it failed first")
        scene.pushOne(token: "cd")
        scene.finish()
        scene.claimPostponed(after: .minutes(1))
        scene.finish(.tooManyRequests)
        #expect(scene.queue.dead.map(\.reason) == ["AttemptsExhausted"])
        #expect(scene.queue.dead.first?.members.contains(#""error":"TooManyRequests""#) == true)
    }

    @Test("settles jobs with the results of their notifications", arguments: [ResultsKept.all, .failures])
    func results(kept: ResultsKept) throws {
        let scene = try EngineScene { $0.queues[0].limits.results = kept }
        scene.push(EngineScene.job("aa"), EngineScene.job("bb"), EngineScene.fanOut(["cc", "dd"]))
        scene.answer(EngineScene.delivered)
        scene.answer(.badCollapseID)
        scene.answer(EngineScene.delivered)
        scene.finish()
        #expect(scene.stats == ["delivered": 3, "dead": 1] || scene.stats == ["delivered": 3, "dead": 1, "mixed": 1])
        #expect(scene.queue.held.isEmpty && scene.queue.results == (kept == .all ? 3 : 1))
    }

    @Test("A token that is refused while nothing is accepted is retried, and spends no attempt.")
    func suspect() throws {
        for attempt in 1...2 {
            scene.pushOne()
            scene.answer(.badDeviceToken)
            #expect(scene.queue.postponed.map(\.due) == Array(repeating: "+10000", count: attempt))
            #expect(scene.queue.postponed.last?.body.contains(#""attempt":1"#) == true)
        }
    }

    @Test("Twelve bad tokens at the end of a list are marked, and the app is not slowed.")
    func badEnd() throws {
        scene.finishEach(1000..<1020)
        scene.finishEach(2000..<2012, .answer(.badDeviceToken))
        scene.run()
        #expect(scene.fleet.invalid.count == 12 && scene.context.scopes.scopes.isQuiet)
        #expect(scene.queue.postponed.isEmpty && scene.queue.held.isEmpty)
    }

    @Test("Bad tokens at the beginning of a list are held, and marked once others are accepted.")
    func badBeginning() throws {
        scene.finishEach(2000..<2012, .answer(.badDeviceToken))
        #expect(scene.queue.postponed.count == 12 && scene.fleet.invalid.isEmpty)
        scene.finishEach(1000..<1020)
        scene.claimPostponed(after: .seconds(30))
        while !scene.transport.submitted.isEmpty { scene.answer(.badDeviceToken) }
        scene.run()
        #expect(scene.fleet.invalid.count == 12)
    }

    // MARK: Jobs

    @Test(
        "keeps what can't be sent as a dead letter with its reason",
        arguments: [
            ("nonsense", "MalformedJSON"), ("[]", "NotAnObject"), (#"{"alert":"hi"}"#, "MissingToken"),
            (#"{"token":"xyz","alert":"hi"}"#, "MalformedToken"), (#"{"token":"ab"}"#, "MissingPayload"),
            (#"{"token":"ab","app":"other","alert":"hi"}"#, "UnknownApp"),
            (#"{"token":"ab","push_type":"new","alert":"hi"}"#, "InvalidPushType"),
        ])
    func unsendable(body: String, reason: String) throws {
        scene.push(body)
        scene.run()
        #expect(scene.queue.dead.map(\.reason) == [reason] && scene.stats == ["dead": 1])
        #expect(scene.transport.sent.isEmpty && scene.log.events.contains("dead_letter"))
        #expect(scene.queue.dead.first?.members.contains(#""detail":"#) == true)
    }

    @Test("routes by app and by topic")
    func routes() throws {
        let scene = try EngineScene(apps: ["shop", "news"])
        scene.push(
            #"{"token":"ab","app":"news","alert":"x"}"#, #"{"token":"cd","topic":"com.example.shop","alert":"x"}"#)
        scene.push(#"{"token":"ef","alert":"x"}"#)
        scene.run()
        #expect(scene.transport(1).tokens == ["ab"] && scene.transport(0).tokens == ["cd"])
        #expect(scene.queue.dead.map(\.reason) == ["NoApp"])
    }

    @Test("schedules a job with `send_at`, and ends one that has expired")
    func times() throws {
        let second = EngineScene.time(scene.loop.now) / 1000 + 60
        scene.push(
            EngineScene.job("ab", #""alert":"x","send_at":\#(second)"#),
            EngineScene.job("cd", #""alert":"x","expiration":1"#))
        scene.run()
        #expect(scene.stats == ["scheduled": 1, "expired": 1] && scene.transport.sent.isEmpty)
        #expect(scene.queue.postponed.map(\.due) == ["@\(second * 1000)"])
    }

    @Test(
        "splits a job with many tokens, or with more than its fair_per_second",
        arguments: [(1001, ""), (30, #","fair":"t","fair_per_second":20"#)])
    func splits(count: Int, members: String) throws {
        scene.push(EngineScene.fanOut((0..<count).map { String(10_000 + $0) + "0" }, #""alert":"hi""# + members))
        scene.run()
        #expect(scene.queue.splits == 1 && scene.queue.pieces.count == 2 && scene.fleet.limits.isEmpty)
        #expect(scene.transport.sent.isEmpty && scene.queue.held.isEmpty)
    }

    @Test("sends a unique job once it is reserved, and drops a duplicate")
    func unique() throws {
        scene.push(EngineScene.job("ab", Self.unique), EngineScene.job("cd", Self.unique))
        scene.run()
        #expect(scene.transport.tokens == ["ab"] && scene.counters[.dropped] == 1)
        scene.finish()
        #expect(scene.stats == ["delivered": 1, "dropped": 1])
        #expect(scene.queue.held.isEmpty)
        #expect(scene.queue.unique.count == 1)
    }

    private static let unique = #""alert":"x","id":"i","unique_for":"1h""#

    @Test("a retry of a reserved job keeps the producer's bytes and the reservation", arguments: [false, true])
    func uniqueRetry(isWrapped: Bool) throws {
        let job = EngineScene.job("ab", Self.unique)
        scene.push(isWrapped ? #"{"apns_worker":1,"attempt":2,"id":"i","job":\#(job)}"# : job)
        scene.finish(.serviceUnavailable)
        let retry = try #require(scene.queue.postponed.first?.body)
        #expect(
            retry.hasSuffix(#""job":\#(job)}"#) && retry.contains(#""origin":"\#(scene.queue.unique["i"] ?? "?")""#))
        #expect(scene.queue.held.isEmpty && !retry.contains("reserved"))
    }

    /// The ends of a unique job. `stays` is true if the reservation outlives the job.
    enum UniqueEnding: String, CaseIterable {
        case delivered, invalid, refused, unknownApp, badToken, expiredBefore, expiredAfterAnswer, cancelled, discarded
        case suppressed, exhausted
        case droppedUncertain, expiredUncertain, reclaimed, retriedUncertain, duplicate

        var stays: Bool {
            switch self {
            case .delivered, .droppedUncertain, .expiredUncertain, .reclaimed, .retriedUncertain, .duplicate: true
            default: false
            }
        }
    }

    @Test("the reservation ends with a job that was not sent, and stays otherwise", arguments: UniqueEnding.allCases)
    func uniqueEnding(_ ending: UniqueEnding) throws {
        let scene = try EngineScene { $0.queues[0].limits.results = .all }
        let soon = EngineScene.time(scene.loop.now) / 1000 + 1
        var job = EngineScene.job("ab", Self.unique)
        func with(_ member: String) -> String { EngineScene.job("ab", Self.unique + "," + member) }
        scene.queue.unique["other"] = "w:1.a"
        switch ending {
        case .unknownApp: job = with(#""app":"none""#)
        case .badToken: job = job.replacingOccurrences(of: #""ab""#, with: #""not a token""#)
        case .expiredBefore: job = with(#""expiration":1"#)
        case .expiredAfterAnswer, .expiredUncertain: job = with(#""expiration":\#(soon)"#)
        case .droppedUncertain: job = with(#""on_uncertain":"drop""#)
        case .exhausted: job = with(#""max_attempts":1"#)
        case .reclaimed: job = #"{"apns_worker":1,"reclaims":1,"origin":"x:1.a","job":\#(with(#""expiration":1"#))}"#
        case .duplicate: scene.queue.unique["i"] = "x:1.a"
        case .suppressed:
            scene.fleet.invalid = [EngineScene.invalid("ab")]
        case .cancelled, .discarded:
            var command = Self.cancellation
            command.discards = ending == .discarded
            scene.queue.commands = JobCommands(version: "1", [.id("i"): command])
        default: break
        }
        // A job that is cancelled after it waited has its reservation already.
        if ending == .cancelled || ending == .discarded {
            job = #"{"apns_worker":1,"attempt":1,"origin":"x:1.a","job":\#(job)}"#
        }
        if [.cancelled, .discarded, .reclaimed].contains(ending) { scene.queue.unique["i"] = "x:1.a" }
        scene.push(job)
        scene.run()
        switch ending {
        case .delivered: scene.finish()
        case .invalid: scene.finish(.unregistered)
        case .refused: scene.finish(.badCollapseID)
        case .expiredAfterAnswer: scene.finish(.serviceUnavailable, retryAfter: 60)
        case .droppedUncertain, .expiredUncertain: scene.finish(.uncertain(.timedOut))
        case .retriedUncertain:
            scene.finish(.uncertain(.timedOut))
            scene.queue.commands = JobCommands(version: "2", [.id("i"): Self.cancellation])
            scene.claimPostponed(after: .minutes(5))
        case .exhausted:
            scene.finish(.tooManyRequests)
            #expect(scene.queue.unique["i"] != nil)
            scene.pushOne(token: "cd")
            scene.finish()
            scene.claimPostponed(after: .minutes(1))
            scene.finish(.tooManyRequests)
        default: break
        }
        scene.run(.seconds(2))
        #expect(scene.queue.held.isEmpty && scene.transport.submitted.isEmpty)
        #expect((scene.queue.unique["i"] != nil) == ending.stays, "\(scene.stats)")
        #expect(scene.queue.unique["other"] != nil)
    }

    @Test("a retry of some tokens of a reserved job keeps the producer's bytes and the reservation")
    func uniqueFanOut() throws {
        let job = #"{"tokens":["aa","bb","cc"],\#(Self.unique)}"#
        scene.push(job)
        scene.answer(EngineScene.delivered)
        // The ended notifications are written before the rest ends.
        scene.run(.seconds(2))
        scene.answer(.serviceUnavailable)
        scene.finish()
        let retry = try #require(scene.queue.postponed.first?.body)
        #expect(retry.hasSuffix(#""job":\#(job)}"#) && retry.contains(#""reserved":true"#))
        #expect(retry.contains(#""tokens":["bb"]"#) && scene.queue.held.isEmpty)
        #expect(scene.stats == ["delivered": 2, "retried": 1])
    }

    @Test("a reserved job with many tokens is split into pieces that keep the reservation", arguments: [false, true])
    func uniqueSplit(isWrapped: Bool) throws {
        let tokens = (0..<1001).map { "\(100_000 + $0)" }
        let list = #"["\#(tokens.joined(separator: #"",""#))"]"#
        let job = #"{"tokens":\#(isWrapped ? #"["ff"]"# : list),\#(Self.unique)}"#
        scene.push(isWrapped ? #"{"apns_worker":1,"attempt":2,"id":"i","tokens":\#(list),"job":\#(job)}"# : job)
        scene.run()
        #expect(scene.queue.splits == 1 && scene.queue.held.isEmpty && scene.transport.sent.isEmpty)
        let rest = isWrapped ? job : "{\(Self.unique)}"
        #expect(scene.queue.pieces.count == 2)
        #expect(
            scene.queue.pieces.allSatisfy {
                $0.hasSuffix(#","job":\#(rest)}"#) && $0.contains(#""reserved":true"#) && $0.contains(#","origin":""#)
            })
        let first = try #require(scene.queue.pieces.first), last = try #require(scene.queue.pieces.last)
        #expect(first.contains(#""tokens":["100000","#) && first.contains(#""100999"]"#))
        #expect(last.contains(#""tokens":["101000"]"#))
    }

    @Test("what changes while a job waits for its reservation counts when it is reserved")
    func uniqueMeanwhile() throws {
        for change in ["cancelled", "scheduled", "app removed", "drained"] {
            let scene = try EngineScene(apps: ["shop", "chat"])
            let sendAt = change == "scheduled" ? #","send_at":\#(EngineScene.time(scene.loop.now) / 1000 + 60)"# : ""
            scene.add([EngineScene.job("ab", Self.unique + sendAt + #","app":"chat""#)])
            // The claim is answered, and the request for the reservation is not.
            scene.run(.milliseconds(1))
            #expect(scene.queue.unique.isEmpty && scene.queue.held.count == 1, "\(change)")
            switch change {
            case "cancelled":
                scene.lane.consumers[0].queue.commands = JobCommands(version: "1", [.id("i"): Self.cancellation])
            case "app removed":
                let shop = try AppSender.Prepared(EngineScene.app("shop"))
                _ = scene.lane.reload(scene.context.configuration, [shop])
            case "drained": _ = scene.lane.drain(within: .seconds(1))
            default: break
            }
            scene.run()
            #expect(scene.transport(1).sent.isEmpty, "\(change)")
            #expect(scene.queue.held.isEmpty, "\(change)")
            switch change {
            case "cancelled": #expect(scene.stats == ["cancelled": 1])
            case "scheduled":
                let body = try #require(scene.queue.postponed.first?.body)
                #expect(body.contains(#""origin":""#) && body.contains(#""job":{"token":"ab","#))
            case "app removed": #expect(scene.queue.dead.map(\.reason) == ["UnknownApp"])
            default: #expect(scene.queue.jobs.count == 1 && scene.queue.released)
            }
            #expect(scene.queue.unique.isEmpty == !["scheduled", "drained"].contains(change), "\(change)")
        }
    }

    private static let cancellation = JobCommands.Command { ($0.state, $0.since) = (.cancelled, 1_900_000_000_000) }

    @Test(
        "a job asks again for its reservation or turn after Redis refused it or the connection was lost",
        arguments: [
            #""id":"i","unique_for":"1h""#, #""campaign":"spring""#, #""fair":"t","fair_per_second":5"#,
            #""campaign":"spring","fair":"t","fair_per_second":5"#,
        ], [false, true])
    func asksAgain(member: String, isLost: Bool) throws {
        scene.queue.commands = JobCommands(version: "1", [.campaign("spring"): .init { $0.perSecond = 10 }])
        scene.add([EngineScene.job("ab", #""alert":"x",\#(member)"#)])
        scene.loop.run()
        // The claim is sent, and the request for a reservation or a turn is not.
        if isLost { scene.queue.isReady = false } else { scene.queue.refusal = .unexpectedReply("reserve") }
        scene.run(.milliseconds(50))
        #expect(scene.transport.sent.isEmpty && scene.queue.held.count == 1)
        #expect(scene.lane.consumers[0].problem != nil)
        (scene.queue.isReady, scene.queue.refusal) = (true, nil)
        if isLost { scene.lane.consumers[0].redisChanged(.ready) }
        scene.run(.seconds(2))
        #expect(scene.transport.tokens == ["ab"] && scene.lane.consumers[0].problem == nil)
        scene.finish()
        #expect(scene.stats == ["delivered": 1] && scene.queue.held.isEmpty)
    }

    @Test("a unique job of a limited campaign is decoded once, and waits for its reservation and then for its turn")
    func uniqueLimited() throws {
        scene.queue.commands = JobCommands(version: "1", [.campaign("spring"): .init { $0.perSecond = 10 }])
        scene.fleet.turns = [0, 5000]
        let members = #""alert":"x","unique_for":"1h","campaign":"spring""#
        let jobs = ["a", "b"].map { EngineScene.job("\($0)\($0)", #""id":"\#($0)",\#(members)"#) }
        scene.queue.jobs = jobs
        scene.wake()
        scene.run()
        #expect(scene.transport.tokens == ["aa"])
        let limited = try #require(scene.queue.postponed.first)
        #expect(limited.due == "+5000" && limited.body.hasSuffix(#""job":\#(jobs[1])}"#))
        #expect(limited.body.contains(#""origin":""#) && limited.body.contains("CampaignLimited"))
        scene.finish()
        #expect(scene.stats == ["delivered": 1, "deferred": 1] && scene.queue.held.isEmpty)
    }

    @Test("jobs with fair_per_second wait for their turn, and jobs of several keys are asked for together")
    func fairLimited() throws {
        scene.fleet.turns = [0, 5000, 0]
        let jobs = [("aa", "t"), ("bb", "u"), ("cc", "t")].map {
            EngineScene.job($0, #""alert":"x","fair":"\#($1)","fair_per_second":5"#)
        }
        scene.queue.jobs = jobs
        scene.wake()
        scene.run()
        // Redis gets one question for both jobs of a key.
        #expect(scene.fleet.limits == [.fair("t", perSecond: 5), .fair("u", perSecond: 5)])
        #expect(scene.transport.tokens == ["aa", "bb"])
        let limited = try #require(scene.queue.postponed.first)
        #expect(limited.due == "+5000" && limited.body.hasSuffix(#""job":\#(jobs[2])}"#))
        #expect(limited.body.contains("FairLimited"))
        scene.push(limited.body)
        scene.run()
        // The returned job asks again, and goes before new jobs.
        #expect(scene.fleet.limits.count == 3 && scene.transport.tokens == ["aa", "bb", "cc"])
        #expect(scene.fleet.lastAsked == [.init(notifications: 1, goesFirst: true)])
    }

    @Test("an urgent job takes the next turn")
    func urgentTurn() throws {
        for urgent in ["", #","urgent":true"#] {
            scene.push(EngineScene.job("aa", #""alert":"x","fair":"t","fair_per_second":5\#(urgent)"#))
            #expect(scene.fleet.lastAsked == [.init(notifications: 1, goesFirst: !urgent.isEmpty)])
        }
    }

    @Test("a job waits for its turn within the rates of its key and of its campaign, and takes each only once")
    func fairAndCampaignLimited() throws {
        scene.queue.commands = JobCommands(version: "1", [.campaign("spring"): .init { $0.perSecond = 10 }])
        let limits: [SharedRates.Limit] = [
            .fair("t", perSecond: 5), .campaign("spring", perSecond: 10, since: 0),
        ]
        scene.fleet.turns = [0, 3000]
        scene.push(EngineScene.job("aa", #""alert":"x","campaign":"spring","fair":"t","fair_per_second":5"#))
        scene.run()
        #expect(scene.fleet.limits == limits && scene.transport.tokens.isEmpty)
        let limited = try #require(scene.queue.postponed.first)
        #expect(limited.due == "+3000" && limited.body.contains("CampaignLimited"))
        scene.push(limited.body)
        scene.run()
        // The job has already had its turn within the rate of its key.
        #expect(scene.fleet.limits == limits + limits.suffix(1) && scene.transport.tokens == ["aa"])
        let before = scene.fleet.limits.count
        scene.fleet.turns = [2000]
        scene.push(EngineScene.job("bb", #""alert":"x","campaign":"spring","fair":"t","fair_per_second":5"#))
        scene.run()
        #expect(scene.fleet.limits.dropFirst(before) == limits.prefix(1))
        scene.push(try #require(scene.queue.postponed.last).body)
        scene.run()
        #expect(scene.fleet.limits.dropFirst(before + 1) == limits[...])
        #expect(scene.transport.tokens == ["aa", "bb"])
    }

    @Test(
        "a lane that meets a job with fair or urgent has its queue sort the jobs for a minute",
        arguments: [(#""fair":"t""#, true), (#""urgent":true"#, true), (#""urgent":false"#, false)])
    func sorts(member: String, isSorted: Bool) {
        scene.pushOne(#""alert":"x",\#(member)"#)
        #expect(scene.queue.sorts.first == false)
        scene.answer(EngineScene.delivered)
        scene.pushOne(token: "cd")
        #expect(scene.queue.sorts.last == isSorted)
        scene.answer(EngineScene.delivered)
        scene.run(.seconds(61))
        scene.pushOne(token: "ef")
        #expect(scene.queue.sorts.last == false)
        scene.finish()
        #expect(scene.stats == ["delivered": 3])
    }

    // MARK: Fan-outs

    @Test("alternates between a fan-out and small jobs")
    func turns() throws {
        scene.transport.streams = 40
        scene.push(EngineScene.fanOut((0..<100).map { String(1000 + $0) }), EngineScene.job("ffff"))
        #expect(scene.transport.tokens.firstIndex(of: "ffff") == 32)
    }

    // MARK: Claims ahead of free streams

    private func addBacklog() {
        scene.transport.streams = 50
        scene.add((0..<5000).map { EngineScene.job(String(format: "%04x", $0)) })
    }

    @Test("claims jobs shortly before a stream is free, and none when answers stop")
    func claimsAhead() throws {
        addBacklog()
        scene.run(.milliseconds(20))
        // The pace of answers is not known yet.
        #expect(scene.transport.submitted.count == 50 && scene.queue.held.count == 50)
        // 2,500 answers per second are 50 in the 20 ms that jobs are claimed ahead.
        for _ in 0..<50 {
            for _ in 0..<10 { scene.transport.answer(EngineScene.delivered) }
            scene.run(.milliseconds(4))
        }
        #expect(scene.transport.submitted.count == 50, "no stream is idle")
        let waiting = scene.context.jobs.count - 50
        #expect((20...50).contains(waiting), "\(waiting) jobs wait for a stream")
        // Two ticks find all streams busy, and ask for a connection unless this test has used half of the processor's time.
        #expect(scene.transport.calls.count <= 2 && Set(scene.transport.calls).isSubset(of: ["requestCapacity"]))
        // Without answers nothing is claimed ahead. The waiting jobs are sent, and no more jobs are claimed than there are streams.
        scene.run(.milliseconds(300))
        let held = scene.queue.held.count
        for _ in 0..<waiting { scene.transport.answer(EngineScene.delivered) }
        scene.run(.milliseconds(4))
        #expect(scene.queue.held.count <= held && scene.context.jobs.count <= 50 + 20)
    }

    /// Jobs that need no stream.
    enum Unsent: String, CaseIterable { case replaced, suppressed, expired, refused, cancelled }

    @Test("jobs that need no stream are claimed many at a time, also without a connection", arguments: Unsent.allCases)
    func claimsUnsent(_ kind: Unsent) throws {
        scene.transport.goDormant()
        var member = ""
        switch kind {
        case .replaced:
            scene.queue.newest = ["k": "other"]
            member = #","replaces":"k""#
        case .suppressed:
            scene.fleet.invalid = [EngineScene.invalid("ab")]
        case .expired: member = #","expiration":1"#
        case .refused: member = #","app":"none""#
        case .cancelled:
            scene.queue.commands = JobCommands(version: "1", [.campaign("spring"): .init { $0.state = .cancelled }])
            member = #","campaign":"spring""#
        }
        scene.queue.jobs = (0..<5000).map { EngineScene.job("ab", #""alert":"x","id":"\#($0)"\#(member)"#) }
        scene.queue.jobs.append(EngineScene.job("cd"))
        scene.wake()
        for _ in 0..<40 where scene.transport.sent.isEmpty { scene.run(.milliseconds(50)) }
        #expect(scene.transport.tokens == ["cd"] && scene.queue.claims < 500)
        // Jobs that need a stream are not claimed ahead.
        scene.run(.milliseconds(300))
        scene.transport.streams = 1
        scene.add((0..<500).map { EngineScene.job(String(format: "%04x", $0)) })
        scene.run(.milliseconds(50))
        #expect(scene.context.jobs.count <= 2)
    }

    @Test("releases jobs that it claimed ahead when it drains")
    func drainsWhatWaits() throws {
        addBacklog()
        for _ in 0..<50 {
            scene.run(.milliseconds(4))
            for _ in 0..<10 { scene.transport.answer(EngineScene.delivered) }
        }
        #expect(scene.context.jobs.count > 50)
        _ = scene.lane.drain(within: .seconds(10))
        while !scene.transport.submitted.isEmpty { scene.transport.answer(EngineScene.delivered) }
        scene.run()
        #expect(scene.queue.released && scene.context.jobs.count == 0)
        #expect(scene.transport.sent.count == scene.counters.outcomes[.delivered])
    }

    // MARK: Known invalid tokens

    @Test("does not send to tokens that are known to be invalid, unless the device registered again")
    func suppresses() throws {
        scene.fleet.invalid =
            ["aa", "bb"].map { EngineScene.invalid($0) } + [EngineScene.invalid("cc", topic: "com.example.other")]
        scene.push(
            EngineScene.job("aa"), EngineScene.job("bb", #""alert":"x","registered_at":6000"#), EngineScene.job("cc"),
            EngineScene.fanOut(["aa", "dd"]))
        scene.run()
        #expect(scene.transport.tokens.sorted() == ["bb", "cc", "dd"])
        #expect(scene.counters[.suppressed] == 2)
        #expect(scene.fleet.removed.map { String(buffer: $0.token) } == ["bb"])
        #expect(scene.fleet.removed.map(\.reason) == [.registered])
    }

    // MARK: Scopes

    @Test("A revoked key costs what is in flight and sixty requests, then probes on new connections; it loses nothing.")
    func revokedKey() throws {
        let credential = try EngineScene.keyCredential()
        let scene = try EngineScene { $0.apps[0].credential = credential }
        scene.run(.seconds(2))
        scene.queue.jobs = (0..<400).map { EngineScene.job(String(100_000 + $0)) }
        let refusal = RequestResult.answer(.invalidProviderToken)
        scene.pass(.seconds(60)) { refusal }
        let requests = scene.transport.sent.count
        #expect((60..<200).contains(requests), "\(requests)")
        #expect(scene.queue.dead.isEmpty && scene.transport.calls.contains("retire"))
        #expect(scene.spentNoAttempt)
        scene.pass(.seconds(60)) { refusal }
        #expect(scene.transport.sent.count - requests <= 14, "a probe every five seconds, and then fewer")
        let record = try #require(scene.records.first)
        #expect(record.scope == .credential && record.state == .slow && record.name.contains("ABC123DEFG"))
        #expect(record.reason == "InvalidProviderToken")
        scene.pass(.minutes(40)) { EngineScene.delivered }
        #expect(scene.queue.stats["delivered"] == 400 && scene.queue.dead.isEmpty, "\(scene.stats)")
    }

    @Test(
        "One job that is refused stops no other, and ends while others are delivered.",
        arguments: [APNSReason.invalidProviderToken, .forbidden])
    func oneRefusedJob(reason: APNSReason) throws {
        scene.push(EngineScene.job("aa"), EngineScene.job("bb"))
        scene.answer(reason)
        scene.answer(EngineScene.delivered)
        scene.run(.seconds(1))
        // The second try is on a separate connection.
        #expect(scene.transport.submitted.map(\.isolation) == [.alone])
        scene.answer(reason)
        for number in 0..<400 where scene.queue.dead.isEmpty {
            scene.pushOne(token: String(1000 + number))
            scene.passByToken(.seconds(20)) { token in
                token == "aa" ? .answer(reason) : EngineScene.delivered
            }
        }
        #expect(scene.queue.dead.map(\.reason) == ["AttemptsExhausted"])
        #expect(scene.queue.stats["deferred"] == nil && scene.context.scopes.scopes.isQuiet)
    }

    @Test("If a second try is accepted, the older connections are left.")
    func secondTry() throws {
        scene.push(EngineScene.job("aa"))
        scene.answer(.forbidden)
        scene.run(.seconds(1))
        #expect(!scene.transport.calls.contains("retire"))
        scene.answer(EngineScene.delivered)
        #expect(scene.transport.calls.contains("retire") && scene.stats["delivered"] == 1)
    }

    @Test("A campaign whose tokens are all refused is set aside and named; other jobs are sent at once.")
    func badCampaign() throws {
        scene.queue.jobs = (0..<500).map { EngineScene.job(String(100_000 + $0), #""alert":"x","campaign":"bad""#) }
        var good = 0
        for number in 0..<100 {
            scene.queue.jobs.append(EngineScene.job(String(500_000 + number)))
            scene.wake()
            scene.passByToken(.milliseconds(200)) { token in
                guard token >= "500000" else { return .answer(.badDeviceToken) }
                good += 1
                return EngineScene.delivered
            }
            #expect(number < 10 || good >= number - 5, "\(good) of \(number)")
        }
        #expect(good >= 99)
        #expect(scene.queue.stats["deferred:SetAside"] ?? 0 > 100 && scene.fleet.invalid.isEmpty)
        let record = try #require(scene.records.first)
        #expect(record.scope == .campaign && record.name == "bad" && record.reason == "BadDeviceToken")
        #expect(record.othersDelivered >= 90 && record.app == "shop")
        #expect(scene.lane.observer.report().isReady)
        #expect(scene.log.events.count { $0 == "scope_slow" } == 1)
    }

    @Test("An answer counts for the campaign of its job, however many others came before it.")
    func lateAnswer() throws {
        scene.transport.streams = 3000
        let old = #""alert":"x","campaign":"old""#
        scene.add((0..<60).map { EngineScene.job(String(100_000 + $0), old) })
        scene.run()
        for number in 0..<Scopes.maximumNarrow + 100 {
            scene.push(EngineScene.job("bb", #""alert":"x","campaign":"new \#(number)""#))
            scene.transport.answer(EngineScene.delivered, at: scene.transport.submitted.count - 1)
        }
        for _ in 0..<60 { scene.answer(.serviceUnavailable) }
        let names = scene.records.map(\.name)
        #expect(names.contains("old") && !names.contains { $0.hasPrefix("new") }, "\(names)")
    }

    @Test("An operator's pause defers the app's jobs, and its end sends them.")
    func operatorsPause() throws {
        scene.fleet.pauses["shop"] = PauseRecord(reason: "a new key")
        scene.run(.seconds(2))
        scene.push(EngineScene.job("aa"))
        scene.run(.seconds(2))
        scene.push(EngineScene.job("bb"))
        scene.run(.seconds(1))
        #expect(scene.transport.tokens.count <= 1 && scene.log.events.contains("app_paused"))
        #expect(scene.lane.observer.report().isReady, "an operator wanted it")
        scene.fleet.pauses = [:]
        scene.run(.seconds(10))
        #expect(scene.log.events.contains("app_resumed"))
        scene.push(EngineScene.job("cc"))
        #expect(scene.transport.tokens.contains("cc"))
    }

    @Test("resume sends a probe at once, also if the app was not paused.")
    func resume() throws {
        let credential = try EngineScene.keyCredential()
        let scene = try EngineScene { $0.apps[0].credential = credential }
        scene.run(.seconds(2))
        scene.queue.jobs = (0..<200).map { EngineScene.job(String(100_000 + $0)) }
        scene.pass(.minutes(3)) { .answer(.invalidProviderToken) }
        let sent = scene.transport.sent.count
        scene.fleet.resumed = ["shop"]
        scene.pass(.seconds(4)) { EngineScene.delivered }
        #expect(scene.transport.sent.count > sent)
    }

    @Test("defers a job of an app that another worker has paused, also with a filter of tokens")
    func pausedWithFilter() throws {
        let filter = TokenFilter(capacity: 100)
        filter.extend(until: .distantFuture)
        scene.context.tokenFilters.replace(with: filter)
        scene.push(EngineScene.job("aa"))
        scene.answer(EngineScene.delivered)
        scene.run(.seconds(2))
        // The lane reads the pause with its next job.
        scene.fleet.pauses["shop"] = PauseRecord(reason: "a new key")
        scene.push(EngineScene.job("bb"))
        scene.run(.milliseconds(500))
        #expect(scene.transport.tokens == ["aa"])
        #expect(scene.queue.stats["deferred:AppPaused"] == 1)
    }

    @Test("A wrong environment marks no token, spends no attempt, and makes few requests.")
    func environment() throws {
        scene.queue.jobs = (0..<5000).map { EngineScene.job(String(100_000 + $0)) }
        scene.pass(.minutes(2)) { .answer(.badDeviceToken) }
        #expect(scene.fleet.invalid.isEmpty && scene.queue.dead.isEmpty)
        #expect(scene.spentNoAttempt)
        #expect(scene.transport.sent.count < 160 + 300, "\(scene.transport.sent.count)")
    }

    // MARK: Limits

    @Test("delays notifications for a throttled device, and no others")
    func throttles() throws {
        scene.push(EngineScene.job("aa"))
        scene.answer(.tooManyRequests)
        scene.push(EngineScene.job("aa"), EngineScene.job("bb"))
        scene.run()
        #expect(scene.transport.tokens == ["aa", "bb"])
        #expect(scene.queue.stats["deferred:Throttled"] == 1 && scene.fleet.throttledTokens.added == ["aa"])
    }

    @Test("delays notifications for a device of which another lane knows that it is throttled")
    func throttledElsewhere() throws {
        scene.run(.seconds(2))
        let throttled = scene.fleet.throttledTokens
        // The first look-up is sent together with the question for the number of throttled tokens.
        scene.push(EngineScene.job("aa"))
        scene.answer(EngineScene.delivered)
        let lookUps = throttled.lookUps
        scene.push(EngineScene.job("aa"))
        scene.answer(EngineScene.delivered)
        #expect(throttled.lookUps == lookUps && scene.transport.tokens == ["aa", "aa"])
        throttled.ends = ["aa": EngineScene.time(scene.loop.now) + 30_000, "cc": 5]
        scene.run(.seconds(2))
        scene.push(EngineScene.job("bb"), EngineScene.fanOut(["aa", "cc"]))
        scene.run(.milliseconds(100))
        #expect(throttled.lookUps == lookUps + 1)
        #expect(scene.transport.tokens.dropFirst(2).sorted() == ["bb", "cc"])
    }

    @Test("sends no job before the throttled and the invalid tokens are known, which may be on different servers")
    func throttledOnSlowServer() throws {
        let throttled = scene.fleet.throttledTokens
        throttled.ends = ["aa": EngineScene.time(scene.loop.now) + 30_000]
        throttled.lookUpTime = .milliseconds(80)
        scene.run(.seconds(2))
        scene.push(EngineScene.job("aa"), EngineScene.job("bb"))
        scene.run(.milliseconds(200))
        #expect(scene.transport.tokens == ["bb"])
    }

    @Test("sends no more than the app's rate allows")
    func rate() throws {
        let scene = try EngineScene { $0.apps[0].maximumPerSecond = 20 }
        scene.fleet.rateWait = 50
        for number in 0..<60 { scene.queue.jobs.append(EngineScene.job(String(1000 + number))) }
        scene.push(EngineScene.job("ffff"))
        scene.run(.milliseconds(100))
        // A portion is a twentieth of a second's notifications.
        #expect((1...5).contains(scene.transport.sent.count))
    }

    @Test("defers jobs whose app has no connection, without an attempt")
    func unconnected() throws {
        scene.transport.usableConnections = 0
        scene.pushOne()
        scene.transport.streams = 0
        scene.pushOne(token: "cd")
        scene.run(.seconds(10))
        if !scene.transport.submitted.isEmpty { scene.answer(EngineScene.delivered) }
        scene.run()
        #expect(scene.queue.stats["deferred:NoConnection"] ?? 0 <= 1 && scene.queue.stats["retried"] == nil)
    }

    // MARK: The queue

    @Test("continues under another name after its lease was lost, and settles no old claims")
    func lostLease() throws {
        scene.pushOne()
        scene.queue.leaseIsLost = true
        scene.pushOne(token: "cd")
        scene.run(.seconds(12))
        #expect(scene.queue.holders == ["w.0.1"] && scene.log.events.contains("lease_lost"))
        let settled = scene.queue.settlements
        scene.answer(EngineScene.delivered)
        #expect(scene.counters.lostClaims == 1 && scene.queue.stats["delivered"] == nil)
        scene.run()
        #expect(scene.queue.settlements == settled || scene.queue.stats["delivered"] ?? 0 <= 1)
    }

    @Test("takes no lease while the number of shards of the invalid tokens is changed, and says so")
    func resharding() throws {
        let scene = try EngineScene(isStarted: false)
        let fleet = scene.fleet
        fleet.resharding = TokenDivision(shards: 1, incomplete: 16, since: 5)
        try scene.start()
        scene.pushOne()
        scene.run(.seconds(30))
        #expect(scene.queue.claims == 0 && scene.transport.sent.isEmpty)
        #expect(scene.lane.observer.problems.contains { $0.reason.contains("`apns-worker invalid reshard --to 1`") })
        #expect(scene.log.events.count { $0 == "redis_refused" } >= 1)
        fleet.resharding = nil
        scene.run(.seconds(1))
        #expect(scene.transport.sent.count == 1 && scene.lane.observer.problems.isEmpty)
        // A lane that has a lease keeps it and works, because the operator may have overlooked the lane.
        fleet.resharding = TokenDivision(shards: 16, incomplete: 1, since: 6)
        scene.pushOne(token: "cd")
        #expect(scene.transport.sent.count == 2)
        for _ in 0..<2 { scene.answer(EngineScene.delivered) }
        // A lane without a lease waits.
        scene.queue.leaseIsLost = true
        scene.run(.seconds(30))
        let claims = scene.queue.claims
        #expect(scene.log.events.contains("lease_lost"))
        scene.run(.seconds(30))
        #expect(scene.queue.claims == claims)
        fleet.resharding = nil
        scene.pushOne(token: "ef")
        scene.run(.seconds(1))
        #expect(scene.transport.tokens.last == "ef")
    }

    @Test("takes a lease although the shared state can't be reached")
    func unreachableDivision() throws {
        let scene = try EngineScene(isStarted: false)
        scene.fleet.isReady = false
        try scene.start()
        scene.pushOne()
        #expect(scene.transport.sent.count == 1)
    }

    @Test("processes claims that it has forgotten")
    func recovers() throws {
        scene.queue.forget(EngineScene.job("ee"), number: 7)
        scene.push(EngineScene.job("aa"))
        scene.answer(EngineScene.delivered)
        scene.run(.seconds(25))
        #expect(scene.transport.tokens == ["aa", "ee"] && scene.log.events.contains("settlements_lost"))
        #expect(scene.counters.possibleDuplicates == 1)
        scene.finish()
        #expect(scene.queue.held.isEmpty)
    }

    @Test("settles again after a refusal, and logs it once")
    func refusals() throws {
        scene.pushOne()
        scene.queue.refusal = .unexpectedReply("settle")
        scene.answer(EngineScene.delivered)
        scene.run(.seconds(4))
        #expect(scene.stats.isEmpty && scene.log.events.count { $0 == "redis_refused" } >= 1)
        scene.queue.refusal = nil
        scene.run(.seconds(3))
        #expect(scene.stats == ["delivered": 1] && scene.log.events.contains("redis_accepted"))
    }

    @Test("claims nothing while it is quiet, and continues afterwards")
    func quiet() throws {
        scene.lane.setQuiet(true)
        scene.pushOne()
        #expect(scene.transport.sent.isEmpty)
        scene.lane.setQuiet(false)
        scene.run()
        #expect(scene.transport.sent.count == 1)
    }

    // MARK: Drain and reload

    @Test("finishes requests in flight, releases the rest, and closes everything")
    func drains() throws {
        scene.transport.streams = 1
        scene.push(EngineScene.job("aa"))
        let end = scene.lane.drain(within: .seconds(5))
        scene.run()
        var hasEnded = false
        end.whenComplete { _ in hasEnded = true }
        #expect(!hasEnded)
        scene.finish()
        #expect(hasEnded && scene.queue.released && scene.stats == ["delivered": 1])
        #expect(scene.transport.calls.contains("close"))
    }

    @Test("gives up on answers at the drain's deadline, and settles them as uncertain")
    func cutsDrainShort() throws {
        scene.pushOne()
        let end = scene.lane.drain(within: .seconds(1))
        scene.run(.seconds(2))
        var hasEnded = false
        end.whenComplete { _ in hasEnded = true }
        scene.run()
        #expect(hasEnded && scene.stats["retried"] == 1 && scene.log.events.contains("drain_cut_short"))
    }

    @Test("adds, changes and removes apps while jobs are in flight")
    func reloads() throws {
        let scene = try EngineScene(apps: ["shop", "old"])
        scene.push(#"{"token":"aa","app":"old","alert":"x"}"#)
        var configuration = scene.context.configuration
        configuration.apps = try ["shop", "news"].map(EngineScene.app)
        configuration.apps[0].maximumStreams = 7
        let prepared = try configuration.apps.map { try AppSender.Prepared($0) }
        _ = scene.lane.reload(configuration, prepared)
        scene.run()
        scene.push(
            #"{"token":"bb","app":"old","alert":"x"}"#, #"{"token":"cc","app":"news","alert":"x"}"#,
            #"{"token":"dd","app":"shop","alert":"x"}"#)
        scene.run()
        #expect(scene.queue.dead.map(\.reason) == ["UnknownApp"])
        #expect(scene.allTransports.count == 4, "shop has new connections, and news its first")
        #expect(scene.transport(2).tokens == ["cc"] && scene.transport(0).tokens == ["dd"])
        scene.transport(1).answer(EngineScene.delivered)
        scene.run()
        #expect(scene.queue.stats["delivered"] == 1)
    }
}
