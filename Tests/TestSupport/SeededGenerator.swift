/// Random numbers that depend only on the seed (SplitMix64 by Sebastiano Vigna).
package struct SeededGenerator: RandomNumberGenerator {
    private var state: UInt64

    package init(seed: UInt64) { state = seed }

    package mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        return Self.mixed(state)
    }

    /// Returns a number from 0 to less than 1.
    package mutating func unit() -> Double { Double(next() >> 11) * 0x1p-53 }

    /// Returns a number that depends only on the input, and does not reveal it.
    package static func mixed(_ input: UInt64) -> UInt64 {
        var value = input
        value = (value ^ value >> 30) &* 0xBF58_476D_1CE4_E5B9
        value = (value ^ value >> 27) &* 0x94D0_49BB_1331_11EB
        return value ^ value >> 31
    }
}
