import FoundationEssentials
import Glibc

/// Standard error and standard input as bytes.
enum Terminal {
    /// Writes to standard error. What cannot be written there cannot be told anywhere.
    static func tell(_ text: String) { put(text, STDERR_FILENO) }

    /// Writes to standard output at once: whoever reads it through a pipe is not to wait for a full buffer.
    static func say(_ text: String) { put(text, STDOUT_FILENO) }

    private static func put(_ text: String, _ descriptor: Int32) {
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
            guard count > 0 else { return }
            bytes = bytes.dropFirst(count)
        }
    }
}

/// The lines of standard input, or of a file, as they are, UTF-8 or not.
final class StandardInputLines {
    private let stream: UnsafeMutablePointer<FILE>?
    private var line: UnsafeMutablePointer<CChar>?
    private var capacity = 0
    private let closes: Bool

    /// - Parameter descriptor: of what is read; closed at the end, unless it is standard input.
    init(descriptor: Int32 = STDIN_FILENO) {
        stream = fdopen(descriptor, "r")
        closes = descriptor != STDIN_FILENO
    }

    deinit {
        free(line)
        if closes, let stream { fclose(stream) }
    }

    /// All of standard input.
    static func all() -> Data {
        var bytes = Data()
        let lines = StandardInputLines()
        while let line = lines.next({ Data($0) }) { bytes += line + [UInt8(ascii: "\n")] }
        return bytes
    }

    /// Looks at the next line without its line feed; `nil` at the end.
    func next<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result? {
        guard let stream else { return nil }
        var length = getline(&line, &capacity, stream)
        guard length >= 0, let line else { return nil }
        if length > 0, line[length - 1] == 10 { length -= 1 }
        return try body(UnsafeRawBufferPointer(start: line, count: length))
    }
}
