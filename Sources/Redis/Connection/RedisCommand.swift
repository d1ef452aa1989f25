import CHiredis
import NIOCore

/// A command and its arguments, which may be any bytes, gathered in one buffer.
///
/// Its descriptions show the command's name and sizes only: arguments are payloads, and those of `AUTH` a password.
public struct RedisCommand: Sendable {
    /// The maximum size of all arguments of one command: Redis' `proto-max-bulk-len` is 512 MiB unless configured, and
    /// hiredis 0.14 counts the length of a command in an `int`.
    static let maximumSize = 512 * 1024 * 1024

    @usableFromInline var arguments: ByteBuffer
    @usableFromInline var lengths: [Int] = []

    /// A command.
    ///
    /// - Parameters:
    ///   - name: the command's name, such as `EVALSHA`; arguments go into `append`.
    ///   - arguments: how many arguments to expect.
    ///   - bytes: how many bytes of arguments to expect.
    public init(_ name: String, expecting arguments: Int = 4, bytes: Int = 128) {
        self.arguments = ByteBufferAllocator().buffer(capacity: bytes)
        lengths.reserveCapacity(arguments + 1)
        append(name)
    }

    /// A whole command of texts.
    public init(_ name: String, _ first: String, _ rest: String...) {
        self.init(name, expecting: rest.count + 1)
        append(first)
        for argument in rest { append(argument) }
    }

    /// The number of arguments, the command's name included.
    public var count: Int { lengths.count }

    /// The bytes of all arguments.
    public var byteCount: Int { arguments.readableBytes }

    /// Adds a text as UTF-8.
    public mutating func append(_ argument: String) {
        lengths.append(arguments.writeString(argument))
    }

    /// Adds a number in decimal.
    public mutating func append(_ argument: Int) {
        lengths.append(arguments.writeString(String(argument)))
    }

    /// Adds the readable bytes of a buffer.
    public mutating func append(_ argument: ByteBuffer) {
        lengths.append(arguments.writeImmutableBuffer(argument))
    }

    /// Adds bytes.
    public mutating func append(_ argument: UnsafeRawBufferPointer) {
        lengths.append(arguments.writeBytes(argument))
    }

    /// Adds bytes.
    public mutating func append(_ argument: some Sequence<UInt8>) {
        lengths.append(arguments.writeBytes(argument))
    }

    /// Adds an argument in parts.
    /// - Parameter write: returns the number of bytes that it has written.
    @inlinable
    public mutating func append(_ write: (inout ByteBuffer) -> Int) {
        lengths.append(write(&arguments))
    }

    /// Writes the command as Redis reads it.
    ///
    /// - Throws: `RedisError.commandTooLarge`; `output` is unchanged then.
    func encode(into output: inout ByteBuffer, limit: Int = maximumSize) throws(RedisError) {
        guard byteCount <= limit, lengths.count <= Int(Int32.max) else {
            throw .commandTooLarge(bytes: byteCount, limit: limit)
        }
        var formatted: UnsafeMutablePointer<CChar>?
        let length = format(&formatted)
        guard length > 0, let formatted else { throw .commandTooLarge(bytes: byteCount, limit: limit) }
        defer { redisFreeCommand(formatted) }
        output.writeBytes(UnsafeRawBufferPointer(start: formatted, count: length))
    }

    private func format(_ formatted: inout UnsafeMutablePointer<CChar>?) -> Int {
        arguments.withUnsafeReadableBytes { bytes in
            withUnsafeTemporaryAllocation(of: UnsafePointer<CChar>?.self, capacity: lengths.count) { pointers in
                var next = bytes.baseAddress?.assumingMemoryBound(to: CChar.self)
                for (index, length) in lengths.enumerated() {
                    pointers[index] = next
                    next = next?.advanced(by: length)
                }
                return lengths.withUnsafeBufferPointer { lengths in
                    // The result is an `int` in hiredis 0.14 and a `long long` in 1.x.
                    Int(
                        redisFormatCommandArgv(
                            &formatted, Int32(lengths.count), pointers.baseAddress, lengths.baseAddress))
                }
            }
        }
    }
}

extension RedisCommand: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
    /// The command's name and its sizes.
    public var description: String {
        let name = arguments.getString(at: arguments.readerIndex, length: lengths.first ?? 0) ?? ""
        return "\(name) (\(count - 1) arguments, \(byteCount) bytes)"
    }

    /// As `description`.
    public var debugDescription: String { description }

    /// Only what `description` shows.
    public var customMirror: Mirror { Mirror(self, children: ["command": description]) }
}
