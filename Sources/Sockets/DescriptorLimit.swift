import Glibc

/// The number of file descriptors that this process may have open (`RLIMIT_NOFILE`).
public enum DescriptorLimit {
    /// The highest soft limit that ``raise(to:)`` sets. It is ample for a worker, even if the hard limit is a billion.
    public static let highest = 65_536

    private static let remedy = "raise the limit (`ulimit -n`, systemd's LimitNOFILE=, a container's nofile)"

    private static let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)

    /// The soft limit; `nil` if the kernel does not report it.
    public static var current: Int? {
        var limit = rlimit()
        guard getrlimit(resource, &limit) == 0 else { return nil }
        return Int(clamping: limit.rlim_cur)
    }

    /// Raises the soft limit to the hard one, which needs no privilege. A higher limit is kept.
    ///
    /// This is safe only because the process does not use `select(2)`.
    /// - Returns: the new soft limit; `nil` if the kernel does not report it.
    @discardableResult
    public static func raise(to highest: Int = highest) -> Int? {
        var limit = rlimit()
        guard getrlimit(resource, &limit) == 0 else { return nil }
        let wanted = min(limit.rlim_max, rlim_t(highest))
        if wanted > limit.rlim_cur {
            limit.rlim_cur = wanted
            // A sandbox may forbid the change; the limit then stays as it was.
            setrlimit(resource, &limit)
        }
        return current
    }

    /// The problem if the limit is too low for this program; `nil` if it is high enough. Each event loop needs three descriptors, and
    /// SwiftNIO ends the process if it gets none.
    public static var problem: String? {
        let needed = 32 + 4 * sysconf(Int32(_SC_NPROCESSORS_ONLN))
        guard let current, current < needed else { return nil }
        return "this process may open only \(current) files, and needs \(needed); \(remedy)"
    }

    /// The current shortage of file descriptors, with what to do; `nil` if one can be opened.
    public static var shortage: String? {
        let descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC)
        guard descriptor < 0 else {
            close(descriptor)
            return nil
        }
        return shortage(errno)
    }

    /// Returns the shortage for an error number; `nil` for other errors.
    public static func shortage(_ code: CInt) -> String? {
        switch code {
        case EMFILE:
            let limit = current.map { " of its \($0)" } ?? ""
            return "this process has no file descriptor\(limit) left; \(remedy)"
        case ENFILE:
            return
                "this machine has no file descriptor left; raise fs.file-max, or find the process that holds too many"
        default: return nil
        }
    }
}
