import Foundation

/// The program `apns-worker run`.
package final class WorkerProcess: Sendable {
    /// The worker's account, in numbers of notifications.
    package struct Account: Decodable, Sendable {
        package let submitted, delivered, invalidToken, suppressed, expired, dropped, retried, deferred: Int
        package let scheduled, resent, dead, possibleDuplicates, lostClaims: Int
    }

    package let process: ChildProcess

    private let accountPath: URL
    /// The pipe must exist until the process has opened it.
    private let pipe: StalledPipe?

    /// Starts a worker with one lane and short retries.
    /// - Parameters:
    ///   - redis: the URL of the worker's Redis.
    ///   - endpoint: the port of the worker's APNs on `localhost`.
    ///   - authority: the authority of ``TestCertificates`` that the worker trusts.
    ///   - options: further arguments of `run`. They override those of this function.
    ///   - environment: further variables. They override those of this function; an empty value unsets a variable.
    ///   - hasRights: false for a process without root's capabilities, as in containers and under systemd.
    ///   - descriptors: the limit of file descriptors, such as `256`, or `64:256` for the soft and the hard limit.
    ///   - pipe: the worker's standard error, instead of a file. Then ``log`` is empty.
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
        let setpriv = hasRights || geteuid() != 0 ? [] : ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]
        let prlimit = descriptors.map { ["prlimit", "--nofile=\($0)"] } ?? []
        process = try ChildProcess(
            (pipe?.command(2) ?? []) + prlimit + setpriv + command, environment: environment.merging(more) { $1 })
    }

    /// Starts a worker whose app uses the binary gateway with the certificate `client` of ``TestCertificates``.
    /// - Parameters:
    ///   - redis: the URL of the worker's Redis.
    ///   - gateway: the port of the worker's gateway on `localhost`.
    ///   - confirmAfter: the value of `--gateway-confirm-after`, in ms.
    ///   - options: further arguments of `run`. They override those of this function.
    ///   - environment: further variables. They override those of this function; an empty value unsets a variable.
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

    /// The lines of the worker's log with an event.
    package func lines(of event: String) -> [Substring] { log.lines(of: event) }

    /// Waits until a line of the worker's log has the event and all of these words.
    /// - Throws: ``ChildProcess/Failure`` if the worker ends before that, or after three minutes.
    package func logs(_ event: String, _ words: String...) async throws {
        try await process.until("the worker logs \(event) \(words)") {
            lines(of: event).contains { line in words.allSatisfy(line.contains) }
        }
    }

    /// Waits until the worker ends by itself, after `--exit-when-done`.
    /// - Throws: ``ChildProcess/Failure`` if the worker does not exit with 0 in time.
    package func finish() async throws -> Account {
        let ending = try await process.wait(within: .seconds(300))
        guard ending == .exited(0) else { throw process.failure("ended with \(ending)") }
        return try JSONDecoder.snakeCase.decode(Account.self, from: Data(contentsOf: accountPath))
    }

    /// Drains the worker, and waits until it has ended.
    /// - Parameter signal: SIGTERM or SIGINT.
    package func stop(by signal: Int32 = SIGTERM) async throws -> Account {
        process.send(signal)
        return try await finish()
    }
}

extension JSONDecoder {
    /// A decoder of the programs' JSON.
    package static var snakeCase: JSONDecoder {
        let decoder = JSONDecoder()
        decoder.keyDecodingStrategy = .convertFromSnakeCase
        return decoder
    }
}

extension String {
    /// The lines with an event, if the text is a log in the text format.
    package func lines(of event: String) -> [Substring] {
        // Most callers wait for a line that is not there yet. A log can have megabytes, and this search is fast.
        guard Data(utf8).end(of: " event=\(event)") != nil else { return [] }
        return split(separator: "\n").filter { $0.contains(" event=\(event) ") || $0.hasSuffix(" event=\(event)") }
    }
}
