/// Which of a lane's queues is asked for jobs next, without any I/O.
///
/// By weight it is stride scheduling: what a queue has brought is divided by its weight, and the queue with the least has
/// its turn. So queues that all have work share the lane as their weights say, to the job; one that has none costs the
/// others nothing; and one that comes back after a while gets its share from then on, and not what it did not use.
struct QueueSchedule {
    /// The availability of a queue.
    enum Availability {
        case ready
        /// It was asked, and its answer is awaited.
        case asked
        /// It was asked and had nothing, or its Redis cannot be reached.
        case unavailable
    }

    private let weights: [Int]
    private let isStrict: Bool
    /// The jobs that each queue has brought, divided by its weight.
    private var progress: [Double]
    private var isDry: [Bool]
    /// How far the queue is that last had its turn.
    private var front = 0.0

    /// - Parameter weights: how much of the lane each queue is to have, in relation to the others; at least 1.
    init(weights: [Int], isStrict: Bool) {
        self.weights = weights
        self.isStrict = isStrict
        progress = Array(repeating: 0, count: weights.count)
        isDry = Array(repeating: true, count: weights.count)
    }

    /// The queue whose turn it is.
    func next(_ availability: (Int) -> Availability) -> Int? {
        var best: Int?
        for index in weights.indices {
            switch availability(index) {
            case .ready:
                // In strict order, what comes first has all it can use.
                if isStrict { return index }
                if let found = best, standing(found) <= standing(index) { continue }
                best = index
            case .asked:
                if isStrict { return nil }
            case .unavailable: break
            }
        }
        return best
    }

    private func standing(_ index: Int) -> Double { isDry[index] ? max(progress[index], front) : progress[index] }

    /// A queue was asked and has answered.
    /// - Parameters:
    ///   - received: how many jobs it brought.
    ///   - isDry: whether it has no more.
    mutating func answered(_ index: Int, received: Int, isDry: Bool) {
        let before = standing(index)
        if received > 0 { front = max(front, before) }
        progress[index] = before + Double(received) / Double(weights[index])
        self.isDry[index] = isDry
    }
}
