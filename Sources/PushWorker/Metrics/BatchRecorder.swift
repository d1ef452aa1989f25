/// A recorder that takes many values at once, already counted in its buckets. swift-metrics knows none; where the factory's
/// recorders are such, a histogram costs the same however much it counts.
public protocol BatchRecorder: AnyObject, Sendable {
    /// Adds values that were counted.
    /// - Parameters:
    ///   - counts: how many fell into each bucket, the last without an upper bound; not cumulative.
    ///   - sum: their sum.
    /// - Returns: `false` where its buckets are others, and nothing was added.
    func add(counts: [Int], sum: Double) -> Bool
}
