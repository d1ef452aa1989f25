import APNS
import NIOCore
import TLS

/// A connection over HTTP/2.
final class SimulatedConnection: SimulatorConnection {
    private let service: SimulatedService
    private let recording: ConnectionRecording?
    private let channels: ChannelResponder
    private let credentials: ClientCredentials
    /// The number of the connection, from 1.
    private let number: Int
    private var fault: PushAction.ConnectionFault?
    /// The HTTP/2 session; nil on a connection that never speaks HTTP/2.
    private var session: HTTP2ServerSession?
    private var wheel: DelayWheel
    private var limit: StreamLimit
    private var errors: ErrorRun
    /// True if answers to notifications for devices have an `apns-unique-id`. Answers to broadcasts always have it.
    private let givesUniqueIDs: Bool
    private var uniqueIDs: SeededGenerator
    private var counters = PushCounters()
    /// The number of plain 200s. They are counted separately, because counting them by name would cost more.
    private var successes = 0
    private var latencies: [Int64] = []
    private var ordinal = 0
    private var ending = ConnectionEnding()
    private var moment: SimulatedMoment

    convenience init?(
        _ service: SimulatedService, _ handshake: TLSHandshakeCompleted?, at moment: SimulatedMoment
    ) throws {
        // APNs speaks HTTP/2 only, which must be negotiated by ALPN.
        guard let handshake, handshake.applicationProtocol == "h2" else {
            if handshake != nil { service.state.withLock { $0.account.http2.counters.protocolErrors += 1 } }
            return nil
        }
        try self.init(service, certificate: ClientCertificate(handshake.peerCertificate), at: moment)
    }

    /// - Parameter certificate: the client's push certificate, if it presented one.
    init(_ service: SimulatedService, certificate: ClientCertificate?, at moment: SimulatedMoment) throws {
        self.service = service
        let settings = service.settings
        credentials = ClientCredentials(service, certificate: certificate, settings)
        (number, fault) = service.connectionOpened()
        channels = ChannelResponder(service: service, credentials: credentials, connection: number)
        recording = service.recorder.map { [number] in
            ConnectionRecording($0, .http2, connection: number, topic: certificate?.topic)
        }
        self.moment = moment
        wheel = DelayWheel(now: moment.uptime / 1000)
        limit = StreamLimit(
            initial: service.configuration.initialStreams, maximum: service.configuration.maximumStreams,
            afterError: settings.errorStreams, isTrusted: certificate != nil)
        errors = ErrorRun(settings)
        givesUniqueIDs = settings.givesUniqueIDs
        let unique = service.newID()
        uniqueIDs = SeededGenerator(seed: unique.high ^ unique.low)
        guard fault != .noSettings else { return }
        session = try HTTP2ServerSession(
            owner: self, credentials: credentials, records: service.recorder != nil, streamLimit: limit.current,
            connectionWindow: fault == .noWindow ? nil : service.configuration.connectionWindow)
    }

    // MARK: Bytes and time

    func receive(_ bytes: UnsafeRawBufferPointer, at moment: SimulatedMoment) {
        self.moment = moment
        // Bytes that arrive after the end are discarded.
        guard ending.step == nil else { return }
        counters.bytesReceived += bytes.count
        credentials.now = moment.date / 1000
        do {
            try session?.receive(bytes)
        } catch {
            // Bytes that are not HTTP/2 are the client's error. nghttp2 may have queued a GOAWAY.
            counters.protocolErrors += 1
            ending.step = .linger
        }
    }

    /// Sends the due answers, and restores stream limits whose time has passed.
    private func advance(to moment: SimulatedMoment) {
        self.moment = moment
        wheel.advance(to: moment.uptime / 1000) { stream in
            // The client may have cancelled the stream in the meantime.
            if let slot = session?.slot(of: stream) { sendAnswer(slot) }
        }
        announce(limit.advance(to: moment.uptime))
    }

    var nextTime: Int64? {
        guard ending.step == nil else { return nil }
        let due = wheel.next.map { $0 * 1000 }
        guard let lifted = limit.liftedAt else { return due }
        return due.map { min($0, lifted) } ?? lifted
    }

