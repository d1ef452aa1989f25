import CZlib
import Glibc

/// Reads a file, a pipe or a terminal in pieces, and decompresses it if it begins like gzip.
package final class ListInput {
    private static let pieceSize = 1 << 18

    private let descriptor: Int32
    private let closes: Bool
    private let raw = UnsafeMutableRawBufferPointer.allocate(byteCount: pieceSize, alignment: 16)
    private var inflation: Inflation?
    private var hasBegun = false

    /// - Parameter closes: true to close the descriptor at the end.
    package init(descriptor: Int32, closes: Bool) {
        self.descriptor = descriptor
        self.closes = closes
    }

    deinit {
        raw.deallocate()
        if closes { close(descriptor) }
    }

    /// Returns the next bytes, which are valid until the next call; none at the end.
    package func next() throws(TokenListFailure) -> UnsafeRawBufferPointer {
        guard hasBegun else {
            hasBegun = true
            // The signature of gzip has two bytes, but a pipe may return a single byte.
            let count = try read(minimum: 2, into: raw)
            let first = UnsafeRawBufferPointer(rebasing: raw[..<count])
            guard first.starts(with: [0x1F, 0x8B]) else { return first }
            inflation = try Inflation(first)
            return try next()
        }
        if let inflation {
            return try inflation.next { () throws(TokenListFailure) in
                UnsafeRawBufferPointer(rebasing: raw[..<(try read(minimum: 1, into: raw))])
            }
        }
        return UnsafeRawBufferPointer(rebasing: raw[..<(try read(minimum: 1, into: raw))])
    }

    /// Reads at least `minimum` bytes, or fewer at the end.
    private func read(
        minimum: Int, into buffer: UnsafeMutableRawBufferPointer
    ) throws(TokenListFailure) -> Int {
        var count = 0
        while count < minimum {
            let more = Glibc.read(descriptor, buffer.baseAddress?.advanced(by: count), buffer.count - count)
            if more == 0 { break }
            if more < 0, errno == EINTR { continue }
            guard more > 0 else {
                throw TokenListFailure("it cannot be read: \(String(cString: strerror(errno)))")
            }
            count += more
        }
        return count
    }
}

/// Decompresses gzip (RFC 1952): one member after another, as `cat a.gz b.gz` and parallel compressors write them.
private final class Inflation {
    private let stream = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
    private let output = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 18, alignment: 16)
    /// True after a member, until the next one begins.
    private var isBetween = false

    /// - Parameter first: the first bytes of the first member; they must stay valid until the next bytes are read.
    init(_ first: UnsafeRawBufferPointer) throws(TokenListFailure) {
        stream.initialize(to: z_stream())
        feed(first)
        guard czlib_inflate_init_gzip(stream) == Z_OK else {
            throw TokenListFailure("there is not enough memory to decompress it")
        }
    }

    deinit {
        inflateEnd(stream)
        stream.deallocate()
        output.deallocate()
    }

    private func feed(_ bytes: UnsafeRawBufferPointer) {
        stream.pointee.next_in = UnsafeMutablePointer(
            mutating: bytes.baseAddress?.assumingMemoryBound(to: UInt8.self))
        stream.pointee.avail_in = UInt32(bytes.count)
    }

    /// Returns the next decompressed bytes; none at the end.
    /// - Parameter read: returns the next compressed bytes; none at the end.
    func next(
        _ read: () throws(TokenListFailure) -> UnsafeRawBufferPointer
    ) throws(TokenListFailure) -> UnsafeRawBufferPointer {
        while true {
            if stream.pointee.avail_in == 0 {
                let bytes = try read()
                if bytes.isEmpty {
                    guard isBetween else {
                        throw TokenListFailure("its gzip data ends early: the file is not complete")
                    }
                    return UnsafeRawBufferPointer(start: nil, count: 0)
                }
                feed(bytes)
            }
            if isBetween {
                // Tapes and some programs pad a file with zeros.
                while stream.pointee.avail_in > 0, stream.pointee.next_in.pointee == 0 {
                    stream.pointee.next_in += 1
                    stream.pointee.avail_in -= 1
                }
                if stream.pointee.avail_in == 0 { continue }
                inflateReset(stream)
                isBetween = false
            }
            stream.pointee.next_out = output.baseAddress?.assumingMemoryBound(to: UInt8.self)
            stream.pointee.avail_out = UInt32(output.count)
            let status = inflate(stream, Z_NO_FLUSH)
            switch status {
            case Z_OK: break
            case Z_STREAM_END: isBetween = true
            default: throw TokenListFailure("its gzip data is damaged")
            }
            let count = output.count - Int(stream.pointee.avail_out)
            if count > 0 { return UnsafeRawBufferPointer(rebasing: output[..<count]) }
        }
    }
}

/// The reason why a list of device tokens cannot be used.
package struct TokenListFailure: Error, CustomStringConvertible {
    /// A sentence about the list, such as `it cannot be read: …`.
    package let description: String

    package init(_ description: String) { self.description = description }
}
