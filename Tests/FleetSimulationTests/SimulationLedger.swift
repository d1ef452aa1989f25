import APNS
import Foundation
import NIOCore

/// The jobs pushed by producers, the notifications accepted by APNs, and the place where each was last found.
final class SimulationLedger {
    private struct State {
        let job: Int
        var accepted = 0
        /// The number of the last audit that found the notification.
        var audit = 0
        /// True once Redis has lost the notification by returning to a snapshot.
        var isForgotten = false
        var id: String?
        /// The number of requests with ``id`` that APNs may have processed.
        var requests = 0
    }

    /// A body in Redis, which is parsed once because most are found by many audits.
    private struct Body {
        let job: Int
        let notifications: [Int]
        let mistake: String?
        let deadMistake: String?
    }

    private(set) var jobs: [SimulatedJob] = []
    private var states: [State] = []
    /// The jobs with notifications that may not have ended.
    private var openJobs: [Int] = []
    /// The tokens that APNs reports as invalid.
    private var refused: [String: APNSReason] = [:]
    private var uniqueJobs: [String: [Int]] = [:]
    /// The newest jobs, by queue and `replaces`, and the jobs that newer jobs have replaced.
    private var newest: [String: Int] = [:]
    private var replaced: Set<Int> = []
    /// The jobs with an accepted notification, by their unique IDs.
    private var sentJobs: [String: Int] = [:]
    private var bodies: [ByteBuffer: Body] = [:]
    private var audit = 0
    /// The number of notifications that were accepted more than once.
    private(set) var duplicates = 0
    /// The number of notifications that the audit has found and that have not ended.
    private(set) var openCount = 0

    var notificationCount: Int { states.count }
    var needsInvalidTokens: Bool { !refused.isEmpty }

    func job(ofNotification number: Int) -> SimulatedJob? { job(states[number].job) }

    func job(_ number: Int) -> SimulatedJob? { jobs.indices.contains(number) ? jobs[number] : nil }

    func add(_ job: SimulatedJob) {
        var job = job
        job.first = states.count
        for _ in 0..<job.count { states.append(State(job: job.number)) }
        if let id = job.uniqueID { uniqueJobs[id, default: []].append(job.number) }
        openJobs.append(job.number)
        jobs.append(job)
    }

    /// Records that a job has become the newest of its key.
    func isNewest(_ number: Int) {
        guard let key = jobs[number].replaces else { return }
        if let old = newest.updateValue(number, forKey: "\(jobs[number].queue) \(key)"), old != number {
            replaced.insert(old)
        }
    }

    /// Removes the job that was added last, because Redis did not accept it.
    func removeLast() {
        guard let job = jobs.popLast() else { return }
        states.removeLast(job.count)
        openJobs.removeLast()
        if let id = job.uniqueID { uniqueJobs[id]?.removeLast() }
    }

    /// Records that Redis has lost all jobs except the first ones.
    func forget(after count: Int) {
        for job in jobs[count...] {
            for index in job.first..<job.first + job.count { states[index].isForgotten = true }
        }
    }

    /// The job with the most notifications that were accepted more than once.
    var mostDuplicated: String {
        let most = jobs.map { job in
            (job, (0..<job.count).reduce(0) { $0 + max(0, states[job.first + $1].accepted - 1) })
        }
        .max { $0.1 < $1.1 }
        return most.map { "\($0.1) of the job \($0.0.number), \($0.0.body.prefix(200))" } ?? ""
    }

    func refuse(_ token: String, _ reason: APNSReason) { refused[token] = reason }

    func refusal(of token: String) -> APNSReason? { refused[token] }

    /// Records that APNs has accepted a notification.
    /// - Returns: the number of another job with the same ID and an accepted notification.
    func accept(_ number: Int) -> Int? {
        if states[number].accepted > 0 { duplicates += 1 }
        states[number].accepted += 1
        let job = states[number].job
        guard let id = jobs[job].uniqueID else { return nil }
        guard let other = sentJobs[id] else {
            sentJobs[id] = job
            return nil
        }
        return other == job ? nil : other
    }

    func notification(_ token: String, _ payload: ByteBuffer) -> (SimulatedJob, Int)? {
        guard let number = payload.withUnsafeReadableBytes(Self.marker), let job = job(number),
            let index = Self.index(of: token, in: job)
        else { return nil }
        return (job, job.first + index)
    }

    /// Checks that a request carries the ID of earlier requests for the notification that APNs may have processed.
    /// - Returns: the mistake, if any.
    func checkID(_ id: String?, of number: Int) -> String? {
        states[number].requests += 1
        guard let known = states[number].id, states[number].requests > 1 else {
            states[number].id = id
            return nil
        }
        return known == id ? nil : "the job \(states[number].job) was sent with the ids \(known) and \(id ?? "none")"
    }

    /// Records that APNs has refused a request or not processed it.
    func refused(_ number: Int) { states[number].requests -= 1 }

    private static func index(of token: some StringProtocol, in job: SimulatedJob) -> Int? {
        if job.tokens.count == 1 { return job.tokens[0] == token ? 0 : nil }
        if ["cc", "dd", "ee"].contains(token.prefix(2)) { return job.tokens.firstIndex { $0 == token } }
        guard let index = Int(token.dropFirst(8).prefix(8), radix: 16), index < job.tokens.count else { return nil }
        return job.tokens[index] == token ? index : nil
    }

    /// Returns the job's number, which is between two `#`.
    static func marker(_ bytes: UnsafeRawBufferPointer) -> Int? {
        guard let base = bytes.baseAddress, let hash = memchr(base, 0x23, bytes.count) else { return nil }
        var index = UnsafeRawPointer(hash) - base + 1
        var number = 0
        while index < bytes.count {
            let byte = bytes[index]
            if byte == 0x23 { return number }
            guard byte >= 0x30, byte <= 0x39 else { return nil }
            number = number * 10 + Int(byte) - 0x30
            index += 1
        }
        return nil
    }

