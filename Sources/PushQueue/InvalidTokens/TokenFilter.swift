import NIOCore
import Synchronization

/// The tokens that may be invalid, as a Bloom filter: a token that it does not contain is not in the set. The lanes of a
/// process read it without a lock while one of them adds tokens.
public final class TokenFilter: Sendable {
    /// The number of bits per token. With 12, less than 1 % of the valid tokens are looked up needlessly.
    private static let bitsPerToken = 12
    /// The bits of a token are in one block, which is a line of the processor's cache.
    private static let wordsPerBlock = 8
    private static let bitsOfToken = 7

    /// The number of tokens that it is made for.
    public let capacity: Int
    private let blocks: UInt64
    // Any thread may use the atomic values. Only `deinit` frees them.
    nonisolated(unsafe) private let words: UnsafeMutablePointer<Atomic<UInt64>>
    private let currentUntil = Atomic<UInt64>(0)

    public init(capacity: Int) {
        self.capacity = capacity
        let blocks = max(1, Self.size(capacity: capacity) / (Self.wordsPerBlock * 8))
        self.blocks = UInt64(blocks)
        words = .allocate(capacity: blocks * Self.wordsPerBlock)
        for index in 0..<blocks * Self.wordsPerBlock { (words + index).initialize(to: Atomic(0)) }
    }

    deinit {
        words.deinitialize(count: Int(blocks) * Self.wordsPerBlock)
        words.deallocate()
    }

    /// Returns the bytes of a filter for a number of tokens.
    public static func size(capacity: Int) -> Int { capacity * bitsPerToken / 8 }

    /// True if it contains all tokens that were added to the set up to a second ago.
    public func isCurrent(at now: NIODeadline) -> Bool {
        now.uptimeNanoseconds < currentUntil.load(ordering: .acquiring)
    }

    /// Makes it current for longer.
    public func extend(until end: NIODeadline) { currentUntil.store(end.uptimeNanoseconds, ordering: .releasing) }

    /// Adds a token. Call it from one thread at a time.
    /// - Parameter token: lower-case hex, as it is looked up.
    public func insert(_ token: ByteBuffer) {
        var bits = Bits(of: token, blocks: blocks)
        for _ in 0..<Self.bitsOfToken {
            let (word, mask) = bits.next()
            words[word].bitwiseOr(mask, ordering: .relaxed)
        }
    }

    /// Returns false if the token is not in the set.
    public func mayContain(_ token: ByteBuffer) -> Bool {
        var bits = Bits(of: token, blocks: blocks)
        for _ in 0..<Self.bitsOfToken {
            let (word, mask) = bits.next()
            guard words[word].load(ordering: .relaxed) & mask != 0 else { return false }
        }
        return true
    }

    /// The bits of a token, which are in one block.
    private struct Bits {
        private let firstWord: Int
        /// The numbers of the token's bits in the block, nine bits for each number.
        private var numbers: UInt64

        init(of token: ByteBuffer, blocks: UInt64) {
            let hash = TokenFilter.hash(token)
            firstWord = Int(blocks.multipliedFullWidth(by: hash).high) * TokenFilter.wordsPerBlock
            numbers = TokenFilter.mixed(hash, 0x9E37_79B9_7F4A_7C15)
        }

        mutating func next() -> (word: Int, mask: UInt64) {
            let number = Int(truncatingIfNeeded: numbers & 511)
            numbers >>= 9
            return (firstWord + number >> 6, 1 << UInt64(number & 63))
        }
    }

    private static func hash(_ token: ByteBuffer) -> UInt64 {
        token.withUnsafeReadableBytes { bytes in
            var hash = UInt64(bytes.count)
            var offset = 0
            while offset + 8 <= bytes.count {
                hash = mixed(hash, bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
                offset += 8
            }
            var rest: UInt64 = 0
            while offset < bytes.count {
                rest = rest << 8 | UInt64(bytes[offset])
                offset += 1
            }
            return mixed(hash, rest)
        }
    }

    private static func mixed(_ hash: UInt64, _ word: UInt64) -> UInt64 {
        let product = (hash ^ word ^ 0xA076_1D64_78BD_642F).multipliedFullWidth(by: 0xE703_7ED1_A0B4_28DB)
        return product.high ^ product.low
    }
}

/// The filter of a process, which its lanes read.
public final class TokenFilterSlot: Sendable {
    private let filter = Mutex<TokenFilter?>(nil)
    private let version = Atomic(0)
    private let wanted = Atomic(false)

    public init() {}

    /// A lane's reference to the filter.
    public struct Reader {
        private let slot: TokenFilterSlot
        private var version = 0
        private var filter: TokenFilter?

        public init(_ slot: TokenFilterSlot) { self.slot = slot }

        /// Returns the filter if it is current. Takes a lock only after the filter was replaced.
        public mutating func current(at now: NIODeadline) -> TokenFilter? {
            if !slot.wanted.load(ordering: .relaxed) { slot.wanted.store(true, ordering: .relaxed) }
            let latest = slot.version.load(ordering: .acquiring)
            if latest != version { (version, filter) = (latest, slot.filter.withLock { $0 }) }
            return filter.flatMap { $0.isCurrent(at: now) ? $0 : nil }
        }
    }

    public func replace(with new: TokenFilter?) {
        filter.withLock { $0 = new }
        version.add(1, ordering: .acquiringAndReleasing)
    }

    /// Returns true if a lane has asked for the filter since the last call.
    func takeWanted() -> Bool { wanted.exchange(false, ordering: .relaxed) }
}
