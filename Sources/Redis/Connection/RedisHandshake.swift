import Sockets

/// The first commands on a new connection: the login, the database, the client's name, and a check that the server answers.
struct RedisHandshake {
    enum Step: Equatable {
        case authenticate
        case select
        case setName
        /// A connection is ready only after a command has succeeded. Without password, database and name, `PING` is the only command, so
        /// that a server that requires a password or is still loading reports this.
        case ping
    }

    enum Outcome: Equatable {
        case proceed
        case ready
        case failed(RedisError)
    }

    let commands: [(step: Step, command: RedisCommand)]
    private let address: String
    private let access: RedisAccess
    private var answered = 0

    init(endpoint: RedisEndpoint, clientName: String?) {
        address = endpoint.address
        access = endpoint.access
        var commands: [(step: Step, command: RedisCommand)] = []
        if let password = endpoint.access.password {
            var command = RedisCommand("AUTH", expecting: 2)
            if let user = endpoint.access.user { command.append(user) }
            command.append(password)
            commands.append((.authenticate, command))
        }
        if endpoint.access.database != 0 {
            commands.append((.select, RedisCommand("SELECT", String(endpoint.access.database))))
        }
        if let clientName {
            commands.append((.setName, RedisCommand("CLIENT", "SETNAME", Self.printable(clientName))))
        }
        commands.append((.ping, RedisCommand("PING")))
        self.commands = commands
    }

    /// Processes the answers, in the order of `commands`.
    mutating func receive(_ result: Result<RESPReply, RedisError>) -> Outcome {
        let step = commands[answered].step
        answered += 1
        switch result {
        case .success:
            break
        case .failure(.server(let error)):
            if let failure = judge(error, at: step) { return .failed(failure) }
        case .failure(.connectionLost(_, _, let reason)):
            return .failed(.connect(address: address, reason: reason + (access.usesTLS ? "" : lostHint)))
        case .failure(.timeout(_, let after)):
            let reason = "connected, but no answer within \(after.formatted)"
            return .failed(.connect(address: address, reason: reason + (access.usesTLS ? silentHint : "")))
        case .failure(let error):
            return .failed(error)
        }
        return answered == commands.count ? .ready : .proceed
    }

    private func judge(_ error: RedisServerError, at step: Step) -> RedisError? {
        switch (step, error.prefix) {
        case (_, "NOAUTH"), (_, "WRONGPASS"), (.select, "NOPERM"):
            return .authentication(address: address, reply: error, source: access.source)
        case (.authenticate, "ERR") where error.message.contains("AUTH") || error.message.contains("password"):
            return .authentication(address: address, reply: error, source: access.source)
        case (.setName, "ERR"), (.setName, "NOPERM"), (.ping, "NOPERM"):
            // The name is optional, so it does no harm if a proxy or an ACL refuses it. A user who may not PING can still do the work.
            return nil
        case (.ping, "MISCONF"):
            // A server that cannot write to its disk refuses writes and PING, but answers other commands.
            return nil
        case (.select, "ERR"):
            return .connect(
                address: address, reason: "\(error.message): check the database (/db) of the Redis URL")
        default:
            // These errors (LOADING, MASTERDOWN, DENIED in protected mode, too many clients) are about the server, not about the command.
            return .connect(address: address, reason: Self.answered(error))
        }
    }

    static func answered(_ error: RedisServerError) -> String { RedisError.server(error).description }

    /// Returns the error of a connection that the server refused with this first line; `nil` if the line is not an error.
    static func refused(_ greeting: String, address: String) -> RedisError? {
        guard greeting.hasPrefix("-") else { return nil }
        return .connect(address: address, reason: answered(RedisServerError(text: String(greeting.dropFirst()))))
    }

    /// A TLS port closes the connection after plain commands, and so does a proxy without a server. A plain port takes a TLS greeting for
    /// an unfinished command, and waits for its end.
    private var lostHint: String {
        "; if a proxy listens there, check that it has a server; if the server wants TLS there, use rediss://"
    }
    private var silentHint: String { "; if the server does not speak TLS there, use redis://" }

    /// Replaces the spaces, newlines and special characters that CLIENT SETNAME refuses.
    private static func printable(_ name: String) -> String {
        String(decoding: name.utf8.map { (0x21...0x7e).contains($0) ? $0 : UInt8(ascii: "-") }, as: UTF8.self)
    }
}
