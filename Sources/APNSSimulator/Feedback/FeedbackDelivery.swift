/// How one connection to the feedback service is served, without its socket.
///
/// Records are taken off the list when they are about to be sent: what has been sent is forgotten, whether or not it
/// arrives, and what has not is there for the next connection.
struct FeedbackDelivery {
    /// The next action on the socket.
    enum Step: Equatable {
        /// Send these bytes, apart from those before and after.
        case send([UInt8])
        case close
    }

    private static let recordLength = 38
    /// How many records go out at once when nothing is wrong: one TLS record is full of them.
    private static let batch = 400

    private let fault: FeedbackAction?
    private var generator: SeededGenerator
    /// The rest of records begun.
    private var pending: [UInt8] = []
    private var sent = 0
    private var due = Int64.min
    private var isOver = false

    /// - Parameter seed: what sizes and waits are drawn from.
    init(_ fault: FeedbackAction?, seed: UInt64) {
        self.fault = fault
        generator = SeededGenerator(seed: seed)
    }

    /// When to call ``next(at:_:)``, in microseconds of uptime; nil when there is nothing to wait for.
    var nextTime: Int64? { isOver || due == .min ? nil : due }

    /// The next thing to do, if it is due by now.
    /// - Parameter take: takes so many records off the list.
    mutating func next(at now: Int64, _ take: (Int) -> [FeedbackRecord]) -> Step? {
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
