import APNSSimulator
import ArgumentParser

struct ControlOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Listen for browsers and control requests on this port, plaintext HTTP/1.1; 0 chooses a free one. "
                + "See CONTROL.",
            valueName: "port"))
    var controlPort: UInt16?

    @Option(
        help: ArgumentHelp(
            "Address of the control port. It is unauthenticated and returns every payload. (default: 127.0.0.1)",
            valueName: "address"))
    var controlHost: String?

    @Option(
        help: ArgumentHelp(
            "Append each notification to this file as it arrives, one line of JSON each; - is standard output.",
            valueName: "file"))
    var record: String?

    @Option(help: ArgumentHelp("Number of notifications that the control port keeps.", valueName: "number"))
    var recordLimit = Recorder.defaultLimit

    @Option(
        name: .customLong("dashboard-url"),
        help: ArgumentHelp(
            "Address of the dashboard (`apns-worker web`) whose device pages the inbox links to.", valueName: "url"))
    var dashboardURL: String?

    @Flag(help: "Print no line for each notification. Lines are printed to standard error with --control-port.")
    var noLines = false

    func validate() throws {
        guard controlHost == nil || controlPort != nil else {
            throw ValidationError("--control-host needs --control-port")
        }
        if let dashboardURL {
            guard controlPort != nil else { throw ValidationError("--dashboard-url needs --control-port") }
            guard ["http://", "https://"].contains(where: { dashboardURL.hasPrefix($0) && dashboardURL != $0 }),
                !dashboardURL.contains(where: { $0.isWhitespace || "?#".contains($0) })
            else { throw ValidationError("--dashboard-url must be like http://localhost:8080") }
        }
        guard recordLimit >= 1 else { throw ValidationError("--record-limit must be at least 1") }
    }

    func recordFile() throws -> RecordFile? {
        try record.map { path in
            try RecordFile(path: path) { StandardError.write("apns-simulator: \($0)") }
        }
    }

    func inbox(port: Int) -> String {
        let host = controlHost ?? "127.0.0.1"
        // A server can listen on these two addresses, but clients cannot connect to them.
        let reachable = ["0.0.0.0": "127.0.0.1", "::": "[::1]"][host] ?? (host.contains(":") ? "[\(host)]" : host)
        return "http://\(reachable):\(port)/"
    }

    /// Starts printing a line for each notification, unless lines are disabled.
    func printLines(of recorder: Recorder?) -> Task<Void, Never>? {
        guard let recorder, controlPort != nil, !noLines else { return nil }
        let lines = NotificationLines(recorder) { StandardError.write($0) }
        return Task { await lines.run() }
    }

    func apply(to configuration: inout SimulatorConfiguration, file: RecordFile?) {
        configuration.controlPort = controlPort.map(Int.init)
        configuration.dashboardURL = dashboardURL
        if let controlHost { configuration.controlHost = controlHost }
        if controlPort != nil || file != nil { configuration.recorder = Recorder(limit: recordLimit, file: file) }
    }
}
