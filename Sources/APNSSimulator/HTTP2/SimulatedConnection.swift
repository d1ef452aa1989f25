import APNS
import NIOCore

/// One client's connection, without its socket: takes bytes and the time, and says what to send and when to look again.
final class SimulatedConnection {
    /// What is to become of the socket.
    enum End {
        /// All is said: close once it is sent.
        case finished
        /// Close without a word.
        case dropped
    }

    let service: SimulatedService
    let certificateTopic: String?
    /// Which of the simulator's connections it is, from 1.
    let number: Int
    /// The failure of the connection; `nil` if it works.
    private var fault: PushAction.ConnectionFault?
    /// nil on a connection on which no HTTP/2 is spoken.
    private var session: HTTP2ServerSession?
    private var wheel: DelayWheel
    private var limit: StreamLimit
    private var topics: [[UInt8]: TopicFacts] = [:]
    private var lastTopic: (bytes: [UInt8], facts: TopicFacts)?
    private var lastAuthorization: (bytes: [UInt8], standing: ProviderTokens.Standing)?
    /// The key of the first good provider token.
    private var firstKeyID: String?
    private var tally = ConnectionTally()
    private(set) var ordinal = 0
    private var lastProcessedStream: Int32 = 0
    // Streams above it are none of ours any more, since a GOAWAY that may not have been sent yet.
    private var goAwayStream: Int32?
    private var clientWentAway = false
    private(set) var moment: SimulatedMoment
    private(set) var end: End?

    /// - Parameter certificateTopic: the topic of the client's certificate, if it showed one.
    init(_ service: SimulatedService, certificateTopic: String?, at moment: SimulatedMoment) throws {
        self.service = service
        self.certificateTopic = certificateTopic
        (number, fault) = service.connectionOpened()
        self.moment = moment
        wheel = DelayWheel(now: moment.uptime / 1000)
        limit = StreamLimit(
            initial: service.configuration.initialStreams, maximum: service.configuration.maximumStreams,
            isTrusted: certificateTopic != nil)
        guard fault != .noSettings else { return }
        session = try HTTP2ServerSession(
            connection: self, streamLimit: limit.current,
            connectionWindow: fault == .noWindow ? nil : service.configuration.connectionWindow)
    }

    // MARK: Bytes and time

    func receive(_ bytes: UnsafeRawBufferPointer, at moment: SimulatedMoment) throws {
        self.moment = moment
        tally.bytesReceived += bytes.count
        guard end != .dropped else { return }
        do {
            try session?.receive(bytes)
        } catch {
            tally.protocolErrors += 1
            throw error
        }
    }

    /// Lets time pass: answers what is due and lifts limits that have lasted long enough.
    func advance(to moment: SimulatedMoment) {
        self.moment = moment
        wheel.advance(to: moment.uptime / 1000) { stream in
            // The client may have given up the stream in the meantime.
            if let slot = session?.slot(of: stream) { sendAnswer(slot) }
        }
        announce(limit.advance(to: moment.uptime))
    }

    /// When to call ``advance(to:)`` next, in microseconds of uptime; nil for not before something arrives.
    var nextTime: Int64? {
        let due = wheel.next.map { $0 * 1000 }
        guard let lifted = limit.liftedAt else { return due }
        return due.map { min($0, lifted) } ?? lifted
    }

    /// Appends what is to be sent, and enters into the account what has happened since last time.
    ///
    /// The account comes first, so that whoever has received an answer finds it counted.
    func write(into buffer: inout ByteBuffer) throws {
        let before = buffer.readableBytes
        try session?.write(into: &buffer)
        tally.bytesSent += buffer.readableBytes - before
        if end == nil, session?.isFinished == true {
            end = .finished
            // Nobody said goodbye, so it was nghttp2 that did not like what the client sent.
            if goAwayStream == nil, !clientWentAway { tally.protocolErrors += 1 }
        }
        settle()
    }

    /// The socket is gone: what was accepted and not answered is now lost.
    func closed() {
        if let session {
            for slot in session.openSlots { lose(slot) }
        }
        session = nil
        settle()
    }

