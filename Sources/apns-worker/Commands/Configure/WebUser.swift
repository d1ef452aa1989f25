import ArgumentParser
import Dashboard
import Glibc
import PushQueue

struct WebUser: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "web-user", abstract: "Add a user to the file of the dashboard's users, or print the line.",
        discussion: """
            Asks for the password, or reads it from standard input. With --token it makes a random token for a program instead, \
            and prints the token on standard error, once: the file has only its hash.

              apns-worker web-user ada --role operator --users users
              apns-worker web-user ci --role viewer --token --users users
              apns-worker web-user shop --role producer --token --queue default --app shop --users users
              apns-worker web-user grace --role operator --proxy --users users
              apns-worker web-user ada --remove --users users

            With --proxy the user has no password: a proxy names the user (see `apns-worker web --user-header`).

            A producer can only enqueue jobs (POST /api/v1/jobs): on the queues that --queue names, and for the apps that \
            --app names.

            A line for the same user is replaced, which ends the user's sessions. A new file is private (mode 0600).
            """)

    enum GivenRole: String, CaseIterable, ExpressibleByArgument { case viewer, `operator`, producer }

    @Argument(help: "Name, without white space.") var name: String

    @Option(help: "viewer, operator or producer.") var role: GivenRole?

    @Flag(help: "Make a token for a program.") var token = false

    @Flag(help: "Set no password: a proxy logs the user in.") var proxy = false

    @Option(help: ArgumentHelp("Queue on which a producer can enqueue jobs. Repeatable.", valueName: "name"))
    var queue: [String] = []

    @Option(help: ArgumentHelp("App that a producer's jobs can name. Repeatable. (default: all)", valueName: "name"))
    var app: [String] = []

    @Option(
        help: ArgumentHelp(
            "Number of waiting jobs in a queue at which more jobs of the producer are refused. (default: no limit)",
            valueName: "jobs"))
    var maxQueueLength: Int?

    @Option(help: ArgumentHelp("File to change. (default: print the line)", valueName: "file")) var users: String?

    @Flag(help: "Remove the user from the file; with --token, the user's token.") var remove = false

    func validate() throws {
        guard !name.isEmpty, name.count <= 64, !name.hasPrefix("#"), !name.contains(where: \.isWhitespace) else {
            throw ValidationError("the name must have 1 to 64 characters, without white space")
        }
        if remove, users == nil { throw ValidationError("--remove needs --users") }
        if remove == (role != nil) {
            throw ValidationError(remove ? "--remove and --role cannot be combined" : "--role is missing")
        }
        if proxy, token || remove || role == .producer {
            throw ValidationError("--proxy cannot be combined with --token, --remove and --role producer")
        }
        guard role == .producer else {
            guard queue.isEmpty, app.isEmpty, maxQueueLength == nil else {
                throw ValidationError("--queue, --app and --max-queue-length are for --role producer")
            }
            return
        }
        guard token, !queue.isEmpty else { throw ValidationError("--role producer needs --token and --queue") }
        for name in queue + app where name.isEmpty || name.contains(where: \.isWhitespace) {
            throw ValidationError("the names of queues and apps of a producer must not be empty or have white space")
        }
        for name in queue {
            do { _ = try QueueKeys(queue: name) } catch { throw ValidationError("--queue: \(error)") }
        }
        if let maxQueueLength, maxQueueLength < 1 {
            throw ValidationError("--max-queue-length must be at least 1")
        }
    }

    func run() async throws {
        guard let role else { return try change(to: nil) }
        let credential: String
        if token {
            let made = NewCredential.token()
            Terminal.note("token  \(made.token)\n")
            credential = made.credential
        } else if proxy {
            credential = NewCredential.proxy
        } else {
            let password = try Self.password()
            guard password.utf8.count >= 8 else { throw ValidationError("the password must have at least 8 bytes") }
            credential = NewCredential.password(password)
        }
        let rights =
            role == .producer
            ? " " + ProducerRights(queues: queue, apps: app, maximumQueueLength: maxQueueLength).words : ""
        try change(to: "\(name) \(role.rawValue) \(credential)\(rights)")
    }

    /// Replaces, adds or removes the user's line in the file, or prints the line if no file is given.
    private func change(to line: String?) throws {
        guard let users else { return print(line ?? "") }
        do {
            guard try UserFile.replace(name, isToken: token, with: line, in: users) || line != nil else {
                throw CommandFailure(.attention, "\(users) has no \(token ? "token of " : "")user \(name)")
            }
        } catch let error as Users.Malformed {
            throw CommandFailure(.configuration, "--users: \(error)")
        }
        Terminal.note("\(line == nil ? "removed" : "saved") \(token ? "the token of " : "")\(name) in \(users)\n")
    }

    /// Reads a password, without an echo on a terminal.
    private static func password() throws -> String {
        guard isatty(STDIN_FILENO) == 1 else { return readLine() ?? "" }
        guard let read = getpass("Password: ") else { throw ValidationError("the password cannot be read") }
        let password = String(cString: read)
        guard let again = getpass("Again: "), String(cString: again) == password else {
            throw ValidationError("the passwords do not match")
        }
        return password
    }
}
