import ArgumentParser
import FoundationEssentials
import Glibc
import Operations
import PrintableText
import PushQueue
import PushWorker
import Redis

/// The operator who runs this command.
enum Person {
    /// The system's name for the user; in a container there may be none.
    private static var account: String? {
        guard let entry = getpwuid(getuid()), let name = entry.pointee.pw_name else { return nil }
        return String(cString: name)
    }

    /// The names of the user and the host, as far as they are available.
    static var name: String {
        let environment = ProcessInfo.processInfo.environment
        let user = ["SUDO_USER", "USER", "LOGNAME"].compactMap { environment[$0] }.first { !$0.isEmpty }
        return "\(user ?? account ?? "uid \(getuid())")@\(HostName.current)".printable
    }
}
