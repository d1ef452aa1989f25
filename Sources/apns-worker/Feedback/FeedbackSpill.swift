import FoundationEssentials
import Glibc
import NIOCore

/// The file that holds records from the moment they are read until Redis has them: the feedback service forgets what it has
/// sent.
///
/// Its first line names the Redis that the records are for; a line of JSON for each record follows. It is locked as long as
/// this object lives, and empty while Redis has everything.
actor FeedbackSpill {
    /// A file that cannot be used.
    struct Unusable: Error, CustomStringConvertible {
        let description: String
        /// True if another process has locked it.
        var isBusy = false
    }

    /// The result of keeping records.
    enum Kept: Equatable {
        /// They are on the disk.
        case inFile
        /// There is no file to keep them in.
        case nowhere
        /// The file could not be written.
        case failed(String)
    }

    /// The file's path; `nil` where there is no file.
    nonisolated let path: String?
    private let descriptor: Int32
    private let heading: ByteBuffer
    /// Bytes in the file.
    private var size: Int
    /// Batches in the file that are not settled yet.
    private var unsettled = 0
    /// True if the file holds records that only the next run writes to Redis.
    private(set) var hasLeftovers: Bool

    /// Keeps nothing.
    init() {
        (path, descriptor, heading, size, hasLeftovers) = (nil, -1, ByteBuffer(), 0, false)
    }

    /// Opens and locks a file. A new one is readable by its owner only.
    /// - Parameter redis: the Redis that its records are for, as the first line names it.
    init(path: String, redis: String) throws(Unusable) {
        func failure(_ what: String) -> Unusable {
            Unusable(description: "--spill \(path) cannot be used: \(what)")
        }
        let heading = ByteBuffer(
            string: "# Records of apns-worker feedback for \(redis); its next run writes them there.\n")
        let descriptor = Self.open(path)
        guard descriptor >= 0 else { throw failure(Self.systemError) }
        var size = 0
        do throws(Unusable) {
            var status = stat()
            guard fstat(descriptor, &status) == 0 else { throw failure(Self.systemError) }
            guard status.st_mode & S_IFMT == S_IFREG else { throw failure("it is not a regular file") }
            guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
                guard errno == EWOULDBLOCK else { throw failure(Self.systemError) }
                throw Unusable(
                    description: "another apns-worker feedback works with \(path); wait until it ends, or name another "
                        + "file with --spill", isBusy: true)
            }
            // Another process may have changed its size before it was locked.
            guard fstat(descriptor, &status) == 0, Self.syncDirectory(of: path) else { throw failure(Self.systemError) }
            size = Int(status.st_size)
            guard let start = Self.start(of: descriptor, count: heading.readableBytes) else {
                throw failure(Self.systemError)
            }
            // A partial heading was being written when the machine stopped; no record follows it.
            guard heading.readableBytesView.starts(with: start.readableBytesView) else {
                throw failure(
                    "it does not hold records for \(redis). If it holds those for another Redis, write them there with "
                        + "--from and remove it; otherwise name another file")
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

    /// The file to use where none is named.
    /// - Throws: ``Unusable`` when there is no directory for it.
    static func defaultPath(_ environment: [String: String]) throws(Unusable) -> String {
        // systemd's may be several, with colons between them.
        if let directory = environment["STATE_DIRECTORY"]?.split(separator: ":").first {
            return "\(directory)/feedback.ndjson"
        }
        let home = environment["HOME"].flatMap { $0.hasPrefix("/") ? $0 + "/.local/state" : nil }
        guard let state = environment["XDG_STATE_HOME"].flatMap({ $0.hasPrefix("/") ? $0 : nil }) ?? home else {
            throw Unusable(description: "no home directory for the file of --spill; name a file")
        }
        let directory = state + "/apns-worker"
        do {
            try FileManager.default.createDirectory(
                atPath: directory, withIntermediateDirectories: true, attributes: [.posixPermissions: 0o700])
        } catch {
            throw Unusable(description: "the directory \(directory) for the file of --spill cannot be made: \(error)")
        }
        return directory + "/feedback.ndjson"
    }

    // MARK: Records

    /// Writes lines to the disk. The caller must settle each batch that is kept.
    func keep(_ lines: ByteBuffer) -> Kept {
        guard path != nil else { return .nowhere }
        var bytes = size == 0 ? heading : ByteBuffer()
        bytes.writeImmutableBuffer(lines)
        let count = bytes.readableBytes
        guard ByteOutput.write(&bytes, to: descriptor), fdatasync(descriptor) == 0 else {
            let reason = Self.systemError
            // A part of it would be read as an incomplete record.
            ftruncate(descriptor, off_t(size))
            return .failed(reason)
        }
        size += count
        unsettled += 1
        return .inFile
    }

    /// Settles a batch that was kept: empties the file if Redis has everything.
    /// - Parameter isInRedis: whether Redis has the batch.
    func settle(isInRedis: Bool) {
        unsettled -= 1
        if !isInRedis { hasLeftovers = true }
        if unsettled == 0, !hasLeftovers { empty() }
    }

    /// Notes that Redis has what the file held at the start of a run.
    func leftoversAreWritten() {
        hasLeftovers = false
        if unsettled == 0 { empty() }
    }

    /// If this fails, the next run writes records again that Redis has, which does no harm.
    private func empty() {
        if size > 0, ftruncate(descriptor, 0) == 0 { size = 0 }
    }

    // MARK: The file

    private static var systemError: String { String(cString: strerror(errno)) }

    private static func open(_ path: String) -> Int32 {
        Glibc.open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0o600)
    }

    /// A new file's name is on the disk only when its directory is.
    private static func syncDirectory(of path: String) -> Bool {
        let name = path.lastIndex(of: "/").map { String(path[...$0]) } ?? "."
        let directory = Glibc.open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
        guard directory >= 0 else { return false }
        defer { close(directory) }
        // Some file systems do not support it.
        return fsync(directory) == 0 || errno == EINVAL
    }

    private static func start(of descriptor: Int32, count: Int) -> ByteBuffer? {
        var bytes = [UInt8](repeating: 0, count: count)
        let read = pread(descriptor, &bytes, count, 0)
        return read < 0 ? nil : ByteBuffer(bytes: bytes.prefix(read))
    }
}
