import PushQueue

/// Settlements that were written and that Redis has not confirmed. No I/O.
///
/// They are written again over each new connection, because executing a settlement twice has no effect.
struct UnconfirmedSettlements {
    private var batches: [Int: Settlement] = [:]
    private var nextNumber = 0
    private var refused: Set<Int> = []
    /// The number of claims in the settlements.
    private(set) var count = 0
    /// The approximate size of the settlements in bytes.
    private(set) var size = 0

    /// The numbers of all batches, in the order of their first write.
    var numbers: [Int] { batches.keys.sorted() }

    var claims: some Sequence<ClaimID> { batches.values.lazy.flatMap(\.claims) }

    /// True if one of the batches creates the claim.
    func creates(_ claim: ClaimID) -> Bool { batches.values.contains { $0.rests.contains(claim) } }

    /// The invalid tokens that must be in Redis before the batches, oldest first.
    var invalidTokens: [InvalidToken] { numbers.flatMap { batches[$0]?.invalidTokens ?? [] } }

    /// - Returns: the batch's number.
    mutating func append(_ settlement: Settlement) -> Int {
        defer { nextNumber += 1 }
        batches[nextNumber] = settlement
        count += settlement.count
        size += settlement.size
        return nextNumber
    }

    subscript(number: Int) -> Settlement? { batches[number] }

    /// Records that Redis has confirmed a batch, and removes it.
    /// - Returns: the batch; `nil` if it was confirmed before, because it was written twice.
    mutating func recordConfirmation(_ number: Int) -> Settlement? {
        refused.remove(number)
        guard let settlement = batches.removeValue(forKey: number) else { return nil }
        count -= settlement.count
        size -= settlement.size
        return settlement
    }

    /// Records that Redis refused a batch. It must be written again after a pause.
    mutating func recordRefusal(_ number: Int) { refused.insert(number) }

    /// Returns true once if a refused batch must still be written again.
    mutating func takeRefused(_ number: Int) -> Bool { refused.remove(number) != nil }

    /// Records that all batches are written again over a new connection.
    mutating func recordRewrite() { refused = [] }
}
