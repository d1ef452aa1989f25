/// How the gateway takes leave of a connection: what it still says, when, and what becomes of the socket.
///
/// Times are in microseconds of a clock that only goes forward.
struct GatewayFarewell {
    /// The next action.
    enum Step: Equatable {
        /// Send these bytes, apart from those before and after.
        case send([UInt8])
        case close
        case reset
    }

    /// Between the bytes of a packet that is split: long enough for the client to read them one by one.
    static let gap: Int64 = 2000

    private var steps: ArraySlice<Step>
    private var due: Int64

    /// - Parameter now: the time; the delay counts from it.
    init(_ steps: [Step], at now: Int64, delay: Int64 = 0) {
        self.steps = steps[...]
        due = now + delay
    }

    /// The end with a packet.
    init(_ packet: GatewayAction.Packet, identifier: UInt32, at now: Int64, delay: Int64 = 0) {
        let whole = packet.status.packet(identifier: identifier)
        let bytes = packet.isHalf ? Array(whole[..<3]) : whole
        let sent = packet.isSplit ? bytes.map { Step.send([$0]) } : [.send(bytes)]
        self.init(sent + (packet.lingers ? [] : [.close]), at: now, delay: delay)
    }

    /// When the next step is due; nil when there is none.
    var nextTime: Int64? { steps.isEmpty ? nil : due }

    /// The next step, if it is due.
    mutating func next(at now: Int64) -> Step? {
        guard due <= now, let step = steps.popFirst() else { return nil }
        if case .send? = steps.first { due = now + Self.gap }
        return step
    }

    /// Brings it to an end now, with what it still had to say.
    mutating func hurry(at now: Int64) {
        due = min(due, now)
        var rest: [UInt8] = []
        var end = Step.close
        for step in steps {
            if case .send(let bytes) = step { rest += bytes } else { end = step }
        }
        steps = (rest.isEmpty ? [end] : [.send(rest), end])[...]
    }
}
