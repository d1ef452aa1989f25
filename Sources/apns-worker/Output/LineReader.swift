import APNS
import ArgumentParser
import FoundationEssentials
import Glibc
import NIOCore
import Operations
import PushJob

/// Reads the lines of standard input or of a file, which need not be UTF-8.
final class LineReader {
    private static let chunk = 1 << 16

    private let descriptor: Int32
    private var buffer: [UInt8] = []
    /// The index in `buffer` of the next line.
    private var start = 0

    /// - Parameter descriptor: the input; closed at the end unless it is standard input.
    init(descriptor: Int32 = STDIN_FILENO) {
        self.descriptor = descriptor
    }

    /// Opens the file that `--from` names; `-` is standard input.
    convenience init(from path: String) throws {
        do {
            self.init(descriptor: try Self.open(path))
        } catch {
            throw ValidationError("--from \(error)")
        }
    }

    /// Opens a file; `-` is standard input.
    static func open(_ path: String) throws(Mistake) -> Int32 {
        guard path != "-" else { return STDIN_FILENO }
        let descriptor = Glibc.open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else {
            throw Mistake("\(path) cannot be read: \(String(cString: strerror(errno)))")
        }
        return descriptor
    }

    /// Returns the device tokens that a command removes, one per line of a file, in lower-case hex.
    /// - Parameter option: the option that names the file.
    static func tokensToRemove(inFile path: String, of option: String) throws -> [String] {
        let lines: LineReader
        do {
            lines = LineReader(descriptor: try open(path))
        } catch {
            throw ValidationError("\(option) \(error)")
        }
        var (number, tokens): (Int, [String]) = (0, [])
        while let line = lines.next({ String(decoding: $0, as: UTF8.self) }) {
            number += 1
            for text in TokenText.divided(line) {
                do {
                    tokens.append(String(buffer: try DeviceToken(text).hex))
                } catch {
                    throw ValidationError("\(option) \(path), line \(number): \(error); nothing was removed")
                }
            }
        }
        return tokens
    }

    deinit {
        if descriptor != STDIN_FILENO { close(descriptor) }
    }

    /// Returns all of standard input.
    static func all() -> Data {
        var bytes = Data()
        let lines = LineReader()
        while let line = lines.next({ Data($0) }) { bytes += line + [UInt8(ascii: "\n")] }
        return bytes
    }

    /// Calls `body` with the next line, without its line feed; returns `nil` at the end, or when the process is asked to stop.
    func next<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result? {
        var searched = start
        while true {
            if let end = buffer[searched...].firstIndex(of: UInt8(ascii: "\n")) {
                defer { start = end + 1 }
                return try buffer[start..<end].withUnsafeBytes(body)
            }
            // `read` removes the lines that were returned.
            searched = buffer.count - start
            guard read() else { break }
        }
        guard !buffer.isEmpty, !Interruption.isRequested else { return nil }
        defer { start = buffer.count }
        return try buffer.withUnsafeBytes(body)
    }

    /// Removes the lines that were returned, and appends what can be read.
    /// - Returns: false at the end, or when the process is asked to stop.
    private func read() -> Bool {
        buffer.removeFirst(start)
        start = 0
        var input = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        let length = buffer.count
        buffer.append(contentsOf: repeatElement(0, count: Self.chunk))
        var count = -1
        repeat {
            guard poll(&input, 1, 100) != 0 else { continue }
            count = buffer.withUnsafeMutableBytes { bytes in
                Glibc.read(
                    descriptor, UnsafeMutableRawBufferPointer(rebasing: bytes[length...]).baseAddress, Self.chunk)
            }
            if count < 0, errno != EINTR, errno != EAGAIN { break }
        } while count < 0 && !Interruption.isRequested
        buffer.removeLast(Self.chunk - max(0, count))
        return count > 0
    }
}

/// Reads jobs from lines: one job per line, or objects that are written over several lines, as `jq` does.
struct JobLines {
    private let lines: LineReader
    private var ahead: ByteBuffer?
    /// The number of the last line that was read.
    private(set) var number = 0

    init(_ lines: LineReader = LineReader()) { self.lines = lines }

    /// Skips empty lines. Returns the next job and the number of its first line; `nil` at the end.
    mutating func next() -> (text: ByteBuffer, line: Int)? {
        while let line = nextLine() {
            let first = number
            guard line.readableBytes > 0 else { continue }
            return (isCut(line) ? completed(line) : line, first)
        }
        return nil
    }

    private mutating func nextLine() -> ByteBuffer? {
        let line = ahead ?? lines.next { ByteBuffer(bytes: $0) }
        ahead = nil
        if line != nil { number += 1 }
        return line
    }

    /// Returns the lines of an object that ends on a later line. A line that begins with a brace begins another job.
    private mutating func completed(_ line: ByteBuffer) -> ByteBuffer {
        var text = line
        while let next = nextLine() {
            guard next.readableBytesView.first != UInt8(ascii: "{") else {
                ahead = next
                number -= 1
                break
            }
            // A JSON string contains no line end, so a space can replace it.
            text.writeInteger(UInt8(ascii: " "))
            text.writeImmutableBuffer(next)
            let last = next.readableBytesView.last { $0 > 0x20 }
            if last == UInt8(ascii: "}"), !isCut(text) { break }
        }
        return text
    }

    /// Returns true for an object that is not complete yet.
    private func isCut(_ text: ByteBuffer) -> Bool {
        guard text.readableBytesView.first(where: { $0 > 0x20 }) == UInt8(ascii: "{") else { return false }
        return text.withUnsafeReadableBytes { bytes in
            do throws(JSONError) {
                try JSONScanner.validate(bytes)
                return false
            } catch {
                return error.kind == .unexpectedEnd
            }
        }
    }
}
