import Glibc

/// The facts that reveal that a file has been changed or replaced. Links are followed, as is necessary for Kubernetes
/// mounts.
struct FileIdentity: Equatable {
    private let device: UInt64
    private let inode: UInt64
    private let size: Int64
    private let seconds: Int
    private let nanoseconds: Int

    /// - Returns: `nil` if there is no file.
    init?(_ path: String) {
        var facts = stat()
        guard stat(path, &facts) == 0 else { return nil }
        device = UInt64(facts.st_dev)
        inode = UInt64(facts.st_ino)
        size = Int64(facts.st_size)
        seconds = facts.st_mtim.tv_sec
        nanoseconds = facts.st_mtim.tv_nsec
    }
}

/// Detects that a file has changed and is complete, because it may be read while it is being written. No I/O.
struct FileChanges {
    private var known: FileIdentity?
    private var seen: FileIdentity?

    init(_ identity: FileIdentity?) {
        known = identity
        seen = identity
    }

    /// Records the result of a check; `nil` if there is no file, which is ignored.
    /// - Returns: true if the file must be read, because it differs from the known one and did not change since the
    ///   last check.
    mutating func update(_ identity: FileIdentity?) -> Bool {
        defer { seen = identity }
        guard let identity, identity != known, identity == seen else { return false }
        known = identity
        return true
    }
}
