import CProcess

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Keeps keys and passwords within the memory of this process.
enum ProcessMemory {
    /// Forbids core dumps, and other processes of the same user to read this one's memory and environment. Root still may.
    ///
    /// `/proc/self` stays readable for the process itself, but for the few files that only their owner may open, such as
    /// `environ`. A program that this one starts has its own setting: the kernel resets it at `execve`.
    static func keepPrivate() {
        guard cprocess_set_dumpable(0) != 0 else { return }
        Terminal.tell("warning: core dumps cannot be forbidden: \(String(cString: strerror(errno)))\n")
    }
}
