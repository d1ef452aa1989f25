import NIOCore

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Where records are kept that Redis did not take: the feedback service has forgotten them.
actor FeedbackSpill {
    private let path: String?

    /// - Parameter path: a file to append to; `nil` for standard error.
    init(_ path: String?) {
        self.path = path
    }

    /// Whether the file could be written, found out before anything is read that may have to go there.
    /// - Returns: what is wrong.
    nonisolated static func problem(with path: String) -> String? {
        let descriptor = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return String(cString: strerror(errno)) }
        var status = stat()
        let isEmpty = fstat(descriptor, &status) == 0 && status.st_size == 0 && status.st_mode & S_IFMT == S_IFREG
        close(descriptor)
        // Nobody should wonder about an empty file.
        if isEmpty { unlink(path) }
        return nil
    }

    /// Keeps lines.
    /// - Returns: where they are now.
    func keep(_ lines: ByteBuffer, app: String, count: Int, because reason: String) -> String {
        let records = "\(count == 1 ? "1 RECORD" : "\(count) RECORDS") of the app \(app)"
        let lost = "REDIS DID NOT TAKE \(records), AND THE FEEDBACK SERVICE HAS FORGOTTEN THEM (\(reason))."
        var problem = ""
        if let path {
            if let failure = append(lines, to: path) {
                problem = " \(path) cannot be written: \(failure)."
            } else {
                Terminal.tell("\(lost) They were appended to \(path), a line of JSON each.\n")
                return path
            }
        }
        Terminal.tell("\(lost)\(problem) Keep the following lines, a record each:\n")
        Terminal.tell(String(buffer: lines))
        return "standard error"
    }

    private func append(_ lines: ByteBuffer, to path: String) -> String? {
        let descriptor = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
        guard descriptor >= 0 else { return String(cString: strerror(errno)) }
        defer { close(descriptor) }
        var rest = lines.readableBytesView[...]
        while !rest.isEmpty {
            let written = rest.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
            if written < 0, errno == EINTR { continue }
            guard written > 0 else { return String(cString: strerror(errno)) }
            rest = rest.dropFirst(written)
        }
        // What can be synchronised is; a pipe cannot.
        guard fsync(descriptor) == 0 || errno == EINVAL || errno == EROFS else {
            return String(cString: strerror(errno))
        }
        return nil
    }
}