    /// Says GOAWAY and finishes what is under way.
    func shutDown(reason: String) { goAway(reason: reason, lastStream: session?.highestStream ?? 0) }

    /// Answers no request any more, not even those whose answers are held back.
    func wedge() { fault = .wedge }

    /// Closes without a word.
    func drop() {
        guard end == nil else { return }
        tally.drops += 1
        end = .dropped
    }

    private func settle() {
        tally.highestConcurrentStreams = session?.highestConcurrentStreams ?? 0
        service.add(tally)
        tally = ConnectionTally()
    }

    // MARK: Requests

    func standing(authorization: UnsafeBufferPointer<UInt8>) -> ProviderTokens.Standing {
        if let lastAuthorization, authorization.isSame(as: lastAuthorization.bytes) {
            return lastAuthorization.standing
        }
        let bytes = Array(authorization)
        let standing = service.standing(authorization: bytes, now: moment.date / 1000)
        guard case .genuine(_, let keyID) = standing else { return standing }
        // Source: Apple, "Handling notification responses from APNs", UnrelatedKeyIdInToken: a connection takes the tokens of
        // the key that its first push came with.
        if let firstKeyID, firstKeyID != keyID { return .refused(.unrelatedKeyIDInToken) }
        firstKeyID = keyID
        lastAuthorization = (bytes, standing)
        return standing
    }

    func topic(_ value: UnsafeBufferPointer<UInt8>) -> TopicFacts {
        if let lastTopic, value.isSame(as: lastTopic.bytes) { return lastTopic.facts }
        let bytes = Array(value)
        let facts =
            topics[bytes]
            ?? TopicFacts(
                topic: String(decoding: bytes, as: UTF8.self), listed: service.topics,
                certificateTopic: certificateTopic)
        // Bounded, because a client may send as many different ones as it likes.
        if topics.count < 1000 { topics[bytes] = facts }
        lastTopic = (bytes, facts)
        return facts
    }

    func requestArrived(_ slot: RequestSlot) {
        if end == .dropped { return }
        if let goAwayStream, slot.stream > goAwayStream { return }
        ordinal += 1
        let id = identify(slot)
        if fault == .wedge {
            if !slot.request.isAboutChannels || slot.request.path == .broadcast { tally.requests += 1 }
            tally.silenced += 1
            slot.fate = .refused
            return record(slot, accepted: false, .silenced)
        }
        // Not before it is decided: a GOAWAY of now may leave this one out.
        defer { lastProcessedStream = max(lastProcessedStream, slot.stream) }
        if slot.request.isAboutChannels {
            if slot.request.path == .broadcast { tally.requests += 1 }
            return channelRequestArrived(slot, id: id)
        }
        tally.requests += 1
        let refusal = RequestCheck.refusal(
            slot.request, hasCertificate: certificateTopic != nil, now: moment.date / 1000,
            isObject: { JSONObjectCheck.accepts(slot.bodyBytes) })
        if let refusal {
            refuse(slot, refusal)
        } else if let token = slot.request.token {
            trust()
            if let sent = service.sendTime?.find(in: slot.bodyBytes) {
                tally.latencies.append(WallClock.microseconds() - sent)
            }
            let effect = service.judge(token, id: id, ordinal: ordinal, connection: number)
            if case .response(let response)? = effect.answer, response.status == 410 {
                service.addFeedback(token, milliseconds: response.timestamp ?? moment.date)
            }
            carryOut(effect, on: slot)
        }
    }

    /// Answers with the reason why a request is not accepted.
    func refuse(_ slot: RequestSlot, _ reason: APNSReason) {
        if RequestCheck.isAboutProviderToken(reason), certificateTopic == nil { announce(limit.distrust()) }
        if service.recorder != nil {
            record(slot, accepted: false, .answered(status: reason.status, reason: reason.rawValue))
        }
        answer(slot, PreparedAnswer(reason, milliseconds: moment.date))
    }

