import COpenSSL
import Glibc
import PrintableText

/// Different device tokens in the order in which they were added. They are kept in files, so they need little memory.
///
/// One file has the tokens in their order. The other has them in parts, by their hashes. At the end each part is read into memory, and
/// repetitions are marked. Only these marks, one bit per token, grow with the number of tokens. Whole tokens are compared, not their
/// hashes, so no token is mistaken for another.
package final class UniqueTokens {
    /// The number of parts. With 100 million tokens, each part has about 100,000 tokens.
    private static let parts = 1024
    private static let blockSize = 4096
    private static let headSize = 6

    private let ordered: ScratchFile
    private var byPart: ScratchFile?
    /// The last block of each part, which is not written yet, and the number of bytes in it.
    private var blocks: UnsafeMutableRawBufferPointer
    private var filled = [Int](repeating: 0, count: parts)
    /// The positions of each part's blocks in the file, in blocks.
    private var written = [[UInt32]](repeating: [], count: parts)
    private var blockCount: UInt32 = 0
    /// One bit per added token: set for a repetition.
    private var repetitions: [UInt64] = []

    /// The number of added tokens, and of the repetitions among them.
    package private(set) var added = 0
    package private(set) var repeated = 0
    package var count: Int { added - repeated }
    /// The SHA-256 of the different tokens in their order, in hex; empty before ``finish()``.
    package private(set) var digest = ""

    /// The tokens that are read before the others; `nil` for the order in which they were added.
    private var first: TokenShare?

    // The position of the next token.
    private var position = 0
    private var ordinal = 0
    /// True once all tokens of ``first`` were read.
    private var isPastFirst = false

    /// - Parameter directory: the directory of the temporary files.
    package init(in directory: String) throws(TokenListFailure) {
        ordered = try ScratchFile(in: directory)
        byPart = try ScratchFile(in: directory)
        blocks = .allocate(byteCount: Self.parts * Self.blockSize, alignment: 16)
    }

    deinit { blocks.deallocate() }

    /// - Parameter token: its 1 to 1,024 bytes.
    package func add(_ token: UnsafeRawBufferPointer) throws(TokenListFailure) {
        precondition(!token.isEmpty && token.count <= 1024)
        guard let byPart, added < UInt32.max else { throw TokenListFailure("it has more than 4 billion tokens") }
        try ordered.append(UInt16(token.count))
        try ordered.append(token)
        let part = Int(token.hash() >> 54)
        if filled[part] + Self.headSize + token.count > Self.blockSize { try write(part, to: byPart) }
        let place = part * Self.blockSize + filled[part]
        blocks.storeBytes(of: UInt32(added), toByteOffset: place, as: UInt32.self)
        blocks.storeBytes(of: UInt16(token.count), toByteOffset: place + 4, as: UInt16.self)
        UnsafeMutableRawBufferPointer(rebasing: blocks[(place + Self.headSize)...]).copyMemory(from: token)
        filled[part] += Self.headSize + token.count
        added += 1
    }

    /// Writes the block of a part, filled up with zeros. A record of length 0 is the end of the block.
    private func write(_ part: Int, to file: ScratchFile) throws(TokenListFailure) {
        let block = UnsafeMutableRawBufferPointer(
            rebasing: blocks[(part * Self.blockSize)..<((part + 1) * Self.blockSize)])
        UnsafeMutableRawBufferPointer(rebasing: block[filled[part]...]).initializeMemory(as: UInt8.self, repeating: 0)
        try file.append(UnsafeRawBufferPointer(block))
        written[part].append(blockCount)
        blockCount += 1
        filled[part] = 0
    }

    /// Marks the repetitions, and returns to the first token. No token can be added afterwards.
    package func finish() throws(TokenListFailure) {
        guard let file = byPart else { return }
        for part in 0..<Self.parts where filled[part] > 0 { try write(part, to: file) }
        try ordered.flush()
        try file.flush()
        repetitions = [UInt64](repeating: 0, count: (added + 63) / 64)
        let longest = written.map(\.count).max() ?? 0
        let memory = UnsafeMutableRawBufferPointer.allocate(
            byteCount: max(1, longest) * Self.blockSize, alignment: 16)
        defer { memory.deallocate() }
        for part in 0..<Self.parts where !written[part].isEmpty {
            for (index, block) in written[part].enumerated() {
                let start = index * Self.blockSize
                try file.read(
                    UnsafeMutableRawBufferPointer(rebasing: memory[start..<(start + Self.blockSize)]),
                    at: Int(block) * Self.blockSize)
            }
            mark(UnsafeRawBufferPointer(rebasing: memory[..<(written[part].count * Self.blockSize)]))
        }
        written = []
        byPart = nil
        try computeDigest()
    }

    private func mark(_ part: UnsafeRawBufferPointer) {
        var records: [Int] = []
        var offset = 0
        while offset < part.count {
            let length = Self.length(part, offset)
            guard length > 0 else {
                offset = (offset / Self.blockSize + 1) * Self.blockSize
                continue
            }
            records.append(offset)
            offset += Self.headSize + length
            if Self.blockSize - offset % Self.blockSize <= Self.headSize {
                offset = (offset + Self.blockSize - 1) / Self.blockSize * Self.blockSize
            }
        }
        var size = 16
        while size < records.count * 2 { size *= 2 }
        // Open addressing; 0 is an empty place.
        var table = [UInt32](repeating: 0, count: size)
        for (index, record) in records.enumerated() {
            let token = Self.token(part, record)
            var place = Int(truncatingIfNeeded: token.hash()) & (size - 1)
            while true {
                let other = Int(table[place])
                if other == 0 {
                    table[place] = UInt32(index + 1)
                    break
                }
                if Self.token(part, records[other - 1]).elementsEqual(bytesOf: token) {
                    let ordinal = Int(part.loadUnaligned(fromByteOffset: record, as: UInt32.self))
                    repetitions[ordinal / 64] |= 1 << UInt64(ordinal % 64)
                    repeated += 1
                    break
                }
                place = (place + 1) & (size - 1)
            }
        }
    }

    private static func length(_ part: UnsafeRawBufferPointer, _ record: Int) -> Int {
        Int(part.loadUnaligned(fromByteOffset: record + 4, as: UInt16.self))
    }

    private static func token(_ part: UnsafeRawBufferPointer, _ record: Int) -> UnsafeRawBufferPointer {
        let start = record + headSize
        return UnsafeRawBufferPointer(rebasing: part[start..<(start + length(part, record))])
    }

    private func computeDigest() throws(TokenListFailure) {
        guard let context = EVP_MD_CTX_new() else { throw TokenListFailure("there is not enough memory to read it") }
        defer { EVP_MD_CTX_free(context) }
        precondition(EVP_DigestInit_ex(context, EVP_sha256(), nil) == 1, "OpenSSL has no SHA-256")
        rewind()
        while let token = try next() {
            var length = UInt16(token.count).littleEndian
            EVP_DigestUpdate(context, &length, 2)
            EVP_DigestUpdate(context, token.baseAddress, token.count)
        }
        var digest = [UInt8](repeating: 0, count: 32)
        EVP_DigestFinal_ex(context, &digest, nil)
        self.digest = digest.hex
        rewind()
    }

    // MARK: Reading

    /// Returns to the first token, and reads the tokens of a share before the others. Call it after ``finish()``.
    /// - Returns: the number of these tokens.
    @discardableResult
    package func putFirst(_ share: TokenShare) throws(TokenListFailure) -> Int {
        first = nil
        rewind()
        var count = 0
        while let token = try next() { count += share.contains(token) ? 1 : 0 }
        first = share
        rewind()
        return count
    }

    package func rewind() { (position, ordinal, isPastFirst) = (0, 0, false) }

    /// Returns the next different token, which is valid until the next call; `nil` after the last one.
    package func next() throws(TokenListFailure) -> UnsafeRawBufferPointer? {
        guard let first else { return try nextInOrder() }
        while true {
            while let token = try nextInOrder() {
                if first.contains(token) != isPastFirst { return token }
            }
            if isPastFirst { return nil }
            (position, ordinal, isPastFirst) = (0, 0, true)
        }
    }

    private func nextInOrder() throws(TokenListFailure) -> UnsafeRawBufferPointer? {
        while ordinal < added {
            let length = Int(try ordered.window(at: position, 2).loadUnaligned(as: UInt16.self))
            let start = position + 2
            let isRepetition = repetitions[ordinal / 64] >> UInt64(ordinal % 64) & 1 == 1
            position = start + length
            ordinal += 1
            if !isRepetition { return try ordered.window(at: start, length) }
        }
        return nil
    }
}

