import FoundationEssentials
import Glibc
import NIOCore

/// A program that receives records on its standard input. It is started once, by the shell, when there is a first record.
actor ExecCommand {
    struct Ending: Encodable, Sendable {
        /// The exit status; `nil` if a signal ended the program.
        var status: Int32?
        var signal: Int32?
        var error: String?
    }

    /// The variables that the command inherits. Other variables of this process may hold passwords and keys.
    static let inherited: Set<String> = ["PATH", "HOME", "LANG", "TZ"]

    private let command: String
    private let environment: [String: String]
    private let patience: Duration
    private let stop: StopSignal
    private var running: (processIdentifier: pid_t, input: LineOutput)?
    private var startFailure: String?

    /// - Parameters:
    ///   - variables: names of variables that the command inherits in addition to ``inherited``.
    ///   - patience: the maximum time for which the program reads nothing, and for which it runs after its input was closed.
    init(_ command: String, variables: [String], patience: Duration, stop: StopSignal) {
        let names = Self.inherited.union(variables)
        self.command = command
        environment = ProcessInfo.processInfo.environment.filter { names.contains($0.key) }
        self.patience = patience
        self.stop = stop
    }

    func write(_ lines: ByteBuffer, count: Int) async {
        if running == nil, startFailure == nil { start() }
        await running?.input.write(lines, count: count)
    }

    /// Closes the program's input, and waits for its end.
    /// - Returns: the end of the program; `nil` if there was nothing to write.
    func finish() async -> Ending? {
        if let startFailure { return Ending(error: startFailure) }
        guard let (processIdentifier, input) = running else { return nil }
        await input.close()
        let (status, wasEnded) = await wait(for: processIdentifier)
        running = nil
        guard let status else { return Ending(error: "its exit status is unknown") }
        var report = Ending()
        let signal = status & 0x7F
        if signal == 0 { report.status = (status >> 8) & 0xFF } else { report.signal = signal }
        if wasEnded {
            report.error =
                "it did not end within \(patience.components.seconds) s of the end of its input, and was killed"
        } else if let number = report.status, number != 0 {
            report.error = "it ended with status \(number)"
        } else if signal != 0 {
            report.error = "signal \(signal) ended it"
        } else if let failure = await input.failure {
            report.error = "it did not read all of its input: \(failure)"
        }
        let lost = await input.lostLines
        if lost > 0, let error = report.error {
            report.error = "\(error); \(lost == 1 ? "1 record was" : "\(lost) records were") not delivered"
        }
        return report
    }

    /// Waits for the program's end. A program that takes too long is killed.
    /// - Returns: the status of `waitpid`; `nil` if it is unknown.
    private func wait(for processIdentifier: pid_t) async -> (status: Int32?, wasEnded: Bool) {
        var status: Int32 = 0
        let began = ContinuousClock.now
        var signals = [SIGTERM, SIGKILL]
        while true {
            let ended = waitpid(processIdentifier, &status, WNOHANG)
            guard ended == 0 || (ended < 0 && errno == EINTR) else {
                return (ended == processIdentifier ? status : nil, signals.count < 2)
            }
            let limit = stop.isStopped ? min(patience, .seconds(5)) : patience
            let sent = 2 - signals.count
            if ContinuousClock.now - began > limit + .seconds(2 * sent), !signals.isEmpty {
                // Its group includes the processes that it has started.
                kill(-processIdentifier, signals.removeFirst())
            }
            do {
                try await Task.sleep(for: .milliseconds(10))
            } catch {
                // Cancelled; the wait is limited anyway.
            }
        }
    }

    private func start() {
        var ends: [Int32] = [-1, -1]
        guard pipe(&ends) == 0 else {
            startFailure = "cannot create a pipe: \(String(cString: strerror(errno)))"
            return
        }
        defer { close(ends[0]) }
        // Without this, the command would keep the write end of its own input open, and would never see the end. No other program is
        // started before `fcntl`.
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        // Otherwise the command would inherit the signals that this process ignores or blocks.
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        sigfillset(&signals)
        posix_spawnattr_setsigdefault(&attributes, &signals)
        // A separate process group, because Ctrl-C is meant for this process, whose remaining records the command must read.
        posix_spawnattr_setpgroup(&attributes, 0)
        posix_spawnattr_setflags(
            &attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP))
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO)
        // The command must not keep this process's connections open. Descriptors that are closed by then are skipped.
        do {
            for name in try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd") {
                if let number = Int32(name), number > 2 { posix_spawn_file_actions_addclose(&actions, number) }
            }
        } catch {
            close(ends[1])
            startFailure = "/proc cannot be read: \(error)"
            return
        }
        var arguments: [UnsafeMutablePointer<CChar>?] =
            ["/bin/sh", "-c", command].map { (text: String) in strdup(text) } + [nil]
        var variables: [UnsafeMutablePointer<CChar>?] =
            environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for pointer in arguments + variables { free(pointer) } }
        var child: pid_t = 0
        let problem = posix_spawn(&child, "/bin/sh", &actions, &attributes, &arguments, &variables)
        guard problem == 0 else {
            close(ends[1])
            startFailure = "cannot start /bin/sh: \(String(cString: strerror(problem)))"
            return
        }
        running = (
            child, LineOutput(ends[1], closesDescriptor: true, patience: patience, stop: stop)
        )
    }
}
