import Foundation

/// A pipe to or from a child process that no other child inherits.
///
/// Foundation's `Pipe` is inherited by every process that another thread starts at that moment. Then it does not end
/// while that process lives, and two children that hold each other's pipes wait forever. This pipe is closed on exec
/// from the beginning; `dup2`, which gives the child its own end, undoes that.
package struct ChildPipe: Sendable {
    /// The end to read from.
    package let reading: FileHandle
    /// The end to write to.
    package let writing: FileHandle

    /// Makes a pipe. After starting the child, close the child's end: otherwise the pipe never ends.
    package init() throws {
        var ends: [Int32] = [-1, -1]
        // A pair of sockets, because Swift does not see Linux's pipe2.
        let type = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else {
            throw CocoaError(.fileReadUnknown, userInfo: [NSDebugDescriptionErrorKey: "no pipe to be had"])
        }
        reading = FileHandle(fileDescriptor: ends[0], closeOnDealloc: true)
        writing = FileHandle(fileDescriptor: ends[1], closeOnDealloc: true)
    }
}
