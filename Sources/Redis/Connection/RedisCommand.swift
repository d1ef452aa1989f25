import NIOCore

/// A command and its arguments, which can be any bytes, in one buffer.
///
/// Its descriptions show only the command's name and sizes: arguments can be payloads or, in `AUTH`, a password.
public struct RedisCommand: Sendable {
    /// Gets the reply or the error of a command. An error reply is a failure; an error inside an array is not.
    public typealias Completion = (Result<RESPReply, RedisError>) -> Void

    /// The maximum size of all arguments of one command: Redis' default `proto-max-bulk-len` is 512 MiB.
    static let maximumSize = 512 * 1024 * 1024

    var arguments: ByteBuffer
    var lengths: [Int] = []

    /// Creates a command.
    ///
    /// - Parameters:
    ///   - name: the command's name, such as `EVALSHA`; add the arguments with `append`.
    ///   - arguments: the expected number of arguments.
    ///   - bytes: the expected number of bytes of all arguments.
    public init(_ name: String, expecting arguments: Int = 4, bytes: Int = 128) {
        self.arguments = ByteBufferAllocator().buffer(capacity: bytes)
        lengths.reserveCapacity(arguments + 1)
        append(name)
    }

    /// Creates a whole command of texts.
    public init(_ name: String, _ first: String, _ rest: String...) {
        self.init(name, expecting: rest.count + 1)
        append(first)
        for argument in rest { append(argument) }
    }

    /// Makes a list of arguments without a command, for ``append(contentsOf:)``.
    public init() { arguments = ByteBuffer() }

    /// The number of arguments, including the command's name.
    public var count: Int { lengths.count }

    public var byteCount: Int { arguments.readableBytes }

    /// Adds a text as UTF-8.
    public mutating func append(_ argument: String) {
        lengths.append(arguments.writeString(argument))
    }

    /// Adds a number in decimal.
    public mutating func append(_ argument: Int) {
        lengths.append(arguments.writeString(String(argument)))
    }

    public mutating func append(_ argument: ByteBuffer) {
        lengths.append(arguments.writeImmutableBuffer(argument))
    }

    public mutating func append(_ argument: UnsafeRawBufferPointer) {
        lengths.append(arguments.writeBytes(argument))
    }

    public mutating func append(_ argument: some Sequence<UInt8>) {
        lengths.append(arguments.writeBytes(argument))
    }

    public mutating func append(contentsOf collected: RedisCommand) {
        arguments.writeImmutableBuffer(collected.arguments)
        lengths += collected.lengths
    }

    /// Adds an argument that is written in parts.
    /// - Parameter write: returns the number of bytes that it has written.
    public mutating func append(_ write: (inout ByteBuffer) -> Int) {
        lengths.append(write(&arguments))
    }

    /// Writes the command in RESP.
    ///
    /// - Throws: `RedisError.commandTooLarge`; `output` is then unchanged.
    func encode(into output: inout ByteBuffer, limit: Int = maximumSize) throws(RedisError) {
        guard byteCount <= limit, lengths.count <= Int(Int32.max) else {
            throw .commandTooLarge(bytes: byteCount, limit: limit)
        }
        // "*3\r\n$3\r\nSET\r\n$1\r\n…": each length has at most ten digits.
        output.writeWithUnsafeMutableBytes(minimumWritableBytes: byteCount + (lengths.count + 1) * 16) { target in
            guard let start = target.baseAddress?.assumingMemoryBound(to: UInt8.self) else { return 0 }
            var at = start
            Self.write(UInt8(ascii: "*"), lengths.count, to: &at)
            arguments.withUnsafeReadableBytes { bytes in
                var offset = 0
                for length in lengths {
                    Self.write(UInt8(ascii: "$"), length, to: &at)
                    if length > 0, let base = bytes.baseAddress {
                        UnsafeMutableRawPointer(at).copyMemory(from: base + offset, byteCount: length)
                    }
                    at += length
                    offset += length
                    Self.endLine(&at)
                }
            }
            return at - start
        }
    }

    /// Writes a line of RESP: a type, and a length or a number of elements.
    private static func write(_ kind: UInt8, _ count: Int, to at: inout UnsafeMutablePointer<UInt8>) {
        at.pointee = kind
        at += 1
        at += ByteBuffer.writeDecimal(count, to: at)
        endLine(&at)
    }

    private static func endLine(_ at: inout UnsafeMutablePointer<UInt8>) {
        at[0] = UInt8(ascii: "\r")
        at[1] = UInt8(ascii: "\n")
        at += 2
    }
}

extension ByteBuffer {
    private static let maximumDigits = 19

    /// Writes a decimal number without creating a `String`.
    /// - Parameter number: not negative.
    /// - Returns: the number of bytes written.
    @discardableResult
    public mutating func writeDecimal(_ number: Int) -> Int {
        writeWithUnsafeMutableBytes(minimumWritableBytes: Self.maximumDigits) { target in
            guard let start = target.baseAddress?.assumingMemoryBound(to: UInt8.self) else { return 0 }
            return Self.writeDecimal(number, to: start)
        }
    }

    fileprivate static func writeDecimal(_ number: Int, to start: UnsafeMutablePointer<UInt8>) -> Int {
        precondition(number >= 0, "a negative number")
        var (count, limit) = (1, 9)
        while count < maximumDigits, number > limit { (count, limit) = (count + 1, limit &* 10 &+ 9) }
        var rest = number
        for place in (0..<count).reversed() {
            start[place] = UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest % 10)
            rest /= 10
        }
        return count
    }
}

extension RedisCommand: Redacted {
    /// The command's name and its sizes.
    public var description: String {
        let name = arguments.getString(at: arguments.readerIndex, length: lengths.first ?? 0) ?? ""
        return "\(name) (\(count - 1) arguments, \(byteCount) bytes)"
    }
}
