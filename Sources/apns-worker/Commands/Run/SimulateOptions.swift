import APNSSimulator
import ArgumentParser

/// The options of a worker with a simulated APNs.
///
/// They are only flags: a forgotten variable would make a worker send nothing and report everything as delivered.
struct SimulateOptions: ParsableArguments {
    @Flag(
        name: .customLong("simulate"),
        help: """
            Send to a simulated APNs in this process, and to no device. Needs no credential: credentials, endpoints and proxies of \
            the environment and the file are ignored, and the topic defaults to \(SimulatedCredentials.defaultTopic). Jobs are \
            claimed from the queue as usual and count as delivered, so use a separate Redis or queue.
            """)
    var isOn = false

    @Option(
        name: .customLong("simulate-control-port"),
        help: ArgumentHelp(
            """
            Port on 127.0.0.1 for the inbox, which shows each push in a browser, and for requests that query and control the \
            simulator; see apns-simulator --help. (default: a free port, which the log names)
            """, valueName: "port"))
    var controlPort: UInt16?

    @Option(
        name: .customLong("simulate-rule"),
        help: ArgumentHelp(
            "Fault rule as for apns-simulator --rule, such as prefix=dead,answer=410. Repeatable.", valueName: "rule"))
    var rules: [String] = []

    @Option(
        name: .customLong("simulate-gateway-rule"),
        help: ArgumentHelp(
            "Fault rule for apps with the gateway transport, as for apns-simulator --gateway-rule. Repeatable.",
            valueName: "rule"))
    var gatewayRules: [String] = []

    @Option(
        name: .customLong("simulate-record"),
        help: ArgumentHelp(
            """
            Append each notification to this file as it arrives, one line of JSON each; - is standard output.
            """, valueName: "file"))
    var record: String?

    @Flag(
        name: .customLong("simulate-no-lines"),
        help: "Print no line for each notification. Lines are printed alongside a log in the text format.")
    var noLines = false

    func validate() throws {
        guard !isOn else { return }
        let others = [
            ("control-port", controlPort != nil), ("rule", !rules.isEmpty), ("gateway-rule", !gatewayRules.isEmpty),
            ("record", record != nil), ("no-lines", noLines),
        ]
        if let (name, _) = others.first(where: \.1) {
            throw ValidationError("--simulate-\(name) needs --simulate")
        }
    }

    /// Creates the credentials of the apps for the simulator; `nil` without a simulator.
    func credentials() throws -> SimulatedCredentials? { isOn ? try SimulatedCredentials() : nil }

    /// Returns the rules for HTTP/2 and for the gateway.
    /// - Parameters:
    ///   - usesHTTP2: true if any app uses HTTP/2.
    ///   - usesGateway: true if any app uses the gateway.
    func faults(usesHTTP2: Bool, usesGateway: Bool) throws -> (http2: [FaultRule], gateway: [GatewayRule]) {
        guard usesGateway || gatewayRules.isEmpty else {
            throw ValidationError(
                "--simulate-gateway-rule has no effect, because no app uses the gateway; omit it, or add --transport gateway"
            )
        }
        guard usesHTTP2 || rules.isEmpty else {
            throw ValidationError(
                "--simulate-rule has no effect, because all apps use the gateway; use --simulate-gateway-rule instead")
        }
        do {
            return (try rules.map { try FaultRule($0) }, try gatewayRules.map { try GatewayRule($0) })
        } catch {
            throw ValidationError("\(error)")
        }
    }
}
