import APNS
import NIOCore
import PushJob
import PushQueue

/// Turns claimed bytes into notifications: decodes, routes and checks a job, looks up its tokens among the invalid ones, and passes it to
/// its app's sender. A job that can't be sent ends here with its reason.
final class Intake {
    /// The number of tokens above which a job is split.
    private static let maximumTokens = 1000
    /// The minimum number of tokens of the pieces of a job with a limited rate. Larger pieces have as many tokens as may be sent per
    /// second.
    private static let smallestPiece = 10
    /// The maximum number of tokens per look-up. The last job may exceed it, because the tokens of one job are not divided.
    private static let lookUpBatch = 2000

    private let lane: LaneContext
    /// The ledgers of the queues, by index.
    private let ledgers: [Ledger]
    private let fleet: Fleet
    private(set) var senders: [AppSender] = []
    private var router: JobRouter
    private let payloads = PayloadMemory()
    private let hintLog: HintLog
    /// Accepted jobs whose tokens must still be looked up.
    private var toLookUp: [JobID] = []
    private(set) var lookUpsInFlight = 0

    init(_ lane: LaneContext, ledgers: [Ledger], fleet: Fleet) {
        self.lane = lane
        self.ledgers = ledgers
        self.fleet = fleet
        router = JobRouter([])
        hintLog = HintLog(lane)
    }

    /// The number of requests in flight or waiting to be resent.
    var inFlight: Int { senders.reduce(0) { $0 + $1.inFlight.count } }

    /// True while a sender waits for Redis' answer about the newest jobs.
    var isAsking: Bool { senders.contains { $0.asked > 0 } }

    /// True while no job waits for a look-up.
    var isIdle: Bool { toLookUp.isEmpty && lookUpsInFlight == 0 }

    /// Routes jobs to these senders from now on. An app always keeps its index.
    func route(to senders: [AppSender]) {
        self.senders = senders
        router.replace(senders.map(\.rules)) { senders[$0].isRemoved }
    }

    /// Reads the fleet's state if it is out of date.
    func readFleetState() {
        let time = ledgers.first { $0.queue.knowsTime }?.queue.now ?? 0
        fleet.readIfDue(apps: senders.map(\.name), time: time) { [self] pauses in
            for (sender, pause) in zip(senders, pauses) {
                sender.recordPause(pause.pause)
                if pause.isResumed { sender.probeNow() }
            }
        }
    }

    // MARK: Jobs

    /// Accepts a claimed job, or ends it.
    /// - Returns: the step before the job can be accepted; `nil` if there is none.
    func accept(_ claimed: ClaimedJob, from queue: QueueContext) -> Prerequisite? {
        var job = Job(body: claimed.body, envelope: Envelope.read(claimed.body))
        if let error = JobDecoder.read(&job, as: queue.format, payloads) {
            let job = JobDecoder.identify(claimed.body, as: queue.format)
            var unsent = UnsentJob(claimed: claimed, queue: queue, job: job)
            unsent.appName = job.app.map { String(buffer: job.text($0)) }
            refuse(unsent, Reason(error))
            return nil
        }
        return accept(job, claimed, queue)
    }

    /// Accepts a job after a step, or ends it. Checks everything again, because commands, times and apps may have changed.
    /// - Returns: the next step; `nil` if the job was accepted or has ended.
    func accept(_ waiting: UnsentJob) -> Prerequisite? { accept(waiting.job, waiting.claimed, waiting.queue) }