    // The account is updated before answers are sent, so that a client that has received an answer finds it counted.
    func next(at moment: SimulatedMoment) -> SocketStep? {
        advance(to: moment)
        var buffer = ByteBuffer()
        do { try session?.write(into: &buffer) } catch { ending.step = .close }
        counters.bytesSent += buffer.readableBytes
        if ending.step == nil, session?.isFinished == true {
            ending.step = .linger
            // Neither side sent a GOAWAY, so nghttp2 ended the session because of a protocol error.
            if ending.lastStream == nil, !ending.isByClient { counters.protocolErrors += 1 }
        }
        settle()
        if buffer.readableBytes > 0 { return .write(buffer) }
        guard !ending.isReported, let step = ending.step else { return nil }
        ending.isReported = true
        return step
    }

    /// Unsent answers count as lost.
    func closed() {
        if let session {
            for slot in session.openSlots { lose(slot) }
        }
        session = nil
        settle()
    }

    /// Sends GOAWAY and finishes what is in flight.
    func shutDown(reason: String, at moment: SimulatedMoment) -> Bool {
        goAway(reason: reason, lastStream: session?.highestStream ?? 0)
        return true
    }

    /// Stops answering requests, including those with delayed answers.
    func wedge() { fault = .wedge }

    /// Closes at once, without close_notify or GOAWAY.
    func drop() {
        guard ending.step == nil else { return }
        counters.drops += 1
        ending.step = .drop
    }

    private func settle() {
        counters.highestConcurrentStreams = session?.highestConcurrentStreams ?? 0
        if successes > 0 { counters.answers["200", default: 0] += successes }
        service.add(counters, latencies: latencies)
        (counters, successes, latencies) = (PushCounters(), 0, [])
    }

    // MARK: Requests

    func requestArrived(_ slot: StreamSlot) {
        if ending.step == .drop { return }
        if ending.excludes(slot.stream) { return }
        ordinal += 1
        let id = identify(slot)
        if !slot.request.isManagement { counters.requests += 1 }
        if fault == .wedge {
            counters.silenced += 1
            slot.fate = .refused
            record(slot, accepted: false, .silenced)
            return
        }
        // Updated after the decision, because the decision may send a GOAWAY that excludes this request.
        defer { ending.processed = max(ending.processed, slot.stream) }
        do throws(Refusal) {
            let (effect, answer) =
                slot.request.isAboutChannels
                ? try channels.decide(slot, id: id, ordinal: ordinal) : (try decide(slot, id: id), nil)
            // The request has passed the checks, which authenticates the client.
            announce(limit.trust())
            carryOut(effect, on: slot, ordinarily: answer)
        } catch {
            credentials.refused(error)
            let effect = PushEffect(answer: .response(error), accepts: false, delay: service.ordinaryDelay())
            carryOut(effect, on: slot, ordinarily: nil)
        }
    }

    /// Decides on a notification for a device.
    private func decide(_ slot: StreamSlot, id: APNSID) throws(Refusal) -> PushEffect {
        let token = try RequestCheck.token(
            of: slot.request, credentials, isObject: { JSONObjectCheck.accepts(slot.bodyBytes) })
        if let sent = service.sendTime?.find(in: slot.bodyBytes) {
            latencies.append(WallClock.microseconds() - sent)
        }
        let topic = slot.request.topic.value?.name ?? credentials.certificate?.topic ?? ""
        let effect = service.judge(.device(token), topic: topic, id: id, ordinal: ordinal, connection: number)
        if case .response(let response)? = effect.answer, response.status == 410 {
            service.addFeedback(token, milliseconds: response.timestamp ?? moment.date)
        }
        return effect
    }

    func streamClosed(_ slot: StreamSlot, errorCode: UInt32) {
        // With NO_ERROR the answer was sent completely; with any other code partly, or not at all.
        if errorCode == 0, case .answered = slot.fate { return }
        lose(slot)
    }

    func goAwayReceived() { ending.isByClient = true }

    func resetReceived() { counters.resetsReceived += 1 }

    // Every answer has an id: the request's as it was written, or a new one.
    private func identify(_ slot: StreamSlot) -> APNSID {
        if let id = slot.request.id.value { return id }
        let id = service.newID()
        id.writeUpperCase(to: slot.idText)
        return id
    }

