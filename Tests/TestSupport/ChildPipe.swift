import Foundation

/// A pipe to or from a child process that no other child gets hold of.
///
/// Foundation's `Pipe` is inherited by whatever another thread starts at that moment. Its end then never comes while that
/// other child lives, and two children that hold each other's pipes wait for ever. This one is closed on exec from its
/// first moment; the child's own end is given to it by `dup2`, which undoes that.
public struct ChildPipe: Sendable {
    /// Where what was written comes out.
    public let reading: FileHandle
    /// Where to write.
    public let writing: FileHandle

    /// Makes a pipe. Whoever starts the child closes the child's end afterwards, or the pipe never ends.
    public init() throws {
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