    private func accept(_ job: Job, _ claimed: ClaimedJob, _ queue: QueueContext) -> Prerequisite? {
        if job.fair != nil || job.isUrgent { queue.recordSorted(now: lane.now) }
        let command = queue.hasCommands ? queue.commands.command(for: job) : nil
        if let (target, command) = command, let end = end(under: target, command) {
            record(end, of: unsent(job, claimed, queue))
            return nil
        }
        if job.uniqueFor != nil, !claimed.hasReservation {
            let unsent = unsent(job, claimed, queue)
            if let reservation = unsent.reservation { return .reservation(reservation, of: unsent) }
        }
        if let sendAt = job.sendAt, sendAt > queue.now, !job.envelope.isDue {
            record(.scheduled(until: sendAt), of: unsent(job, claimed, queue))
            return nil
        }
        if job.replaces != nil, claimed.confirmedAt == nil, let newest = NewestJob(job, now: queue.now) {
            return .newest(newest, of: unsent(job, claimed, queue))
        }
        if job.fairPerSecond != nil || command != nil {
            // The turn for `fair` comes first. So a job that has waited for its campaign's rate has already had its turn for `fair`.
            let questions = [fairTurn(of: job, claimed), command.flatMap { campaignTurn($0, of: job, claimed) }]
                .compactMap(\.self)
            if let question = questions.first {
                let unsent = unsent(job, claimed, queue)
                // A large job would exceed the rate at once.
                let size = questions.reduce(Self.maximumTokens) { min($0, max($1.limit.perSecond, Self.smallestPiece)) }
                guard job.tokenCount <= size else {
                    record(.split(size: size), of: unsent)
                    return nil
                }
                return .turn(question, of: unsent)
            }
        }
        do throws(Reason) {
            try send(job, claimed, queue)
        } catch {
            refuse(unsent(job, claimed, queue), error)
        }
        return nil
    }

    private func record(_ end: UnsentEnd, of unsent: UnsentJob) {
        ledgers[unsent.queue.id.index].record(end, of: unsent)
    }

    /// Ends a job that this worker does not accept, or gives it back if a worker of another configuration may accept it.
    private func refuse(_ unsent: UnsentJob, _ reason: Reason) {
        let queue = unsent.queue
        guard let refused = queue.refusals(of: unsent.envelope, in: unsent.body) else {
            return record(.dead(reason), of: unsent)
        }
        var unsent = unsent
        unsent.refusedBy = refused
        let pauses = RetryPolicy.configurationPauses(age: queue.now - unsent.firstSeen)
        record(.deferred(reason, delay: lane.random(in: pauses)), of: unsent)
    }

    // MARK: Commands of operators

    /// Returns the end of a job that operators have cancelled or paused; `nil` if it may be sent.
    private func end(
        under target: JobCommands.Target, _ command: JobCommands.Command
    ) -> UnsentEnd? {
        switch command.state {
        case .running: nil
        case .cancelled: .cancelled(target, command)
        case .paused: .deferred(Reason(.campaignPaused), delay: lane.random(in: RetryPolicy.campaignPause))
        }
    }

    private func campaignTurn(
        _ command: (JobCommands.Target, JobCommands.Command), of job: Job, _ claimed: ClaimedJob
    ) -> TurnQuestion? {
        let (target, command) = command
        guard case .campaign(let name) = target, let perSecond = command.perSecond, !claimed.hasTurn else { return nil }
        return question(
            .campaign(name, perSecond: perSecond, since: command.limitedAt), job,
            hasWaited: hasWaited(job, for: .campaignLimited, since: command.limitedAt))
    }

    private func fairTurn(of job: Job, _ claimed: ClaimedJob) -> TurnQuestion? {
        guard let key = job.fair, let perSecond = job.fairPerSecond, !claimed.hasFairTurn,
            !hasWaited(job, for: .campaignLimited)
        else { return nil }
        return question(
            .fair(String(buffer: job.text(key)), perSecond: perSecond), job,
            hasWaited: hasWaited(job, for: .fairLimited))
    }

    private func question(_ limit: SharedRates.Limit, _ job: Job, hasWaited: Bool) -> TurnQuestion {
        TurnQuestion(limit: limit, turn: .init(notifications: job.tokenCount, goesFirst: hasWaited || job.isUrgent))
    }

