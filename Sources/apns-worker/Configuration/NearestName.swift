/// The right name for one that was mistyped.
enum NearestName {
    /// The likeliest of some names, if one is near enough to be meant.
    static func of(_ name: String, among names: some Sequence<String>) -> String? {
        let limit = max(1, name.utf8.count / 3)
        let ranked = names.map {
            (name: $0, distance: distance(Array(name.lowercased().utf8), Array($0.lowercased().utf8)))
        }
        return ranked.filter { $0.distance <= limit }.min { $0.distance < $1.distance }?.name
    }

    /// How many characters have to be put in, left out, replaced or exchanged with their neighbour.
    private static func distance(_ one: [UInt8], _ other: [UInt8]) -> Int {
        var beforeLast: [Int] = []
        var last = Array(0...other.count)
        for (i, byte) in one.enumerated() {
            var row = [i + 1]
            for (j, otherByte) in other.enumerated() {
                var best = min(last[j + 1] + 1, row[j] + 1, last[j] + (byte == otherByte ? 0 : 1))
                if i > 0, j > 0, byte == other[j - 1], one[i - 1] == otherByte {
                    best = min(best, beforeLast[j - 1] + 1)
                }
                row.append(best)
            }
            (beforeLast, last) = (last, row)
        }
        return last[other.count]
    }
}
