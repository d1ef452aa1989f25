import APNS
import LegacyAPNS
import NIOCore
import PrintableText
import TLS

/// A connection to the binary gateway.
///
/// A valid notification gets no answer. The first notification that is invalid, or that a rule applies to, ends the connection. Everything
/// after it is read and discarded.
struct SimulatedGatewayConnection: SimulatorConnection {
    private enum Phase {
        case open
        case ending(GatewayEnding)
        /// - Parameter isReported: true once ``SocketStep/stopReading`` was returned.
        case hung(isReported: Bool)
    }

    private let service: SimulatedService
    private let check: GatewayCheck
    /// The topic of the client's certificate; empty if the certificate has no topic.
    private let topic: String
    private var phase = Phase.open
    private var reader = GatewayFrameReader()
    /// True after an error that hides where the next notification begins.
    private var isUnreadable = false
    private var ordinal = 0
    /// The identifier of the last accepted notification; 0 if there was none.
    private var lastAccepted: UInt32 = 0
    private var counters = GatewayCounters()
    private var acceptedTokens: [SimulatedToken] = []
    private var acceptedIDs: [[UInt8]] = []
    private var recording: ConnectionRecording?

    init(_ service: SimulatedService, _ handshake: TLSHandshakeCompleted?, at moment: SimulatedMoment) {
        self.init(service, client: GatewayClient(handshake, service.configuration), at: moment)
    }

    init(_ service: SimulatedService, client: GatewayClient, at moment: SimulatedMoment) {
        self.service = service
        let configuration = service.configuration
        switch client {
        case .refused:
            check = GatewayCheck()
            topic = ""
            phase = .ending(GatewayEnding([.close], at: moment.uptime))
            counters.refusedClients += 1
        case .taken(let topic):
            self.topic = topic ?? ""
            check = GatewayCheck(
                maximumPayloadSize: configuration.maximumGatewayPayload,
                idMember: configuration.gatewayIDMember.map { Array($0.utf8) }, hasTopic: topic != nil)
            let (number, effect) = service.judgeGatewayConnection()
            recording = service.recorder.map { ConnectionRecording($0, .gateway, connection: number, topic: topic) }
            if let effect { carryOut(effect, on: nil, at: moment) }
        }
        settle()
    }

    // MARK: Bytes and time

    mutating func receive(_ bytes: UnsafeRawBufferPointer, at moment: SimulatedMoment) {
        counters.bytesReceived += bytes.count
        defer { settle() }
        if case .hung = phase { isUnreadable = true }
        guard !isUnreadable else {
            counters.droppedBytes += bytes.count
            return
        }
        let isJudged = service.judgesGatewayNotifications
        // The reader is moved out, because the closure changes the other members of this value.
        var reader = GatewayFrameReader()
        swap(&reader, &self.reader)
        do throws(GatewayFault) {
            try reader.read(bytes) { take($0, isJudged: isJudged, at: moment) }
            self.reader = reader
        } catch {
            isUnreadable = true
            guard case .open = phase else { return }
            refuse(error.status, identifier: error.identifier, error.isSimple, at: moment)
            gather(error, at: moment)
        }
    }

    // The account is updated before a packet is sent, so that a client that has received the packet finds it counted.
    mutating func next(at moment: SimulatedMoment) -> SocketStep? {
        switch phase {
        case .open, .hung(isReported: true): return nil
        case .hung(isReported: false):
            phase = .hung(isReported: true)
            return .stopReading
        case .ending(var ending):
            let step = ending.next(at: moment.uptime)
            phase = .ending(ending)
            if step == .close { counters.closes += 1 }
            if step == .reset { counters.resets += 1 }
            settle()
            return step
        }
    }

    var nextTime: Int64? {
        if case .ending(let ending) = phase { ending.nextTime } else { nil }
    }

    /// Sends a packet with status 10 that names the last accepted notification, and ends the connection.
    mutating func shutDown(reason: String, at moment: SimulatedMoment) -> Bool {
        switch phase {
        case .open: end(with: GatewayAction.Packet(status: .shutdown), identifier: lastAccepted, delay: 0, at: moment)
        case .ending(var ending):
            ending.hurry(at: moment.uptime)
            phase = .ending(ending)
        case .hung: phase = .ending(GatewayEnding([.close], at: moment.uptime))
        }
        settle()
        return true
    }

    mutating func drop() {
        let isOver = if case .ending(let ending) = phase { ending.nextTime == nil } else { false }
        if !isOver { counters.closes += 1 }
        settle()
    }

    private mutating func settle() {
        service.add(counters, tokens: acceptedTokens, ids: acceptedIDs)
        (counters, acceptedTokens, acceptedIDs) = (GatewayCounters(), [], [])
        recording?.write()
    }

    // MARK: Notifications

    private mutating func take(_ notification: GatewayNotification, isJudged: Bool, at moment: SimulatedMoment) {
        ordinal += 1
        counters.frames[Int(notification.command), default: 0] += 1
        guard case .open = phase else {
            counters.dropped += 1
            gather(notification, accepted: false, .dropped, at: moment)
            return
        }
        let isSimple = notification.command == 0
        switch check.judge(notification) {
        case .refused(let status):
            refuse(status, identifier: notification.identifier ?? 0, isSimple, at: moment)
            gather(notification, accepted: false, .refused(status, isSimple: isSimple), at: moment)
        case .good(let token, let id):
            guard isJudged, let effect = service.judgeGateway(token, topic: topic, ordinal: ordinal) else {
                accept(notification, token: token, id: id)
                gather(notification, accepted: true, .acceptedByGateway, at: moment)
                return
            }
            if effect.accepts { accept(notification, token: token, id: id) }
            carryOut(effect, on: (notification, token), at: moment)
            gather(
                notification, accepted: effect.accepts, effect.outcome(isSimple: isSimple), delay: effect.delay,
                at: moment)
        }
    }

