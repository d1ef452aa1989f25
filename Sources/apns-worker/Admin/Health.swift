import ArgumentParser
import FoundationEssentials
import NIOCore

/// Asks a worker's admin port: for images and machines that have no HTTP client.
struct Health: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Ask a worker on this machine whether it is alive, or ready.",
        discussion: """
            Asks the admin port for /healthz or, with --ready, for /readyz; prints the answer, and exits with 0 if all is \
            well and with 1 if not, or if nothing answers. For the health check of a container:

              HEALTHCHECK CMD ["apns-worker", "health"]

            The port is that of the worker's own setting, APNS_WORKER_ADMIN_PORT, or what the configuration file says.
            """)

    @OptionGroup var admin: SettingFlags<HealthFlags>

    @Flag(help: "Ask whether it can take and send jobs now, and not only whether it is alive.")
    var ready = false

    @Option(
        help: ArgumentHelp("How long to wait for the answer. (default: 5s)", valueName: "duration"),
        transform: { try DurationText.option($0, "--timeout", bare: .milliseconds, 1...3_600_000) })
    var timeout = 5000

    func run() async throws {
        guard let (host, port) = try address() else {
            throw ValidationError(
                "which port? Give the worker's with --admin-port or APNS_WORKER_ADMIN_PORT; a worker without one tells nothing"
            )
        }
        guard port > 0 else {
            throw ValidationError("the admin port is 0, for a free one; which one it is the worker's log tells")
        }
        let address = AdminAddress(host: host, port: port)
        let answer: AdminAnswer
        do {
            answer = try await address.get(ready ? "/readyz" : "/healthz", within: .milliseconds(Int64(timeout)))
        } catch {
            Terminal.tell("\(error)\n")
            throw ExitCode.failure
        }
        print(answer.body, terminator: answer.body.hasSuffix("\n") ? "" : "\n")
        guard answer.status == 200 else { throw ExitCode.failure }
    }

    /// From flags and variables if it is there. Only else the file is read: a worker that is well must not be taken for sick
    /// because somebody has made a mistake in a file that it has long read.
    private func address() throws -> (host: String, port: Int)? {
        let variables = ProcessInfo.processInfo.environment.filter { $0.key.hasPrefix("APNS_WORKER_ADMIN_") }
        if admin.file == nil,
            let address = try Settings(filePath: nil, flags: admin.given, environment: variables).adminAddress
        {
            return address
        }
        return try admin.settings().adminAddress
    }
}
