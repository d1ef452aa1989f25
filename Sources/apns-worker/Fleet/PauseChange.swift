import FoundationEssentials
import Glibc
import PrintableText
import PushQueue
import PushWorker

/// What `pause` and `resume` have done, as they print it for programs.
struct PauseChange: Encodable {
    var queue: String?
    var app: String?
    /// What it is now; nothing where it is not paused any more.
    var paused: FleetStatus.Pause?
    /// What it was before.
    var before: FleetStatus.Pause?

    var subject: String { app.map { "app \($0)" } ?? "queue \(queue ?? "")" }
}

extension FleetStatus.Pause {
    /// Why, since when and by whom.
    var inWords: String {
        let since = since.map { ", since " + Moment.text($0) }
        let by = by.map { isByHand ? ", by \($0)" : ", noticed by \($0)" }
        return reason + (since ?? "") + (by ?? "")
    }
}

/// Whoever runs this command.
enum Person {
    /// What the system calls the user; in a container it may have no name for it.
    private static var account: String? {
        guard let entry = getpwuid(getuid()), let name = entry.pointee.pw_name else { return nil }
        return String(cString: name)
    }

    /// The user's name and the host's, as far as they can be had.
    static var name: String {
        let environment = ProcessInfo.processInfo.environment
        let user = ["SUDO_USER", "USER", "LOGNAME"].compactMap { environment[$0] }.first { !$0.isEmpty }
        return "\(user ?? account ?? "uid \(getuid())")@\(HostName.current)".printable
    }
}

/// Which apps workers know.
enum KnownApps {
    /// Tells of an app that no worker knows: a mistyped name does nothing.
    static func warn(_ app: String, _ settings: Settings) async throws {
        let status = try await FleetOptions.withFleet(settings, searches: true) { fleet in
            try await FleetStatus.read(fleet, fleet.queues().keys)
        }
        // Without a worker nobody knows.
        let known = status.apps.filter { $0.lanes > 0 }.map(\.name)
        guard !known.isEmpty, !known.contains(app) else { return }
        Terminal.tell("warning: no worker knows an app \(app); they know \(known.joined(separator: ", "))\n")
    }
}