    // MARK: Audits

    func beginAudit() {
        audit += 1
        openCount = 0
    }

    /// Records a body found in a place.
    /// - Returns: the mistake, if any.
    func found(_ bytes: ByteBuffer, queue: Int, isDead: Bool) -> String? {
        let body: Body
        if let known = bodies[bytes] {
            body = known
        } else {
            body = read(bytes)
            // A copy, because the buffer shares the storage of a whole reply.
            bodies[ByteBuffer(bytes: bytes.readableBytesView)] = body
        }
        if let mistake = body.mistake ?? (isDead ? body.deadMistake : nil) { return mistake }
        guard jobs[body.job].queue == queue else { return "the job \(body.job) is in another queue" }
        for state in body.notifications {
            if states[state].audit == audit {
                return "the notification \(state - jobs[body.job].first) of the job \(body.job) is in two places"
            }
            states[state].audit = audit
        }
        if !isDead { openCount += body.notifications.count }
        return nil
    }

    private func read(_ bytes: ByteBuffer) -> Body {
        func wrong(_ mistake: String) -> Body { Body(job: 0, notifications: [], mistake: mistake, deadMistake: nil) }
        guard let number = bytes.withUnsafeReadableBytes(Self.marker), let job = job(number) else {
            return wrong("a job that no producer has pushed: \(String(buffer: bytes).prefix(300))")
        }
        var notifications = Array(job.first..<job.first + job.count)
        if !job.isBroken, let tokens = Self.tokens(bytes) {
            let indexes = tokens.compactMap { Self.index(of: $0, in: job) }
            guard indexes.count == tokens.count else { return wrong("the job \(number) has another's tokens") }
            notifications = indexes.map { job.first + $0 }
        }
        return Body(
            job: number, notifications: notifications, mistake: nil,
            deadMistake: job.isBroken ? nil : Self.unexpected(bytes, job))
    }

    /// Returns the mistake if a good job is a dead letter although it had attempts left and its campaign was not cancelled.
    private static func unexpected(_ body: ByteBuffer, _ job: SimulatedJob) -> String? {
        let text = String(buffer: body)
        let reasons =
            ["AttemptsExhausted", "Poison", "BadDeviceToken", "DeviceTokenNotForTopic"]
            + (job.campaign == nil ? [] : ["Cancelled"])
        return reasons.contains { text.hasPrefix(#"{"v":1,"reason":"\#($0)""#) }
            ? nil : "the good job \(job.number) became a dead letter: \(text.prefix(300))"
    }

    /// Returns the tokens in a wrapper or a dead letter; `nil` for all of the job's.
    private static func tokens(_ body: ByteBuffer) -> [Substring]? {
        let text = String(buffer: body)
        let head: Substring
        if text.hasPrefix(#"{"apns_worker":1,"#) {
            head = text[..<(text.firstRange(of: #""job":"#)?.lowerBound ?? text.startIndex)]
        } else if text.hasPrefix(#"{"v":1,"#) {
            head = text.prefix { $0 != "\n" }
        } else {
            return nil
        }
        guard let start = head.firstRange(of: #""tokens":["#)?.upperBound,
            let end = head[start...].firstIndex(of: "]")
        else { return nil }
        return head[start..<end].split(separator: ",").map { $0.dropFirst().dropLast() }
    }

    /// Checks the notifications that the audit has not found.
    /// - Parameter invalid: the set of invalid tokens; `nil` if it need not be complete.
    /// - Returns: the mistake, if any.
    func endAudit(invalid: Set<String>?) -> String? {
        var open: [Int] = []
        for number in openJobs {
            let job = jobs[number]
            var mayEnd = true
            for state in job.first..<job.first + job.count
            where states[state].accepted == 0 && !states[state].isForgotten {
                mayEnd = false
                if states[state].audit == audit { continue }
                if let mistake = missing(state - job.first, of: job, invalid) { return mistake }
            }
            if !mayEnd { open.append(number) }
        }
        openJobs = open
        return nil
    }

    /// Returns the mistake if a missing notification should have been sent, or should be in Redis.
    private func missing(_ index: Int, of job: SimulatedJob, _ invalid: Set<String>?) -> String? {
        if job.isBroken { return "the broken job \(job.number) is nowhere: \(job.body)" }
        if job.expires || replaced.contains(job.number) { return nil }
        let token = job.tokens[index]
        if let id = job.uniqueID, let others = uniqueJobs[id], others.count > 1 {
            if others.contains(where: { $0 != job.number && isKnown(jobs[$0]) }) { return nil }
            if refused[token] == nil { return "all jobs with the id \(id) have ended as duplicates" }
        }
        if Self.isForeign(token, to: job.app) { return nil }
        guard refused[token] != nil else {
            return "the notification \(index) of the job \(job.number) is nowhere, and was not sent: \(job.body)"
        }
        guard let invalid, !invalid.contains(token) else { return nil }
        return "the job \(job.number) was settled, and its invalid token is not in the set: \(job.body)"
    }

    /// True for the token of a device that belongs to another app.
    static func isForeign(_ token: String, to app: Int) -> Bool {
        token.hasPrefix("cc") && token.dropFirst(11).first != Character("\(app)")
    }

    /// True if a job is in Redis, or has ended for another reason than as a duplicate.
    private func isKnown(_ job: SimulatedJob) -> Bool {
        (0..<job.count).contains { index in
            let state = states[job.first + index]
            return state.audit == audit || state.accepted > 0 || state.isForgotten || refused[job.tokens[index]] != nil
        }
    }
}