    /// True if a job was deferred because of a rate that has not changed since.
    private func hasWaited(_ job: Job, for own: Reason.Own, since: Int64 = 0) -> Bool {
        guard let wait = job.envelope.deferral(in: job.body), let reason = wait.reason, let at = wait.at, at >= since
        else { return false }
        return Reason.Code(text: reason) == .own(own)
    }

    /// Applies a queue's commands to all accepted jobs that have unsubmitted notifications.
    func applyCommands(of queue: QueueContext) {
        queue.cancelledInFlight = 0
        for sender in senders { sender.applyCommands(of: queue) }
    }

    private func unsent(_ job: Job, _ claimed: ClaimedJob, _ queue: QueueContext) -> UnsentJob {
        var unsent = UnsentJob(claimed: claimed, queue: queue, job: job)
        do throws(Reason) {
            let app = try router.route(job, othersRouteAlike: queue.routesAlike)
            (unsent.app, unsent.appName) = (app, router.apps[app.index].configuration.name)
        } catch {
            unsent.appName = job.app.map { String(buffer: job.text($0)) }
        }
        return unsent
    }

    /// Makes a job's notifications, and passes them to the sender of their app.
    private func send(_ job: Job, _ claimed: ClaimedJob, _ queue: QueueContext) throws(Reason) {
        let readySince = lane.now
        let now = queue.time(at: readySince)
        let firstSeen = job.envelope.enqueued ?? now
        if let expiration = job.expirationSecond(firstSeen: firstSeen), expiration > 0, expiration * 1000 <= now {
            return record(.expired, of: unsent(job, claimed, queue))
        }
        let appID = try router.route(job, othersRouteAlike: queue.routesAlike)
        let app = router.apps[appID.index]
        if let end = app.end(of: job, firstSeen: firstSeen), end <= now {
            return record(.expired, of: unsent(job, claimed, queue))
        }
        if job.tokenCount > Self.maximumTokens {
            return record(.split(size: Self.maximumTokens), of: unsent(job, claimed, queue))
        }
        let tokens = job.tokens.map { DistinctTokens($0, of: job) }
        let identity = queue.identity(of: job, claim: claimed.claim, generation: queue.generation)
        // Collected in an array, because a closure that captures the job would copy it for each call.
        var hints: [Hint] = []
        defer { for hint in hints { hintLog.write(hint, app, job) } }
        let isOwnTopic = job.topic.map { job.text($0) == app.topic } ?? true
        let isUnusual = job.facts.mayHaveMistakes || !isOwnTopic
        let readsMistakes = isUnusual && hintLog.isLookingClosely()
        let notification = try app.notification(
            for: job, identity: identity, firstSeen: firstSeen, readsMistakes: readsMistakes
        ) { hints.append($0) }
        if job.otherNames != 0 { hints += hintLog.suggestions(for: job, queue) }
        if max(job.enqueuedAt ?? 0, job.registeredAt ?? 0) > now &+ Job.clockTolerance, hintLog.isLookingClosely() {
            hints += JobHints.times(job, now: now)
        }
        if case .after = job.expiration, job.enqueuedAt == nil { lane.metrics.undatedExpirations += 1 }
        let id = lane.jobs.insert()
        lane.jobs[id].claim = claimed.claim
        lane.jobs[id].body = claimed.body
        lane.jobs[id].isSidekiq = queue.isSidekiq
        lane.jobs[id].queue = queue.id
        lane.jobs[id].generation = queue.generation
        lane.jobs[id].firstSeen = firstSeen
        lane.jobs[id].app = appID
        lane.jobs[id].topicSource =
            job.topic != nil ? .job : notification.pushType.hasTopicSuffix ? .pushType : .app
        lane.jobs[id].keepsResult = job.keepsResult
        lane.jobs[id].isOnChannel = job.channel != nil
        lane.jobs[id].hasCampaign = job.campaign != nil
        lane.jobs[id].isTraced = job.isSampled && lane.recordsTraces
        lane.jobs[id].isolation = isolation(of: job)
        lane.jobs[id].isFresh = !hasFailed(job)
        if let confirmedAt = claimed.confirmedAt { lane.jobs[id].confirmedAt = confirmedAt }
        lane.jobs[id].readySince = readySince
        lane.jobs[id].series = lane.metrics.series(
            app: appID.index, queue: queue.id.index, pushType: notification.pushType)
        let count = tokens?.count ?? 1
        lane.jobs[id].open = count
        lane.jobs[id].unsubmitted = count
        senders[appID.index].ownScopes.place(
            id, in: lane.jobs, as: job, topic: notification.topic, notification.pushType, isOwnTopic: isOwnTopic,
            identity: identity, count: count)
        // The wait is not measured after earlier attempts and deferrals, because the queue did not cause their delay.
        if job.envelope.attempt == 1, job.envelope.error == nil {
            let sendAt = job.envelope.isDue ? 0 : job.sendAt ?? 0
            let queuedSince = max(job.made(firstSeen: firstSeen), sendAt)
            lane.jobs[id].queuedSince = queuedSince
            if job.enqueuedAt != nil { lane.metrics.minutes.recordAge(now &- queuedSince, queue: queue.id.index) }
        }
        if let tokens {
            lane.jobs[id].fanOut = FanOut(
                claim: claimed.claim, template: notification, identity: identity, job: job, tokens: tokens,
                original: job.original)
            lane.jobs[id].tally = JobTally()
        } else {
            lane.jobs[id].notification = consume notification
        }
        let reclaims = job.envelope.reclaims + (claimed.isRecovered ? 1 : 0)
        if reclaims > 0 { ledgers[queue.id.index].recordPossibleDuplicates(ofReclaimed: id, reclaims: reclaims) }
        let sender = senders[appID.index]
        sender.expect(count)
        if fleet.mayFindTokens, job.channel == nil { toLookUp.append(id) } else { sender.accept(id) }
    }

