import Foundation

/// A pipe to or from a child process. No other child inherits it.
///
/// Foundation's `Pipe` is inherited by each process that another thread starts at that moment. The pipe does not end while that process
/// lives, and two children with each other's pipes wait forever. This pipe is closed on exec from its beginning. `dup2`, which gives the
/// child its own end, undoes that.
package struct ChildPipe: Sendable {
    package let reading: FileHandle
    package let writing: FileHandle

    /// After the start of the child, close the child's end here: otherwise the pipe never ends.
    package init() throws {
        var ends: [Int32] = [-1, -1]
        // A pair of sockets, because Swift does not have Linux's pipe2.
        let type = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else {
            throw CocoaError(.fileReadUnknown, userInfo: [NSDebugDescriptionErrorKey: "no pipe to be had"])
        }
        reading = FileHandle(fileDescriptor: ends[0], closeOnDealloc: true)
        writing = FileHandle(fileDescriptor: ends[1], closeOnDealloc: true)
    }
}
