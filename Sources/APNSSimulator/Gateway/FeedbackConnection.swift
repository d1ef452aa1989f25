import TLS

struct FeedbackConnection: SimulatorConnection {
    private let service: SimulatedService
    private let isRefused: Bool
    private var delivery: FeedbackDelivery

    init(_ service: SimulatedService, _ handshake: TLSHandshakeCompleted?, at moment: SimulatedMoment) {
        self.service = service
        isRefused = GatewayClient(handshake, service.configuration) == .refused
        if isRefused {
            service.feedbackClientRefused()
            delivery = FeedbackDelivery(nil, seed: 0)
        } else {
            let (fault, seed) = service.feedbackConnectionOpened()
            delivery = FeedbackDelivery(fault, seed: seed)
        }
    }

    // Clients of the feedback service send nothing.
    mutating func receive(_ bytes: UnsafeRawBufferPointer, at moment: SimulatedMoment) {}

    mutating func next(at moment: SimulatedMoment) -> SocketStep? {
        delivery.next(at: moment.uptime) { isRefused ? [] : service.takeFeedback($0) }
    }

    var nextTime: Int64? { delivery.nextTime }

    // Unsent records stay on the list.
    mutating func shutDown(reason: String, at moment: SimulatedMoment) -> Bool { false }

    mutating func drop() {}
}

/// The sending of records to one client.
///
/// Records are removed from the list just before they are sent. So a record is lost if its sending began and it does not arrive. Unsent
/// records remain for the next connection.
struct FeedbackDelivery {
    private static let recordLength = 38
    /// The number of records per write, if there is no fault. They nearly fill one TLS record.
    private static let batch = 400

    private let fault: FeedbackAction?
    private var generator: SeededGenerator
    /// The unsent part of records that were removed from the list.
    private var pending: [UInt8] = []
    private var sent = 0
    private var due = Int64.min
    private var isOver = false

    /// - Parameter seed: for the random sizes and waits.
    init(_ fault: FeedbackAction?, seed: UInt64) {
        self.fault = fault
        generator = SeededGenerator(seed: seed)
    }

    /// The time to call ``next(at:_:)``, in microseconds of uptime; nil if nothing is scheduled.
    var nextTime: Int64? { isOver || due == .min ? nil : due }

    /// Returns the next action, if one is due.
    /// - Parameter take: removes and returns at most so many records of the list.
    mutating func next(at now: Int64, _ take: (Int) -> [FeedbackRecord]) -> SocketStep? {
        guard !isOver, now >= due else { return nil }
        let size = nextSize()
        while pending.count < size {
            let missing = size - pending.count
            let records = take((missing + Self.recordLength - 1) / Self.recordLength)
            guard !records.isEmpty else { break }
            for record in records { pending += record.bytes }
        }
        guard size > 0, !pending.isEmpty else {
            isOver = true
            return fault?.hangs == true ? nil : .close
        }
        let piece = Array(pending.prefix(size))
        pending.removeFirst(piece.count)
        sent += piece.count
        if let slow = fault?.slow { due = now + slow.draw(&generator) }
        return .send(piece)
    }

    private mutating func nextSize() -> Int {
        guard let fault else { return Self.batch * Self.recordLength }
        let size = fault.pieces.map { Int.random(in: $0, using: &generator) } ?? Self.recordLength
        return fault.cut.map { min(size, $0 - sent) } ?? size
    }
}
