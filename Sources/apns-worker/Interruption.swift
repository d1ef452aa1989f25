import Glibc
import Synchronization

/// SIGINT and SIGTERM, for a command that ends between two steps and then says how far it has come.
enum Interruption {
    fileprivate static let flag = Atomic(false)

    /// Whether the process was told to end.
    static var hasCome: Bool { flag.load(ordering: .relaxed) }

    /// From now on signals do not end the process, but are noted. A second one ends it.
    static func watch() {
        // The flag is made when it is first read, and that must not be within a signal's handler.
        _ = hasCome
        for number in [SIGINT, SIGTERM] {
            signal(number) { note(signal: $0) }
        }
    }
}

private func note(signal number: Int32) {
    Interruption.flag.store(true, ordering: .relaxed)
    signal(number, SIG_DFL)
}