/// A share of all device tokens, chosen by their hashes: it depends neither on a list's order nor on its other tokens.
/// A larger share with the same name includes a smaller one.
package struct TokenShare: Sendable, Equatable {
    private let limit: UInt64
    private let seed: UInt64

    /// - Parameters:
    ///   - percent: more than 0 and less than 100.
    ///   - name: shares with different names are independent of each other.
    package init(percent: Double, name: String) {
        precondition(percent > 0 && percent < 100)
        // The product is less than 2⁶⁴, because the quotient is a double below 1.
        limit = UInt64(percent / 100 * 0x1p64)
        var name = name
        seed = name.withUTF8 { UnsafeRawBufferPointer($0).hash() }
    }

    package func contains(_ token: UnsafeRawBufferPointer) -> Bool { token.hash(seed) < limit }
}

extension UnsafeRawBufferPointer {
    /// Returns a hash of the bytes that is the same in all processes. All bits of the hash are equally random.
    fileprivate func hash(_ seed: UInt64 = 0) -> UInt64 {
        var hash = (UInt64(count) &* 0x9E37_79B9_7F4A_7C15) ^ seed
        func mix(_ word: UInt64) {
            hash = (hash ^ word) &* 0xFF51_AFD7_ED55_8CCD
            hash ^= hash >> 32
        }
        var offset = 0
        while offset &+ 8 <= count {
            mix(UInt64(littleEndian: loadUnaligned(fromByteOffset: offset, as: UInt64.self)))
            offset &+= 8
        }
        var rest: UInt64 = 0
        while offset < count {
            rest = rest << 8 | UInt64(self[offset])
            offset &+= 1
        }
        mix(rest)
        hash = hash &* 0xC4CE_B9FE_1A85_EC53
        return hash ^ hash >> 33
    }

    fileprivate func elementsEqual(bytesOf other: UnsafeRawBufferPointer) -> Bool {
        guard count == other.count, let baseAddress, let address = other.baseAddress else { return false }
        return memcmp(baseAddress, address, count) == 0
    }
}
