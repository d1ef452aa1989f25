import ArgumentParser
import Glibc

/// Asks a person at the terminal.
enum Confirmation {
    /// Whether there is one who could answer.
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
            throw ValidationError("there is no terminal to ask at: add --yes, or --dry-run to see what it would do")
        }
        guard ask(question) else {
            Terminal.tell("nothing was changed\n")
            throw ExitCode(1)
        }
    }
}
