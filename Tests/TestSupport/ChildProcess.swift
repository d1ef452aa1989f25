import Foundation
import Synchronization

/// A program that a test started. Files keep all of its output, so nothing is lost, and no full pipe blocks the program.
///
/// It ends with `kill`, with this object, or at the latest with the test process, even if that is killed. Unlike Foundation's `Process`,
/// this type starts the program with no signal blocked. Children inherit the signal mask of the thread that starts them, and Swift's
/// threads block SIGTERM and SIGINT.
package final class ChildProcess: Sendable {
    /// The failure of a program that does not start, or does not do what a test waits for.
    package struct Failure: Error, CustomStringConvertible {
        /// The problem, with the end of the program's output.
        package let description: String

        package init(description: String) { self.description = description }
    }

    package enum Ending: Equatable, Sendable {
        case exited(Int32)
        case signalled(Int32)
    }

    /// The standard errors of all programs, by the paths of their directories.
    private static let all = Mutex<[String: (name: String, errors: URL)]>([:])

    /// The process id. Once ``ending`` is known, the system may give it to another program.
    package let processIdentifier: Int32
    /// The program's own directory. It is removed with the object.
    package let directory: URL
    private let name: String
    private let known = Mutex<Ending?>(nil)

    /// - Parameters:
    ///   - path: the program's path, or its name if it is on PATH.
    ///   - environment: variables in addition to those of this process, of which `APNS_WORKER_…` are not inherited.
    ///   - input: the program's standard input.
    package init(_ path: String, _ arguments: [String], environment: [String: String] = [:], input: Data? = nil) throws
    {
        name = URL(filePath: path).lastPathComponent
        directory = try Watchdog.shared.get().makeDirectory(name)
        var inputPath = "/dev/null"
        if let input {
            inputPath = directory.appending(path: "input").path
            try input.write(to: URL(filePath: inputPath))
        }
        var variables = ProcessInfo.processInfo.environment.filter { !$0.key.hasPrefix("APNS_WORKER_") }
        variables.merge(environment) { $1 }
        processIdentifier = try Spawn.run(
            [Spawn.find(path)] + arguments, environment: variables, input: try Descriptor(reading: inputPath),
            output: try Descriptor(writing: directory.appending(path: "output").path),
            errors: try Descriptor(writing: directory.appending(path: "errors").path))
        try Data("\(processIdentifier)\n".utf8).write(to: Watchdog.file(in: directory))
        let entry = (name: "\(name) (\(processIdentifier))", errors: directory.appending(path: "errors"))
        Self.all.withLock { $0[directory.path] = entry }
    }

    /// - Parameter command: the program and its arguments.
    package convenience init(_ command: [String], environment: [String: String] = [:], input: Data? = nil) throws {
        try self.init(command[0], Array(command.dropFirst()), environment: environment, input: input)
    }

    deinit {
        _ = Self.all.withLock { $0.removeValue(forKey: directory.path) }
        kill()
        try? FileManager.default.removeItem(at: directory)
    }

    package var output: String { text("output") }
    package var errors: String { text("errors") }

    /// The end of the program; `nil` while it runs.
    package var ending: Ending? {
        known.withLock { ending in
            if ending == nil {
                var status: Int32 = 0
                guard waitpid(processIdentifier, &status, WNOHANG) == processIdentifier else { return nil }
                // The watchdog must not kill another program to which the system gives this id.
                try? FileManager.default.removeItem(at: Watchdog.file(in: directory))
                let signal = status & 0x7F
                ending = signal == 0 ? .exited((status >> 8) & 0xFF) : .signalled(signal)
            }
            return ending
        }
    }

    /// Sends a signal. Does nothing if the program has ended.
    package func send(_ signal: Int32) {
        if ending == nil { _ = Foundation.kill(processIdentifier, signal) }
    }

    /// Stops the program with SIGSTOP, and waits until none of its threads runs. SIGCONT continues it.
    package func pause() async throws {
        send(SIGSTOP)
        let threads = URL(filePath: "/proc/\(processIdentifier)/task")
        try await eventually("\(name) stops") {
            try FileManager.default.contentsOfDirectory(atPath: threads.path).allSatisfy {
                try String(contentsOf: threads.appending(path: "\($0)/stat"), encoding: .utf8).contains(") T ")
            }
        }
    }

    /// Kills the program with SIGKILL, and waits for its end.
    package func kill() {
        send(SIGKILL)
        while ending == nil { usleep(1000) }
    }

    /// Waits until the program ends.
    /// - Throws: ``Failure`` if the program has not ended in time. The program is then killed.
    @discardableResult
    package func wait(within limit: Duration = .seconds(180)) async throws -> Ending {
        do {
            try await eventually("\(name) ends", within: limit) { ending != nil }
        } catch {
            kill()
            throw failure("\(error)")
        }
        guard let ending else { throw failure("no ending") }
        return ending
    }

    /// - Throws: ``Failure`` if the program ends before the condition holds, or the time is over.
    package func until(_ what: String, _ condition: () async throws -> Bool) async throws {
        try await eventually(what) {
            let ending = ending
            if try await condition() { return true }
            if let ending { throw failure("ended with \(ending), while a test waited until \(what)") }
            return false
        }
    }

    /// Blocks the thread until the program ends. For programs that take only a moment.
    package func waitBlocking(within limit: Duration = .seconds(180)) throws -> Ending {
        let deadline = ContinuousClock.now + limit
        while true {
            if let ending { return ending }
            guard ContinuousClock.now < deadline else {
                kill()
                throw failure("did not end within \(limit)")
            }
            usleep(1000)
        }
    }

    /// Returns an error with this message and the end of the program's output.
    package func failure(_ message: String) -> Failure {
        Failure(description: "\(name): \(message); it said:\n\(output.suffix(1000))\n\(errors.suffix(3000))")
    }

    /// The end of all programs' standard error: another program may be the reason why a wait timed out.
    static var lastWords: String {
        all.withLock { $0.values.sorted { $0.name < $1.name } }.map { name, errors in
            let text = text(errors)
            return text.isEmpty ? "" : "\n\(name) said last:\n\(text.suffix(1500))"
        }.joined()
    }

    private func text(_ name: String) -> String { Self.text(directory.appending(path: name)) }

    private static func text(_ file: URL) -> String {
        guard let data = try? Data(contentsOf: file) else { return "" }
        return String(decoding: data, as: UTF8.self)
    }
}