    private mutating func gather(
        _ notification: GatewayNotification, accepted: Bool, _ outcome: ReceivedNotification.Outcome,
        delay: Int64 = 0, at moment: SimulatedMoment
    ) {
        guard var received = recording?.received(accepted: accepted, outcome, delay: delay, date: moment.date) else {
            return
        }
        if let token = notification.token, !token.isEmpty { received.token = token.hex }
        received.identifier = notification.identifier
        received.expiration = notification.expiration.map { Int64($0) }
        received.priority = notification.priority.map { Int($0) }
        if let payload = notification.payload {
            received.payload = Array(payload.prefix(StreamSlot.bodyCapacity))
            received.payloadSize = payload.count
        }
        recording?.gather(received)
    }

    /// Buffers a recording of invalid bytes. Their only known field is the identifier, if it precedes the fault.
    private mutating func gather(_ fault: GatewayFault, at moment: SimulatedMoment) {
        let outcome = ReceivedNotification.Outcome.refused(fault.status, isSimple: fault.isSimple)
        guard var received = recording?.received(accepted: false, outcome, date: moment.date) else { return }
        if fault.identifier != 0 { received.identifier = fault.identifier }
        recording?.gather(received)
    }

    private mutating func accept(
        _ notification: GatewayNotification, token: SimulatedToken, id: UnsafeBufferPointer<UInt8>?
    ) {
        counters.accepted += 1
        acceptedTokens.append(token)
        lastAccepted = notification.identifier ?? 0
        if let id { acceptedIDs.append(Array(id)) }
    }

    // Source: Apple, "Legacy Information": there is no error packet for command 0.
    private mutating func refuse(
        _ status: GatewayStatus, identifier: UInt32, _ isSimple: Bool, at moment: SimulatedMoment
    ) {
        counters.refused[status.label, default: 0] += 1
        if isSimple {
            phase = .ending(GatewayEnding([.close], at: moment.uptime))
        } else {
            end(with: GatewayAction.Packet(status: status), identifier: identifier, delay: 0, at: moment)
        }
    }

    private mutating func carryOut(
        _ effect: GatewayEffect, on subject: (notification: GatewayNotification, token: SimulatedToken)?,
        at moment: SimulatedMoment
    ) {
        switch effect.answer {
        case .packet(let packet):
            if !effect.accepts, packet.status != .shutdown, subject != nil {
                counters.refused[packet.status.label, default: 0] += 1
            }
            if subject?.notification.command == 0, packet.status != .shutdown {
                phase = .ending(GatewayEnding([.close], at: moment.uptime, delay: effect.delay))
            } else {
                let identifier = identifier(packet, subject?.notification)
                end(with: packet, identifier: identifier, delay: effect.delay, at: moment)
            }
        case .close: phase = .ending(GatewayEnding([.close], at: moment.uptime, delay: effect.delay))
        case .reset: phase = .ending(GatewayEnding([.reset], at: moment.uptime, delay: effect.delay))
        case .hang:
            counters.hangs += 1
            phase = .hung(isReported: false)
        case .feedback:
            if let subject { service.addFeedback(subject.token, milliseconds: effect.since ?? moment.date) }
        }
    }

    private func identifier(_ packet: GatewayAction.Packet, _ notification: GatewayNotification?) -> UInt32 {
        let own = packet.status == .shutdown ? lastAccepted : notification?.identifier ?? 0
        return switch packet.identifier {
        case .own: own
        case .zero: 0
        case .wrong: ~own
        }
    }

    private mutating func end(
        with packet: GatewayAction.Packet, identifier: UInt32, delay: Int64, at moment: SimulatedMoment
    ) {
        counters.packets[packet.status.label, default: 0] += 1
        phase = .ending(GatewayEnding(packet, identifier: identifier, at: moment.uptime, delay: delay))
    }
}

/// The end of a gateway connection: the last bytes, their times, and how the socket is closed.
///
/// Times are in microseconds of a monotonic clock.
struct GatewayEnding {
    /// The time between the bytes of a split packet, long enough for the client to read them one by one.
    static let gap: Int64 = 2000

    private var steps: ArraySlice<SocketStep>
    private var due: Int64

    /// - Parameter now: the time when the delay begins.
    init(_ steps: [SocketStep], at now: Int64, delay: Int64 = 0) {
        self.steps = steps[...]
        due = now + delay
    }

    init(_ packet: GatewayAction.Packet, identifier: UInt32, at now: Int64, delay: Int64 = 0) {
        let whole = packet.status.packet(identifier: identifier)
        let bytes = packet.isHalf ? Array(whole[..<3]) : whole
        let sent = packet.isSplit ? bytes.map { SocketStep.send([$0]) } : [.send(bytes)]
        self.init(sent + (packet.lingers ? [] : [.close]), at: now, delay: delay)
    }

    var nextTime: Int64? { steps.isEmpty ? nil : due }

    mutating func next(at now: Int64) -> SocketStep? {
        guard due <= now, let step = steps.popFirst() else { return nil }
        if case .write? = steps.first { due = now + Self.gap }
        return step
    }

    /// Makes the remaining steps due now: all remaining bytes in one piece, then the end.
    mutating func hurry(at now: Int64) {
        due = min(due, now)
        var rest = ByteBuffer()
        var end = SocketStep.close
        for step in steps {
            if case .write(let bytes) = step { rest.writeImmutableBuffer(bytes) } else { end = step }
        }
        steps = (rest.readableBytes == 0 ? [end] : [.write(rest), end])[...]
    }
}
