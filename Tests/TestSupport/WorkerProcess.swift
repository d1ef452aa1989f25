import Foundation

/// `apns-worker run` as a separate process.
package final class WorkerProcess: Sendable {
    /// The worker's account: notifications, unless stated otherwise.
    package struct Account: Decodable, Sendable {
        package let submitted, delivered, invalidToken, suppressed, expired, dropped, retried, deferred: Int
        package let scheduled, resent, dead, possibleDuplicates, lostClaims: Int
    }

    package let process: ChildProcess

    private let accountPath: URL
    /// It must not be removed before the process has opened it.
    private let pipe: StalledPipe?

    /// Starts a worker with one lane and short retries.
    /// - Parameters:
    ///   - redis: the URL of its Redis.
    ///   - endpoint: the port of its APNs on `localhost`.
    ///   - authority: the one of ``TestCertificates`` that it trusts.
    ///   - options: further arguments of `run`, which override those that it has here.
    ///   - environment: further variables, which override those that it has here; an empty value unsets a variable.
    ///   - hasRights: false to drop the capabilities that root's processes have, as containers and systemd do.
    ///   - descriptors: the limit of file descriptors, such as `256`, or `64:256` for the soft and the hard limit.
    ///   - pipe: the named pipe that is its standard error; ``log`` is then empty.
    package init(
        redis: String, endpoint: Int, authority: String = "ca", options: [String] = [],
        environment more: [String: String] = [:], hasRights: Bool = true, descriptors: String? = nil,
        logsTo pipe: StalledPipe? = nil
    ) throws {
        let account = FileManager.default.temporaryDirectory.appending(path: "worker-\(UUID().uuidString).json")
        accountPath = account
        self.pipe = pipe
        let environment = [
            "APNS_WORKER_REDIS_URL": redis, "APNS_WORKER_ENDPOINT": "localhost:\(endpoint)",
            "APNS_WORKER_CA": try TestCertificates.path("\(authority).pem"),
            "APNS_WORKER_KEY": try TestCertificates.path("AuthKey_ABC123DEFG.p8"),
            "APNS_WORKER_KEY_ID": "ABC123DEFG", "APNS_WORKER_TEAM_ID": "TEAM123456",
            "APNS_WORKER_TOPIC": "com.example.app", "APNS_WORKER_LANES": "1", "APNS_WORKER_LEASE": "7000",
            "APNS_WORKER_RETRY_BASE": "100", "APNS_WORKER_RETRY_CAP": "400", "APNS_WORKER_LOG_FORMAT": "text",
        ]
        let command = [try BuiltProgram.path("apns-worker"), "run", "--account", account.path] + options
        // Only root has capabilities to drop.
        let setpriv = hasRights || geteuid() != 0 ? [] : ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        let prlimit = descriptors.map { ["prlimit", "--nofile=\($0)"] } ?? []
        process = try ChildProcess(
            (pipe?.command(2) ?? []) + prlimit + setpriv + command, environment: environment.merging(more) { $1 })
    }

    /// Starts a worker whose app uses the binary gateway, with the `client` of ``TestCertificates``.
    /// - Parameters:
    ///   - redis: the URL of its Redis.
    ///   - gateway: the port of its gateway on `localhost`.
    ///   - confirmAfter: its `--gateway-confirm-after`, in ms.
    ///   - options: further arguments of `run`, which override those that it has here.
    ///   - environment: further variables, which override those that it has here; an empty value unsets a variable.
    package convenience init(
        redis: String, gateway: Int, confirmAfter: Int = 1000, options: [String] = [],
        environment more: [String: String] = [:]
    ) throws {
        let gatewayOnly = [
            "APNS_WORKER_TRANSPORT": "gateway", "APNS_WORKER_GATEWAY_CONFIRM_AFTER": "\(confirmAfter)",
            "APNS_WORKER_KEY": "", "APNS_WORKER_KEY_ID": "", "APNS_WORKER_TEAM_ID": "",
        ].merging(try TestCertificates.clientVariables()) { $1 }
        try self.init(
            redis: redis, endpoint: gateway, options: options, environment: gatewayOnly.merging(more) { $1 })
    }

    deinit {
        process.kill()
        try? FileManager.default.removeItem(at: accountPath)
    }

    package var log: String { process.errors }

    /// The lines of its log with an event.
    package func lines(of event: String) -> [Substring] { log.lines(of: event) }

    /// Waits until its log has a line with an event and all of these words.
    /// - Throws: ``ChildProcess/Failure`` if it ends before that, or the time is over.
    package func logs(_ event: String, _ words: String...) async throws {
        try await process.until("the worker logs \(event) \(words)") {
            lines(of: event).contains { line in words.allSatisfy(line.contains) }
        }
    }

    /// Waits until it ends by itself, after `--exit-when-done`.
    /// - Returns: its statistics.
    /// - Throws: ``ChildProcess/Failure`` if it does not exit with 0, or not in time.
    package func finish() async throws -> Account {
        let ending = try await process.wait(within: .seconds(300))
        guard ending == .exited(0) else { throw process.failure("ended with \(ending)") }
        return try JSONDecoder.snakeCase.decode(Account.self, from: Data(contentsOf: accountPath))
    }

    /// Drains it with SIGTERM, and waits until it has ended.
    /// - Parameter signal: SIGTERM or SIGINT.
    /// - Returns: its statistics.
    package func stop(by signal: Int32 = SIGTERM) async throws -> Account {
        process.send(signal)
        return try await finish()
    }
}

extension JSONDecoder {
    /// A decoder of the JSON of the programs.
    package static var snakeCase: JSONDecoder {
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        return decoder
    }
}

extension String {
    /// The lines of a log in the text format with an event.
    package func lines(of event: String) -> [Substring] {
        // Most calls wait for a line that is not there yet, and a log can have megabytes.
        guard Data(utf8).end(of: " event=\(event)") != nil else { return [] }
        return split(separator: "\n").filter { $0.contains(" event=\(event) ") || $0.hasSuffix(" event=\(event)") }
    }
}
