/// The end of a gateway connection: the last bytes, their times, and how the socket is closed.
///
/// Times are in microseconds of a monotonic clock.
struct GatewayEnding {
    /// The next action.
    enum Step: Equatable {
        /// Send these bytes in a separate write.
        case send([UInt8])
        case close
        case reset
    }

    /// The time between the bytes of a split packet, long enough for the client to read them one by one.
    static let gap: Int64 = 2000

    private var steps: ArraySlice<Step>
    private var due: Int64

    /// - Parameter now: the time from which the delay counts.
    init(_ steps: [Step], at now: Int64, delay: Int64 = 0) {
        self.steps = steps[...]
        due = now + delay
    }

    /// Ends the connection with a packet.
    init(_ packet: GatewayAction.Packet, identifier: UInt32, at now: Int64, delay: Int64 = 0) {
        let whole = packet.status.packet(identifier: identifier)
        let bytes = packet.isHalf ? Array(whole[..<3]) : whole
        let sent = packet.isSplit ? bytes.map { Step.send([$0]) } : [.send(bytes)]
        self.init(sent + (packet.lingers ? [] : [.close]), at: now, delay: delay)
    }

    /// When the next step is due; nil if there is none.
    var nextTime: Int64? { steps.isEmpty ? nil : due }

    /// Returns the next step, if it is due.
    mutating func next(at now: Int64) -> Step? {
        guard due <= now, let step = steps.popFirst() else { return nil }
        if case .send? = steps.first { due = now + Self.gap }
        return step
    }

    /// Makes the rest due now: the remaining bytes in one piece, then the end.
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
