import ArgumentParser
import Glibc
import PrintableText
import Redis

/// The end of a command that did not succeed: its message and exit status.
struct CommandEnd {
    let program: any ParsableCommand.Type
    let arguments: [String]

    /// Ends the process because of an error in the command line, or because of a request such as `--help`.
    func afterParsing(_ error: any Error) -> Never {
        guard program.exitCode(for: error) == .success else {
            if let error = error as? CommandFailure { end(error.status.rawValue, "Error: \(error.message)") }
            if isCheck { end(NagiosStatus.unknown, program.message(for: error)) }
            end(ExitStatus.usage.rawValue, program.fullMessage(for: error))
        }
        answer(error)
    }

    /// Prints the answer to a request such as `--help`.
    private func answer(_ request: any Error) -> Never {
        let isTerminal = isatty(STDOUT_FILENO) == 1
        print(program.fullMessage(for: request, columns: isTerminal ? nil : HelpText.columns))
        Glibc.exit(EXIT_SUCCESS)
    }

    /// Ends the process because of an error of the command.
    func afterRunning(_ error: any Error) -> Never {
        if let failure = failure(error) {
            if isCheck {
                end(failure.status == .unavailable ? .critical : .unknown, failure.message)
            }
            end(failure.status.rawValue, "Error: \(failure.message)")
        }
        if program.exitCode(for: error) == .success { answer(error) }
        if let error = error as? ExitCode {
            do { try Terminal.checkOutput() } catch let failure as CommandFailure {
                end(failure.status.rawValue, "Error: \(failure.message)")
            } catch {
                // The reader has closed its end, and needs no message.
            }
            Glibc.exit(error.rawValue)
        }
        end(program.exitCode(for: error).rawValue, program.fullMessage(for: error))
    }

    private func failure(_ error: any Error) -> CommandFailure? {
        switch error {
        case let error as CommandFailure: error
        case let error as RedisError: CommandFailure(error)
        case let error as ValidationError: CommandFailure(.usage, error.message)
        case let error as Mistake: CommandFailure(.usage, error.description)
        default: nil
        }
    }

    /// True for `status --check`, which must always answer with one line on standard output.
    private var isCheck: Bool { arguments.first == "status" && arguments.contains("--check") }

    private func end(_ status: NagiosStatus, _ message: String) -> Never {
        let line = message.withoutSecrets.split(separator: "\n").first.map(String.init) ?? ""
        Terminal.print("\(status.word): \(line)\n")
        Glibc.exit(status.rawValue)
    }

    private func end(_ status: Int32, _ message: String) -> Never {
        Terminal.note(message.withoutSecrets + "\n")
        Glibc.exit(status)
    }
}
