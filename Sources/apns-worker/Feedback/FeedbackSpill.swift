import FoundationEssentials
import Glibc
import NIOCore

/// The file that holds records until Redis has them, because the feedback service forgets the records that it has sent.
///
/// Its first line names the Redis for the records; a line of JSON per record follows. The file is locked as long as
/// this object lives, and empty while Redis has all records.
actor FeedbackSpill {
    /// The result of keeping records.
    enum Kept: Equatable {
        case inFile
        /// There is no file for the records.
        case nowhere
        /// The file could not be written.
        case failed(String)
    }

    nonisolated let path: String?
    private let descriptor: Int32
    private let heading: ByteBuffer
    /// The size of the file in bytes.
    private var size: Int
    /// The number of batches in the file that are not settled yet.
    private var unsettled = 0
    /// True if the file holds records that only the next run will write to Redis.
    private(set) var hasLeftovers: Bool

    /// Creates a spill without a file, which keeps nothing.
    init() {
        (path, descriptor, heading, size, hasLeftovers) = (nil, -1, ByteBuffer(), 0, false)
    }

    /// Opens and locks a file. A new file is readable only by its owner.
    /// - Parameter redis: the Redis for the records, as named in the first line.
    init(path: String, redis: String) throws(CommandFailure) {
        func failure(_ what: String) -> CommandFailure {
            CommandFailure(.usage, "--spill \(path) cannot be used: \(what)")
        }
        let heading = ByteBuffer(
            string: "# Records of apns-worker feedback for \(redis); its next run writes them there.\n")
        let descriptor = Self.open(path)
        guard descriptor >= 0 else { throw failure(Self.systemError) }
        var size = 0
        do throws(CommandFailure) {
            var status = stat()
            guard fstat(descriptor, &status) == 0 else { throw failure(Self.systemError) }
            guard status.st_mode & S_IFMT == S_IFREG else { throw failure("it is not a regular file") }
            guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
                guard errno == EWOULDBLOCK else { throw failure(Self.systemError) }
                throw CommandFailure(
                    .attention,
                    "another apns-worker feedback is using \(path); wait until it ends, or use another file with --spill"
                )
            }
            // Another process may have changed the size before the file was locked.
            guard fstat(descriptor, &status) == 0, Self.syncDirectory(of: path) else { throw failure(Self.systemError) }
            size = Int(status.st_size)
            guard let start = Self.start(of: descriptor, count: heading.readableBytes) else {
                throw failure(Self.systemError)
            }
            // A partial heading means that the machine stopped while writing it; no record follows.
            guard heading.readableBytesView.starts(with: start.readableBytesView) else {
                throw failure(
                    "it has no records for \(redis). If it has records for another Redis, write them there with "
                        + "--from and remove the file; otherwise use another file")
            }
            if size <= heading.readableBytes {
                guard ftruncate(descriptor, 0) == 0 else { throw failure(Self.systemError) }
                size = 0
            }
        } catch {
            close(descriptor)
            throw error
        }
        self.path = path
        self.descriptor = descriptor
        self.heading = heading
        self.size = size
        hasLeftovers = size > 0
    }

    deinit { if descriptor >= 0 { close(descriptor) } }

    /// Returns the default path.
    /// - Throws: ``CommandFailure`` if there is no directory for it.
    static func defaultPath(_ environment: [String: String]) throws(CommandFailure) -> String {
        // systemd's variable may contain several directories, separated by colons.
        if let directory = environment["STATE_DIRECTORY"]?.split(separator: ":").first {
            return "\(directory)/feedback.ndjson"
        }
        let home = environment["HOME"].flatMap { $0.hasPrefix("/") ? $0 + "/.local/state" : nil }
        guard let state = environment["XDG_STATE_HOME"].flatMap({ $0.hasPrefix("/") ? $0 : nil }) ?? home else {
            throw CommandFailure(.usage, "no home directory for the file of --spill; name a file")
        }
        let directory = state + "/apns-worker"
        do {
            try FileManager.default.createDirectory(
                atPath: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        } catch {
            throw CommandFailure(.usage, "the directory \(directory) for the file of --spill cannot be made: \(error)")
        }
        return directory + "/feedback.ndjson"
    }

    // MARK: Records

    /// Writes lines to disk. The caller must settle each batch that was kept.
    func keep(_ lines: ByteBuffer) -> Kept {
        guard path != nil else { return .nowhere }
        var bytes = size == 0 ? heading : ByteBuffer()
        bytes.writeImmutableBuffer(lines)
        let count = bytes.readableBytes
        let end = ByteOutput.write(&bytes, to: descriptor)
        guard end == .complete, fdatasync(descriptor) == 0 else {
            let reason = if case .failed(let error) = end { String(cString: strerror(error)) } else { Self.systemError }
            // A partial line would be read as an incomplete record.
            ftruncate(descriptor, off_t(size))
            return .failed(reason)
        }
        size += count
        unsettled += 1
        return .inFile
    }

    /// Settles a batch that was kept, and empties the file if Redis has all records.
    /// - Parameter isInRedis: true if Redis has the batch.
    func settle(isInRedis: Bool) {
        unsettled -= 1
        if !isInRedis { hasLeftovers = true }
        if unsettled == 0, !hasLeftovers { empty() }
    }

    /// Notes that Redis has the records that the file held before this run.
    func leftoversAreWritten() {
        hasLeftovers = false
        if unsettled == 0 { empty() }
    }

    /// Empties the file. If this fails, the next run writes the records to Redis again, which is harmless.
    private func empty() {
        if size > 0, ftruncate(descriptor, 0) == 0 { size = 0 }
    }

    // MARK: The file

    private static var systemError: String { String(cString: strerror(errno)) }

    private static func open(_ path: String) -> Int32 {
        Glibc.open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
    }

    /// Syncs a file's directory, so that the name of a new file is on disk.
    private static func syncDirectory(of path: String) -> Bool {
        let name = path.lastIndex(of: "/").map { String(path[...$0]) } ?? "."
        let directory = Glibc.open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard directory >= 0 else { return false }
        defer { close(directory) }
        // Some file systems do not support this.
        return fsync(directory) == 0 || errno == EINVAL
    }

    private static func start(of descriptor: Int32, count: Int) -> ByteBuffer? {
        var bytes = [UInt8](repeating: 0, count: count)
        let read = pread(descriptor, &bytes, count, 0)
        return read < 0 ? nil : ByteBuffer(bytes: bytes.prefix(read))
    }
}
