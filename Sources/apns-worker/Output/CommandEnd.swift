import ArgumentParser
import Glibc
import PrintableText
import Redis

/// The end of a command that did not succeed: its message and exit status.
enum CommandEnd {
    /// Ends the process because of an error in the command line, or because of a request such as `--help`.
    static func afterParsing(_ error: any Error, _ arguments: [String]) -> Never {
        guard ApnsWorker.exitCode(for: error) == .success else {
            if let error = error as? CommandFailure { end(error.status.rawValue, "Error: \(error.message)") }
            if isCheck(arguments) { end(NagiosStatus.unknown, ApnsWorker.message(for: error)) }
            end(ExitStatus.usage.rawValue, ApnsWorker.fullMessage(for: error))
        }
        answer(error)
    }

    /// Prints the answer to a request such as `--help`.
    private static func answer(_ request: any Error) -> Never {
        let isTerminal = isatty(STDOUT_FILENO) == 1
        print(ApnsWorker.fullMessage(for: request, columns: isTerminal ? nil : HelpText.columns))
        Glibc.exit(EXIT_SUCCESS)
    }

    /// Ends the process because of an error of the command.
    static func afterRunning(_ error: any Error, _ arguments: [String]) -> Never {
        if let failure = failure(error) {
            if isCheck(arguments) {
                end(failure.status == .unavailable ? .critical : .unknown, failure.message)
            }
            end(failure.status.rawValue, "Error: \(failure.message)")
        }
        if ApnsWorker.exitCode(for: error) == .success { answer(error) }
        if let error = error as? ExitCode {
            do { try Terminal.checkOutput() } catch let failure as CommandFailure {
                end(failure.status.rawValue, "Error: \(failure.message)")
            } catch {
                // The reader has closed its end, and needs no message.
            }
            Glibc.exit(error.rawValue)
        }
        end(ApnsWorker.exitCode(for: error).rawValue, ApnsWorker.fullMessage(for: error))
    }

    private static func failure(_ error: any Error) -> CommandFailure? {
        switch error {
        case let error as CommandFailure: error
        case let error as RedisError: CommandFailure(error)
        case let error as ValidationError: CommandFailure(.usage, error.message)
        case let error as Mistake: CommandFailure(.usage, error.description)
        default: nil
        }
    }

    /// True for `status --check`, which must always answer with one line on standard output.
    private static func isCheck(_ arguments: [String]) -> Bool {
        arguments.first == "status" && arguments.contains("--check")
    }

    private static func end(_ status: NagiosStatus, _ message: String) -> Never {
        let line = message.withoutSecrets.split(separator: "\n").first.map(String.init) ?? ""
        Terminal.print("\(status.word): \(line)\n")
        Glibc.exit(status.rawValue)
    }

    private static func end(_ status: Int32, _ message: String) -> Never {
        Terminal.note(message.withoutSecrets + "\n")
        Glibc.exit(status)
    }
}
