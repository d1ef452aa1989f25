import CProcess
import Glibc

/// Keeps keys and passwords within the memory of this process.
enum ProcessMemory {
    /// Turns off core dumps, and keeps other processes of the same user from reading this one's memory and environment.
    ///
    /// The process can still read `/proc/self`, except the few files that only their owner may open, such as `environ`. The
    /// kernel resets the setting at `execve`, so it does not extend to programs that this one starts.
    static func keepPrivate() {
        guard cprocess_set_dumpable(0) != 0 else { return }
        Terminal.tell("warning: core dumps cannot be turned off: \(String(cString: strerror(errno)))\n")
    }
}
