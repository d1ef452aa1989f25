import ArgumentParser
import FoundationEssentials
import Glibc
import NIOCore
import Sockets

/// Buffered output of bytes to standard output or to a file.
final class ByteOutput {
    private static let pieceSize = 65_536

    private let descriptor: Int32
    private let name: String
    private var buffer = ByteBuffer()

    static var standard: ByteOutput { ByteOutput(STDOUT_FILENO, name: "standard output") }

    init(_ descriptor: Int32, name: String) {
        self.descriptor = descriptor
        self.name = name
    }

    /// - Throws: an exit code if the reader has closed its end, as `head` does; otherwise an error that describes the problem.
    func write(_ text: String) throws {
        buffer.writeString(text)
        if buffer.readableBytes >= Self.pieceSize { try flush() }
    }

    func write(_ bytes: ByteBuffer) throws {
        buffer.writeImmutableBuffer(bytes)
        if buffer.readableBytes >= Self.pieceSize { try flush() }
    }

    func flush() throws {
        switch Self.write(&buffer, to: descriptor) {
        case .complete: buffer.clear()
        case .abandoned: throw ExitCode(130)
        case .failed(let error): throw Terminal.outputFailure(error, name)
        }
    }

    /// Writes all bytes of a buffer, and waits for a slow reader until the process is asked to stop.
    /// - Returns: the end of the write; the buffer then holds the rest.
    static func write(_ buffer: inout ByteBuffer, to descriptor: Int32) -> DescriptorOutput.End {
        let (end, written) = buffer.withUnsafeReadableBytes { bytes in
            DescriptorOutput.write(bytes, to: descriptor) { !Interruption.isRequested }
        }
        buffer.moveReaderIndex(forwardBy: written)
        return end
    }
}

/// A file that is replaced atomically once it is complete, and otherwise left unchanged. A symbolic link is followed. A pipe or a device is
/// written directly.
final class FileReplacement {
    let output: ByteOutput
    private let path: String
    private let temporary: String
    private let descriptor: Int32
    private let isInPlace: Bool
    private var isDone = false

    /// - Throws: a usage error if no file can be created next to the path.
    init(_ path: String) throws {
        var found = stat()
        let exists = stat(path, &found) == 0
        isInPlace = exists && found.st_mode & S_IFMT != S_IFREG
        self.path = exists ? URL(filePath: path).resolvingSymlinksInPath().path : path
        temporary = isInPlace ? path : "\(self.path).\(getpid()).tmp"
        // Only the user who requested the tokens can read the file.
        descriptor = open(temporary, O_WRONLY | O_CLOEXEC | (isInPlace ? 0 : O_CREAT | O_EXCL), 0o600)
        output = ByteOutput(descriptor, name: temporary)
        guard descriptor >= 0 else {
            isDone = true
            throw ValidationError("cannot write \(temporary): \(String(cString: strerror(errno)))")
        }
    }

    deinit {
        if descriptor >= 0 { close(descriptor) }
        if !isDone, !isInPlace { unlink(temporary) }
    }

    /// Moves the file into place.
    func finish() throws {
        try output.flush()
        isDone = isInPlace
        guard !isDone else { return }
        guard fsync(descriptor) == 0, rename(temporary, path) == 0 else {
            throw ValidationError("cannot write \(path): \(String(cString: strerror(errno)))")
        }
        isDone = true
    }
}