private final class Descriptor {
    let number: Int32

    init(_ number: Int32) { self.number = number }

    init(reading path: String) throws {
        number = open(path, O_RDONLY | O_CLOEXEC)
        guard number >= 0 else { throw ChildProcess.Failure(description: "cannot read \(path)") }
    }

    init(writing path: String) throws {
        number = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        guard number >= 0 else { throw ChildProcess.Failure(description: "cannot write \(path)") }
    }

    deinit { close(number) }
}

/// Kills the remaining programs when this process ends, even by SIGKILL. A shell waits for the end of a pipe that only this process has.
private final class Watchdog: Sendable {
    static let shared = Result { try Watchdog() }

    /// The parent of the programs' directories.
    private let directory: URL
    private let count = Mutex(0)

    private init() throws {
        let name = "tests-\(getpid())-\(UInt32.random(in: 0 ... .max))"
        directory = FileManager.default.temporaryDirectory.appending(path: name)
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        // A pair of sockets can be closed on exec from its beginning, a pipe only by another call. This process never closes the second
        // end.
        var ends: [Int32] = [-1, -1]
        let type = Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        guard socketpair(AF_UNIX, type, 0, &ends) == 0 else {
            throw ChildProcess.Failure(description: "no pair of sockets to be had")
        }
        // Ctrl-C reaches the whole process group. If it ended this shell, a stopped child would live forever.
        let script = """
            trap '' INT TERM HUP
            read line
            for file in "$0"/*/process; do read id <"$file" && kill -9 "$id"; done
            rm -rf "$0"
            """
        _ = try Spawn.run(
            ["/bin/sh", "-c", script, directory.path], environment: [:], input: Descriptor(ends[0]),
            output: try Descriptor(writing: "/dev/null"), errors: try Descriptor(writing: "/dev/null"))
    }

    func makeDirectory(_ name: String) throws -> URL {
        let number = count.withLock { count in
            count += 1
            return count
        }
        let made = directory.appending(path: "\(name)-\(number)")
        try FileManager.default.createDirectory(at: made, withIntermediateDirectories: false)
        return made
    }

    /// The file with the id of the process to kill.
    static func file(in directory: URL) -> URL { directory.appending(path: "process") }
}

private enum Spawn {
    static func find(_ name: String) throws -> String {
        if name.contains("/") { return name }
        let folders = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":").map(String.init)
        // Debian installs servers in sbin, which is often not on the PATH.
        let candidates = (folders + ["/usr/sbin", "/usr/bin"]).map { "\($0)/\(name)" }
        guard let path = candidates.first(where: FileManager.default.isExecutableFile(atPath:)) else {
            throw ChildProcess.Failure(description: "\(name) is not installed")
        }
        return path
    }

    static func run(
        _ command: [String], environment: [String: String], input: Descriptor, output: Descriptor, errors: Descriptor
    ) throws -> Int32 {
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var signals = sigset_t()
        sigemptyset(&signals)
        posix_spawnattr_setsigmask(&attributes, &signals)
        sigfillset(&signals)
        posix_spawnattr_setsigdefault(&attributes, &signals)
        posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF))

        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for (index, descriptor) in [input, output, errors].enumerated() {
            posix_spawn_file_actions_adddup2(&actions, descriptor.number, Int32(index))
        }
        // The child must not inherit open files of this process, such as the pipes of other tests.
        for name in try FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd") {
            if let number = Int32(name), number > 2 { posix_spawn_file_actions_addclose(&actions, number) }
        }

        var arguments: [UnsafeMutablePointer<CChar>?] = command.map { strdup($0) } + [nil]
        var variables: [UnsafeMutablePointer<CChar>?] = environment.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for pointer in arguments + variables { free(pointer) } }
        var child: pid_t = 0
        let problem = posix_spawn(&child, command[0], &actions, &attributes, &arguments, &variables)
        guard problem == 0 else {
            throw ChildProcess.Failure(
                description: "\(command[0]) does not start: \(String(cString: strerror(problem)))")
        }
        return child
    }
}