    /// Returns the isolation of a job that waited because it lost its connection. A job that was alone on the connection stays alone.
    private func isolation(of job: Job) -> Isolation {
        guard let failure = job.envelope.failure(in: job.body), let reason = failure.reason else { return .shared }
        return switch Reason.Code(text: reason) {
        case .request(.connectionLost): .alone
        case .request(.lostWithOthers): .withFew
        default: .shared
        }
    }

    /// True if a notification of the job has failed. The loss of a connection with other notifications on it is not a failure of the job.
    private func hasFailed(_ job: Job) -> Bool {
        job.envelope.attempt > 1 || job.envelope.error != nil && isolation(of: job) != .withFew
    }

    // MARK: Look-up

    /// Looks up the tokens of all jobs that were accepted since the last call.
    func lookUpTokens() {
        guard !toLookUp.isEmpty else { return }
        var waiting = toLookUp[...]
        toLookUp = []
        let filter = fleet.filter()
        while !waiting.isEmpty {
            var tokens = TokenList(expecting: min(waiting.count, Self.lookUpBatch))
            var batch: [(job: JobID, firstToken: Int)] = []
            while tokens.count < Self.lookUpBatch, let id = waiting.popFirst() {
                batch.append((id, tokens.count))
                appendTokens(of: id, filter, to: &tokens)
            }
            let count = tokens.count
            guard !tokens.asksNothing else {
                apply([], to: batch, count: count)
                continue
            }
            lookUpsInFlight += 1
            let queue = queue(of: batch[0].job)
            fleet.find(tokens, now: { queue.now }) { [self] result in
                lookUpsInFlight -= 1
                switch result {
                case .success(let found): apply(found, to: batch, count: count)
                case .failure:
                    // Sending does no harm: APNs reports invalid tokens again.
                    for (id, _) in batch { accept(id) }
                }
                if lane.isDraining { for sender in senders { sender.dropUnsent() } }
                lane.schedulePump()
            }
        }
    }

