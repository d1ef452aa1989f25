import CProcess
import Glibc

/// A temporary file without a name. It disappears with the process, even if the process crashes.
package final class ScratchFile {
    private static let bufferSize = 1 << 18

    private let descriptor: Int32
    private let directory: String
    /// While writing, the bytes that are not in the file yet. After ``flush()``, bytes of the file, from ``windowStart`` on.
    private let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: bufferSize, alignment: 16)
    private var filled = 0
    private var windowStart = 0

    init(in directory: String) throws(TokenListFailure) {
        self.directory = directory
        descriptor = try Self.open(in: directory)
    }

    /// Opens a file for reading and writing, which the caller closes.
    package static func open(in directory: String) throws(TokenListFailure) -> Int32 {
        var path = Array("\(directory)/apns-worker-XXXXXX".utf8CString)
        let descriptor = mkstemp(&path)
        if descriptor >= 0 {
            unlink(path)
            return descriptor
        }
        let problem = errno
        // A container's file system is often read-only, so use memory.
        let memory = cprocess_memory_file("apns-worker")
        guard memory >= 0 else {
            let own = String(cString: strerror(errno))
            errno = problem
            throw TokenListFailure("\(failure(in: directory)); nor can they be kept in memory: \(own)")
        }
        return memory
    }

    deinit {
        close(descriptor)
        buffer.deallocate()
    }

    private var failure: TokenListFailure { Self.failure(in: directory) }

    private static func failure(in directory: String) -> TokenListFailure {
        TokenListFailure(
            "its tokens cannot be stored in \(directory): \(String(cString: strerror(errno))); set TMPDIR to another directory"
        )
    }

    // MARK: Writing

    func append(_ number: UInt16) throws(TokenListFailure) {
        if Self.bufferSize - filled < 2 { try flush() }
        buffer.storeBytes(of: number, toByteOffset: filled, as: UInt16.self)
        filled += 2
    }

    /// - Parameter bytes: at most ``bufferSize`` bytes.
    func append(_ bytes: UnsafeRawBufferPointer) throws(TokenListFailure) {
        if Self.bufferSize - filled < bytes.count { try flush() }
        UnsafeMutableRawBufferPointer(rebasing: buffer[filled...]).copyMemory(from: bytes)
        filled += bytes.count
    }

    func flush() throws(TokenListFailure) {
        var offset = 0
        while offset < filled {
            let count = write(descriptor, buffer.baseAddress?.advanced(by: offset), filled - offset)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { throw failure }
            offset += count
        }
        filled = 0
    }

    // MARK: Reading

    func read(_ target: UnsafeMutableRawBufferPointer, at position: Int) throws(TokenListFailure) {
        guard try readUpTo(target, at: position) == target.count else {
            throw TokenListFailure("its tokens were lost in \(directory)")
        }
    }

    private func readUpTo(_ target: UnsafeMutableRawBufferPointer, at position: Int) throws(TokenListFailure) -> Int {
        var offset = 0
        while offset < target.count {
            let count = pread(
                descriptor, target.baseAddress?.advanced(by: offset), target.count - offset, position + offset)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw failure }
            if count == 0 { break }
            offset += count
        }
        return offset
    }

    /// Returns bytes of the file, which are valid until the next call. All bytes must have been written.
    /// - Parameter count: at most ``bufferSize``.
    func window(at position: Int, _ count: Int) throws(TokenListFailure) -> UnsafeRawBufferPointer {
        if position < windowStart || position + count > windowStart + filled {
            (windowStart, filled) = (position, 0)
            filled = try readUpTo(buffer, at: position)
        }
        guard position + count <= windowStart + filled else {
            throw TokenListFailure("its tokens were lost in \(directory)")
        }
        let start = position - windowStart
        return UnsafeRawBufferPointer(rebasing: buffer[start..<(start + count)])
    }
}
