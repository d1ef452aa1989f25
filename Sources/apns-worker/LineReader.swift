import FoundationEssentials
import Glibc

/// Reads the lines of standard input or of a file, which need not be UTF-8.
final class LineReader {
    private let stream: UnsafeMutablePointer<FILE>?
    private var line: UnsafeMutablePointer<CChar>?
    private var capacity = 0
    private let closes: Bool

    /// - Parameter descriptor: the input; closed at the end unless it is standard input.
    init(descriptor: Int32 = STDIN_FILENO) {
        stream = fdopen(descriptor, "r")
        closes = descriptor != STDIN_FILENO
    }

    deinit {
        free(line)
        if closes, let stream { fclose(stream) }
    }

    /// Returns all of standard input.
    static func all() -> Data {
        var bytes = Data()
        let lines = LineReader()
        while let line = lines.next({ Data($0) }) { bytes += line + [UInt8(ascii: "\n")] }
        return bytes
    }

    /// Calls `body` with the next line, without its line feed; returns `nil` at the end.
    func next<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result? {
        guard let stream else { return nil }
        var length = getline(&line, &capacity, stream)
        guard length >= 0, let line else { return nil }
        if length > 0, line[length - 1] == 10 { length -= 1 }
        return try body(UnsafeRawBufferPointer(start: line, count: length))
    }
}