    /// Answers a request that nothing is accepted of.
    func answer(_ slot: RequestSlot, _ answer: PreparedAnswer) {
        slot.fate = .refused
        slot.heldAnswer = answer
        hold(slot, service.ordinaryDelay())
    }

    /// A request has passed the checks: the client is who it says.
    func trust() { announce(limit.trust()) }

    func streamClosed(_ slot: RequestSlot, errorCode: UInt32) {
        // With NO_ERROR the answer went out whole. It went unsent, or half sent, with any other code.
        if errorCode == 0, case .answered = slot.fate { return }
        lose(slot)
    }

    func goAwayReceived() { clientWentAway = true }

    func resetReceived() { tally.resetsReceived += 1 }

    // Every answer carries the id: the request's own, as it was written, or a new one.
    private func identify(_ slot: RequestSlot) -> NotificationID {
        if case .value(let id) = slot.request.id { return id }
        let id = service.newID()
        id.write(to: slot.idText)
        return id
    }

    func carryOut(_ effect: PushEffect, on slot: RequestSlot) {
        slot.fate = effect.accepts ? .accepted : .refused
        if service.recorder != nil { record(slot, accepted: effect.accepts, ReceivedNotification.Outcome(effect)) }
        if let streams = effect.streams {
            announce(limit.lower(to: streams.limit, until: streams.duration.map { moment.uptime + $0 }))
        }
        switch effect.answer {
        case nil: hold(slot, effect.delay)
        case .response(let response):
            // A plain 200 goes the way of every success.
            if !effect.accepts || response.retryAfter != nil || response.reason != nil {
                slot.heldAnswer = PreparedAnswer(response, milliseconds: moment.date)
            }
            hold(slot, effect.delay)
        case .reset(let code):
            tally.resets += 1
            session?.reset(slot.stream, code: code)
        case .goAway(let reason, let lastStream):
            switch lastStream {
            case .exact:
                goAway(reason: reason, lastStream: session?.highestStream ?? slot.stream)
                hold(slot, effect.delay)
            case .accepted: goAway(reason: reason, lastStream: lastProcessedStream)
            case .zero: goAway(reason: reason, lastStream: 0)
            }
        case .drop: drop()
        case .silence: tally.silenced += 1
        }
    }

    private func goAway(reason: String?, lastStream: Int32) {
        guard goAwayStream == nil else { return }
        goAwayStream = lastStream
        tally.goAways += 1
        session?.goAway(lastStream: lastStream, reason: reason)
    }

    private func hold(_ slot: RequestSlot, _ microseconds: Int64) {
        if microseconds <= 0 {
            sendAnswer(slot)
        } else {
            wheel.hold(stream: slot.stream, until: (moment.uptime + microseconds + 500) / 1000)
        }
    }

    private func sendAnswer(_ slot: RequestSlot) {
        guard fault != .wedge else {
            tally.silenced += 1
            return
        }
        let isAccepted = if case .accepted = slot.fate { true } else { false }
        slot.fate = .answered(accepted: isAccepted)
        if let answer = slot.heldAnswer {
            if slot.request.isAboutChannels, slot.request.path != .broadcast {
                tally.managementAnswers[answer.name, default: 0] += 1
            } else {
                tally.otherAnswers[answer.name, default: 0] += 1
            }
            session?.answer(slot, answer)
        } else {
            tally.successes += 1
            session?.succeed(slot)
        }
    }

    private func lose(_ slot: RequestSlot) {
        switch slot.fate {
        case .accepted, .answered(accepted: true):
            tally.acceptedAnswerLost += 1
            if let goAwayStream, slot.stream > goAwayStream { tally.acceptedTakenBack += 1 }
        case .undecided, .refused, .answered(accepted: false): break
        }
    }

    private func announce(_ newLimit: Int?) {
        if let newLimit { session?.setStreamLimit(newLimit) }
    }
}

extension UnsafeBufferPointer<UInt8> {
    fileprivate func isSame(as bytes: [UInt8]) -> Bool {
        guard count == bytes.count else { return false }
        return bytes.withUnsafeBufferPointer { other in
            for index in 0..<count where self[index] != other[index] { return false }
            return true
        }
    }
}
