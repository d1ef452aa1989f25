import APNS
import Logging
import NIOCore
import PushQueue

/// Device tokens that are not valid any more: into the set with them, and nothing is sent to those that are in it.
extension Lane {
    /// Tokens that are written at once; those of one job are not parted.
    private static let invalidTokensBatch = 2000

    /// Writes tokens to the invalid set; only when it has them are their jobs settled.
    func writeInvalidTokens() {
        guard !awaitingInvalidTokens.isEmpty, writingInvalidTokens.isEmpty, invalidTokens?.isReady == true,
            eventLoop.now >= invalidTokensNotBefore
        else { return }
        var tokens: [InvalidToken] = []
        let count = awaitingInvalidTokens.firstIndex { entry in
            tokens += entry.tally?.invalidTokens ?? []
            return tokens.count >= Self.invalidTokensBatch
        }
        writingInvalidTokens = Array(awaitingInvalidTokens.prefix(count.map { $0 + 1 } ?? awaitingInvalidTokens.count))
        awaitingInvalidTokens.removeFirst(writingInvalidTokens.count)
        invalidTokens?.mark(tokens) { [self] result in
            let batch = writingInvalidTokens
            writingInvalidTokens = []
            switch result {
            case .success:
                invalidTokenCount = max(1, invalidTokenCount ?? 1)
                for entry in batch {
                    let queue = queues[entry.queue]
                    queue.awaitingInvalidTokens -= entry.tally?.invalid ?? 0
                    if entry.generation == queue.generation { queue.settle(entry) } else { counters.lostClaims += 1 }
                }
                invalidTokensAccepted()
                for queue in queues { queue.settlementGrew() }
                writeInvalidTokens()
                if phase == .draining { schedulePump() }
            case .failure(let failure):
                awaitingInvalidTokens = batch + awaitingInvalidTokens
                if failure.isAnswer { invalidTokensRefused(failure) }
            }
        }
    }

    func invalidTokensRefused(_ failure: QueueConnection.Failure) {
        invalidTokensRefusal = "\(failure)"
        invalidTokensNotBefore = eventLoop.now + QueueLane.refusalPause
        trouble(.error, "Redis does not take invalid tokens: \(failure)", "invalid tokens", at: "\(index)")
    }

    func invalidTokensAccepted() {
        guard invalidTokensRefusal != nil else { return }
        invalidTokensRefusal = nil
        guard let after = troubles.ended("invalid tokens", at: "\(index)") else { return }
        logger.notice("Redis takes invalid tokens again", metadata: ["after_ms": "\(after)"])
    }

    // MARK: Suppression

    /// Why a notification was not sent whose token was known not to be valid.
    static let suppressed = "Suppressed"

    /// Tokens that are looked up at once; those of one job are not parted.
    private static let lookUpBatch = 2000

    /// Looks up the tokens of the jobs that were accepted since the last time, all of them together.
    func lookUpTokens() {
        guard !toLookUp.isEmpty, let invalidTokens else { return }
        var waiting = toLookUp[...]
        toLookUp = []
        while !waiting.isEmpty {
            var tokens = TokenList(expecting: min(waiting.count, Self.lookUpBatch))
            var looked: [(job: Int, firstToken: Int)] = []
            while tokens.count < Self.lookUpBatch, let index = waiting.popFirst() {
                looked.append((index, tokens.count))
                appendTokens(of: index, to: &tokens)
            }
            lookUpsUnderWay += 1
            let count = tokens.count
            invalidTokens.find(tokens) { [self] result in
                lookUpsUnderWay -= 1
                switch result {
                case .success(let found): self.found(found, of: looked, count: count)
                case .failure(let failure):
                    // To send is no harm: APNs says again that the token is not valid.
                    tellOfFleetState(failure)
                    for (index, _) in looked { makeReady(index) }
                }
                if phase == .draining { dropUnsent() }
                schedulePump()
            }
        }
    }

    private func appendTokens(of index: Int, to tokens: inout TokenList) {
        guard let fanOut = jobs[index].fanOut else {
            guard let hex = jobs[index].notification?.deviceToken.hex else { return tokens.appendNothing() }
            return tokens.append(hex)
        }
        var remaining = fanOut.remaining
        while let field = remaining.next() {
            do throws(DeviceToken.Invalid) {
                tokens.append(try DeviceToken(fanOut.job.text(field)).hex)
            } catch {
                // It is told of when its turn comes.
                tokens.appendNothing()
            }
        }
    }

    private func found(_ found: [InvalidTokenSet.Found], of looked: [(job: Int, firstToken: Int)], count: Int) {
        // Nearly always.
        if found.isEmpty {
            for (index, _) in looked { makeReady(index) }
            return
        }
        var hits = found[...]
        var registered: [InvalidTokenSet.Registration] = []
        for (number, (index, first)) in looked.enumerated() {
            let end = number + 1 < looked.count ? looked[number + 1].firstToken : count
            if let hit = hits.first, hit.place < end {
                let own = hits.prefix { $0.place < end }
                hits = hits.dropFirst(own.count)
                let outcome = suppressed(own, firstToken: first, of: index)
                registered += outcome.registered
                suppress(outcome.places, of: index)
            } else {
                makeReady(index)
            }
        }
        invalidTokens?.register(registered) { [self] result in
            if case .failure(let failure) = result { tellOfFleetState(failure) }
        }
    }

    /// Which of a job's tokens are not sent to, and whose devices have registered again since they became invalid.
    private func suppressed(
        _ hits: some Sequence<InvalidTokenSet.Found>, firstToken: Int, of index: Int
    ) -> (places: [Int], registered: [InvalidTokenSet.Registration]) {
        let app = apps[jobs[index].app]
        let topic = jobs[index].fanOut?.template.topic ?? jobs[index].notification?.topic
        let registeredAt = jobs[index].job?.registeredAt
        var (places, registered): ([Int], [InvalidTokenSet.Registration]) = ([], [])
        for hit in hits {
            let details = hit.details
            // A token is for one topic in one environment: what is not valid elsewhere may be so here.
            if let other = details.topic, other != topic { continue }
            if let other = details.environment, other != app.environment { continue }
            if let registeredAt, registeredAt > details.at ?? 0 {
                registered.append(.init(token: hit.token, at: registeredAt))
            } else {
                places.append(hit.place - firstToken)
            }
        }
        return (places, registered)
    }

    private func suppress(_ places: [Int], of index: Int) {
        guard !places.isEmpty else { return makeReady(index) }
        if let fanOut = jobs[index].fanOut {
            fanOut.suppressed = Set(places)
            return makeReady(index)
        }
        counters.suppressed += 1
        count(.suppressed, of: index, reason: "")
        tell(
            .invalidToken, reason: Self.suppressed, to: jobs[index].job.flatMap(Self.recipient), of: index,
            wasSent: false)
        tally(of: index).suppressed += 1
        apps[jobs[index].app].waiting -= 1
        jobs[index].notification = nil
        jobs[index].unsubmitted = 0
        ended(index)
    }
}
