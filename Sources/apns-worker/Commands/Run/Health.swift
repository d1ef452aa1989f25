import ArgumentParser
import FoundationEssentials
import NIOCore
import PushJob

/// Queries a worker's admin port, for images and machines without an HTTP client.
struct Health: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "health",
        abstract: "Query the health of a worker on this machine.",
        discussion: """
            Requests /healthz or, with --ready, /readyz from the admin port, prints the answer, and exits with 0 if it is healthy \
            and with 1 if not, or if nothing answers. For the health check of a container:

              HEALTHCHECK CMD ["apns-worker", "health"]

            The port is the worker's setting: APNS_WORKER_ADMIN_PORT, or admin.port in the configuration file.
            """)

    @OptionGroup var admin: SettingFlags<HealthFlags>

    @Flag(help: "Query readiness instead of liveness.")
    var ready = false

    @Option(
        help: ArgumentHelp("Maximum time to wait for the answer. (default: 5s)", valueName: "duration"))
    var timeout: String?

    func validate() throws { _ = try patience() }

    /// Returns the maximum time to wait, in milliseconds.
    private func patience() throws -> Int {
        try timeout.map { try DurationText.option($0, "--timeout", 1...3_600_000, .milliseconds) } ?? 5000
    }

    func run() async throws {
        guard let (host, port) = try address() else {
            throw ValidationError(
                "no admin port is set; set the worker's with --admin-port or APNS_WORKER_ADMIN_PORT"
            )
        }
        guard port > 0 else {
            throw ValidationError(
                "the admin port is 0, which means a free port; set --admin-port to the port in the worker's log")
        }
        // A port that listens on all addresses is reached at the loopback address.
        let reached = host == "0.0.0.0" ? "127.0.0.1" : host == "::" ? "::1" : host
        let address = HTTPAddress(host: reached, port: port, target: ready ? "/readyz" : "/healthz")
        let answer: HTTPExchange.Answer
        do {
            answer = try await HTTPExchange(address: address).send(.GET, within: .milliseconds(Int64(try patience())))
        } catch let failure as HTTPExchange.Failure {
            let place = "\(reached.contains(":") ? "[\(reached)]" : reached):\(port)"
            Terminal.note(Self.description(of: failure, place) + "\n")
            throw ExitCode.failure
        }
        let text = String(buffer: answer.body)
        Terminal.print(text + (text.hasSuffix("\n") ? "" : "\n"))
        guard answer.status == 200 else { throw ExitCode.failure }
    }

    private static func description(of failure: HTTPExchange.Failure, _ place: String) -> String {
        switch failure {
        case .unreachable(let reason):
            "nothing answers at \(place): \(reason). Is the worker running, with this admin port?"
        case .timeout(let limit): "\(place) does not answer within \(limit.nanoseconds / 1_000_000) ms"
        case .closed: "\(place) closed the connection without an answer"
        case .broken(let reason): "\(place) did not answer like an admin port: \(reason)"
        }
    }

    /// Returns the address in flags and variables. The file is read only if they lack the address, so that a new mistake in the file does
    /// not make a healthy worker look unhealthy.
    private func address() throws -> (host: String, port: Int)? {
        let variables = ProcessInfo.processInfo.environment.filter { $0.key.hasPrefix("APNS_WORKER_ADMIN_") }
        if admin.file == nil,
            let address = try WorkerSettings(Settings(filePath: nil, flags: admin.given, environment: variables))
                .adminAddress
        {
            return address
        }
        return try WorkerSettings(admin.settings()).adminAddress
    }
}
