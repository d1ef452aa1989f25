extension Array where Element: Sendable {
    /// Calls `body` for all elements at the same time.
    /// - Returns: the values, in the order of the elements.
    func concurrentMap<Value: Sendable>(
        _ body: @escaping @Sendable (Element) async throws -> Value
    ) async throws -> [Value] {
        try await withThrowingTaskGroup(of: (Int, Value).self) { group in
            for (index, element) in enumerated() { group.addTask { (index, try await body(element)) } }
            var values: [(index: Int, value: Value)] = []
            for try await (index, value) in group { values.append((index, value)) }
            return values.sorted { $0.index < $1.index }.map(\.value)
        }
    }
}

extension Array {
    /// Divides the collection into parts of `size` elements. The last part can be smaller.
    func batches(of size: Int) -> [[Element]] {
        stride(from: 0, to: count, by: size).map { Array(self[$0...].prefix(size)) }
    }
}

extension Dictionary<String, Int> {
    /// The counts, the largest first. Equal counts are sorted by name.
    package var largestFirst: [(key: String, value: Int)] { sorted { ($1.value, $0.key) < ($0.value, $1.key) } }
}