    /// Records a request, unless it manages channels.
    private func record(
        _ slot: StreamSlot, accepted: Bool, _ outcome: ReceivedNotification.Outcome, delay: Int64 = 0
    ) {
        guard let recording, !slot.request.isManagement else { return }
        recording.record(
            slot.complete(recording.received(accepted: accepted, outcome, delay: delay, date: moment.date)))
    }

    /// Carries out the decision on a request.
    /// - Parameter answer: the answer if no rule gives another; nil for a plain 200.
    private func carryOut(_ effect: PushEffect, on slot: StreamSlot, ordinarily answer: PreparedAnswer?) {
        slot.fate = effect.accepts && !slot.request.isManagement ? .accepted : .refused
        record(slot, accepted: effect.accepts, effect.outcome, delay: effect.delay)
        slot.heldAnswer = answer
        if let streams = effect.streams {
            announce(limit.lower(to: streams.limit, until: streams.duration.map { moment.uptime + $0 }))
        }
        switch effect.answer {
        case nil: hold(slot, effect.delay)
        case .response(let response):
            // A plain 200 needs no prepared answer.
            if response.status != 200 || response.retryAfter != nil || response.reason != nil {
                slot.heldAnswer = PreparedAnswer(response, milliseconds: moment.date)
            }
            hold(slot, effect.delay)
        case .reset(let code):
            counters.resets += 1
            session?.reset(slot.stream, code: code)
        case .goAway(let reason, let lastStream):
            switch lastStream {
            case .exact:
                goAway(reason: reason, lastStream: session?.highestStream ?? slot.stream)
                hold(slot, effect.delay)
            case .accepted: goAway(reason: reason, lastStream: ending.processed)
            case .zero: goAway(reason: reason, lastStream: 0)
            }
        case .drop: drop()
        case .silence: counters.silenced += 1
        }
    }

    private func goAway(reason: String?, lastStream: Int32) {
        guard ending.lastStream == nil else { return }
        ending.lastStream = lastStream
        counters.goAways += 1
        session?.goAway(lastStream: lastStream, reason: reason)
    }

    private func hold(_ slot: StreamSlot, _ microseconds: Int64) {
        if microseconds <= 0 {
            sendAnswer(slot)
        } else {
            wheel.hold(stream: slot.stream, until: (moment.uptime + microseconds + 500) / 1000)
        }
    }

    private func sendAnswer(_ slot: StreamSlot) {
        guard fault != .wedge else {
            counters.silenced += 1
            return
        }
        let isAccepted = if case .accepted = slot.fate { true } else { false }
        slot.fate = .answered(accepted: isAccepted)
        if givesUniqueIDs && slot.request.path == .device || slot.request.path == .broadcast {
            slot.setUniqueID(APNSID(random: &uniqueIDs))
        }
        if let answer = slot.heldAnswer {
            if slot.request.isManagement {
                counters.managementAnswers[answer.name, default: 0] += 1
            } else {
                counters.answers[answer.name, default: 0] += 1
            }
            session?.answer(slot, answer)
        } else {
            successes += 1
            session?.succeed(slot)
        }
        let status = slot.heldAnswer?.status ?? 200
        announce(limit.answered(status))
        if errors.answered(status, reason: slot.heldAnswer?.reason) {
            goAway(reason: nil, lastStream: session?.highestStream ?? slot.stream)
        }
    }

    private func lose(_ slot: StreamSlot) {
        switch slot.fate {
        case .accepted, .answered(accepted: true):
            counters.acceptedAnswerLost += 1
            if ending.excludes(slot.stream) { counters.acceptedTakenBack += 1 }
        case .undecided, .refused, .answered(accepted: false): break
        }
    }

    private func announce(_ newLimit: Int?) {
        if let newLimit { session?.setStreamLimit(newLimit) }
    }
}

/// The progress of a connection's end.
private struct ConnectionEnding {
    /// The last step, when everything is sent; nil before the end.
    var step: SocketStep?
    var isReported = false
    /// The last stream of a GOAWAY, even if the GOAWAY has not been sent yet. Later streams are ignored.
    var lastStream: Int32?
    /// The highest stream that was decided on.
    var processed: Int32 = 0
    /// True if the client has sent a GOAWAY.
    var isByClient = false

    func excludes(_ stream: Int32) -> Bool { lastStream.map { stream > $0 } ?? false }
}
