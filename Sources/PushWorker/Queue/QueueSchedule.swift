/// Decides which of a lane's queues to ask for jobs next. No I/O.
///
/// In the weighted order this is stride scheduling: each queue's received jobs are divided by its weight, and the queue with the lowest
/// result is next. So queues that always have jobs share the lane in proportion to their weights. A queue without jobs costs the others
/// nothing. When it has jobs again, it gets its share from then on, without credit for the past.
struct QueueSchedule {
    enum Availability {
        case ready
        /// The reply to the queue's claim is awaited.
        case asked
        /// The queue had no jobs when it was asked, or its Redis is unreachable.
        case unavailable
    }

    private let weights: [Int]
    private let isStrict: Bool
    /// The number of jobs received from each queue, divided by its weight.
    private var progress: [Double]
    private var isDry: [Bool]
    /// The progress of the last queue that was selected.
    private var front = 0.0

    /// - Parameter weights: the queues' shares of the lane in relation to each other; at least 1.
    init(weights: [Int], isStrict: Bool) {
        self.weights = weights
        self.isStrict = isStrict
        progress = Array(repeating: 0, count: weights.count)
        isDry = Array(repeating: true, count: weights.count)
    }

    func next(_ availability: (Int) -> Availability) -> Int? {
        var best: Int?
        for index in weights.indices {
            switch availability(index) {
            case .ready:
                // In strict order, the first ready queue gets all it can use.
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

    /// Records a queue's answer.
    /// - Parameters:
    ///   - received: the number of jobs received.
    ///   - isDry: true if it has no more.
    mutating func recordAnswer(_ index: Int, received: Int, isDry: Bool) {
        let before = standing(index)
        if received > 0 { front = max(front, before) }
        progress[index] = before + Double(received) / Double(weights[index])
        self.isDry[index] = isDry
    }
}
