import ArgumentParser
import Glibc
import Synchronization

/// Standard output and standard error, unbuffered.
enum Terminal {
    /// Writes to standard error. A failure is ignored, because there is nowhere else to report it.
    static func tell(_ text: String) { put(text, STDERR_FILENO) }

    /// Writes to standard output at once, so that a reader of a pipe does not wait for a full buffer.
    static func say(_ text: String) { put(text, STDOUT_FILENO) }

    private static func put(_ text: String, _ descriptor: Int32) {
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let count = bytes.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
            guard count > 0 else { return }
            bytes = bytes.dropFirst(count)
        }
    }
}

/// Asks a person at the terminal.
enum Confirmation {
    /// True if there is one who could answer.
    static var isPossible: Bool { isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1 }

    /// - Returns: whether the answer is yes; anything else is no.
    static func ask(_ question: String) -> Bool {
        Terminal.tell("\(question) [y/N] ")
        let answer = readLine()?.lowercased() ?? ""
        return answer == "y" || answer == "yes"
    }

    /// Asks before something that cannot be undone.
    /// - Throws: an error of usage where nobody can answer; an exit when the answer is no.
    static func demand(_ question: String, isGiven: Bool) throws {
        if isGiven { return }
        guard isPossible else {
            throw ValidationError("refusing to continue without confirmation; pass --yes, or --dry-run")
        }
        guard ask(question) else {
            Terminal.tell("nothing was changed\n")
            throw ExitCode(1)
        }
    }
}

/// SIGINT and SIGTERM, for a command that ends between two steps and then says how far it has come.
enum Interruption {
    fileprivate static let flag = Atomic(false)

    /// True if the process was told to end.
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
