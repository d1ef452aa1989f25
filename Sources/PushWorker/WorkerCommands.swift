import PushQueue

/// Which orders are new, without any I/O: all lanes see each of them, on all queues, again and again.
struct WorkerCommands {
    private var last: Int64 = .min

    /// Whether an order is to be obeyed.
    ///
    /// One that is not newer than another that was seen was taken back by that, or is the same.
    mutating func isNew(_ order: WorkerCommand) -> Bool {
        guard order.at > last else { return false }
        last = order.at
        return true
    }
}
