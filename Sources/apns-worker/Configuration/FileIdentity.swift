import Glibc

/// By what it is seen that a file has been changed or replaced; a link is followed, as Kubernetes' mounts need it.
struct FileIdentity: Equatable {
    private let device: UInt64
    private let inode: UInt64
    private let size: Int64
    private let seconds: Int
    private let nanoseconds: Int

    /// - Returns: `nil` where there is no file.
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

/// Tells when a file has changed and is whole, without any I/O: a file may be looked at while it is being written.
struct FileChanges {
    private var known: FileIdentity?
    private var seen: FileIdentity?

    init(_ identity: FileIdentity?) {
        known = identity
        seen = identity
    }

    /// Takes what a look has shown; `nil` where there is no file, which is no change that could be taken up.
    /// - Returns: whether to read it: it is another one than before, and the same as at the last look.
    mutating func looked(_ identity: FileIdentity?) -> Bool {
        defer { seen = identity }
        guard let identity, identity != known, identity == seen else { return false }
        known = identity
        return true
    }
}