    private func queue(of id: JobID) -> QueueContext { ledgers[lane.jobs[id].queue.index].queue }

    private func accept(_ id: JobID) { senders[lane.jobs[id].app.index].accept(id) }

    private func appendTokens(of id: JobID, _ filter: TokenFilter?, to tokens: inout TokenList) {
        guard let fanOut = lane.jobs[id].fanOut else {
            guard let hex = lane.jobs[id].notification?.deviceToken.hex else { return tokens.skip() }
            return add(hex, filter, &tokens)
        }
        var remaining = fanOut.remaining
        while let field = remaining.next() {
            do throws(DeviceToken.Invalid) {
                add(try DeviceToken(fanOut.job.text(field)).hex, filter, &tokens)
            } catch {
                // A malformed token becomes a dead letter when it would be submitted.
                tokens.skip()
            }
        }
    }

    /// Adds a token, unless the filter shows that the look-up would not find it.
    private func add(_ token: ByteBuffer, _ filter: TokenFilter?, _ tokens: inout TokenList) {
        if let filter, !filter.mayContain(token) { tokens.skip() } else { tokens.append(token) }
    }

    private func apply(_ found: [InvalidToken.Found], to batch: [(job: JobID, firstToken: Int)], count: Int) {
        if found.isEmpty {
            for (id, _) in batch { accept(id) }
            return
        }
        var hits = found[...]
        var registered: [InvalidToken.Removal] = []
        for (number, (id, first)) in batch.enumerated() {
            let end = number + 1 < batch.count ? batch[number + 1].firstToken : count
            let own = hits.prefix { $0.place < end }
            hits = hits.dropFirst(own.count)
            guard !own.isEmpty else {
                accept(id)
                continue
            }
            let outcome = suppressed(own, firstToken: first, of: id)
            registered += outcome.registered
            suppress(outcome.positions, of: id)
        }
        guard !registered.isEmpty else { return }
        fleet.store.invalidTokens.remove(registered) { [self] in fleet.recordWrite(.lookUps, $0) }
    }

    /// Returns the positions of a job's tokens to suppress, and the tokens to remove because their devices have registered again.
    private func suppressed(
        _ hits: some Sequence<InvalidToken.Found>, firstToken: Int, of id: JobID
    ) -> (positions: [Int], registered: [InvalidToken.Removal]) {
        let app = senders[lane.jobs[id].app.index].rules
        let topic = lane.jobs[id].fanOut?.template.topic ?? lane.jobs[id].notification?.topic
        // A time that is ahead of Redis' clock counts as now.
        let registeredAt = lane.jobs[id].job?.registeredAt.map { min($0, queue(of: id).now) }
        var (positions, registered): ([Int], [InvalidToken.Removal]) = ([], [])
        for hit in hits {
            // A token belongs to one topic in one environment. A token that is invalid elsewhere may be valid here.
            let since = hit.invalidSince(topic: topic, environment: app.environment)
            let latest = max(registeredAt ?? 0, hit.registeredAt ?? 0)
            if let since, latest <= since {
                positions.append(hit.place - firstToken)
            } else if since != nil {
                registered.append(.init(hit.token, .registered, registeredAt: latest))
            } else if topic == app.topic, hit.sets.contains(.of(app.environment)) {
                fleet.doubt(hit.token)
            }
        }
        return (positions, registered)
    }

    private func suppress(_ positions: [Int], of id: JobID) {
        guard !positions.isEmpty else { return accept(id) }
        guard let fanOut = lane.jobs[id].fanOut else { return senders[lane.jobs[id].app.index].suppress(id) }
        fanOut.suppressed = Set(positions)
        accept(id)
    }
}

extension JobCommands.Command {
    /// The explanation of a cancellation, for dead letters.
    var detail: String {
        let by = by.map { "by \($0)" } ?? "by an operator"
        return reason.map { "\(by): \($0)" } ?? by
    }
}
