import APNSSimulator
import ArgumentParser

/// How a worker is told to bring its own APNs.
///
/// By flags only: a variable that somebody forgot would make a worker send nothing and call everything delivered.
struct SimulateOptions: ParsableArguments {
    @Flag(
        name: .customLong("simulate"),
        help: """
            Send to an APNs simulator in this process, and to no device. No credential is needed; those of all apps are \
            replaced by its own, and the topic defaults to \(SimulatedCredentials.defaultTopic). Jobs are taken from the queue as \
            always and count as delivered: give it a Redis or a queue to itself.
            """)
    var isOn = false

    @Option(
        name: .customLong("simulate-control-port"),
        help: ArgumentHelp(
            """
            The port on 127.0.0.1 by which the simulator is asked what it received and told what is to go wrong, over HTTP; \
            apns-simulator --help tells how. (default: a free one, which the log names)
            """, valueName: "port"))
    var controlPort: UInt16?

    @Option(
        name: .customLong("simulate-rule"),
        help: ArgumentHelp(
            "A fault, as of apns-simulator --rule, such as prefix=dead,answer=410. Repeatable.", valueName: "rule"))
    var rules: [String] = []

    @Option(
        name: .customLong("simulate-gateway-rule"),
        help: ArgumentHelp(
            "The same for apps whose transport is the gateway, as of apns-simulator --gateway-rule. Repeatable.",
            valueName: "rule"))
    var gatewayRules: [String] = []

    @Option(
        name: .customLong("simulate-record"),
        help: ArgumentHelp(
            """
            Append each notification to this file as it arrives, a line of JSON each; - is standard output.
            """, valueName: "file"))
    var record: String?

    func validate() throws {
        guard !isOn else { return }
        let others = [
            ("control-port", controlPort != nil), ("rule", !rules.isEmpty), ("gateway-rule", !gatewayRules.isEmpty),
            ("record", record != nil),
        ]
        if let (name, _) = others.first(where: \.1) {
            throw ValidationError("--simulate-\(name) says nothing without --simulate")
        }
    }

    /// What the simulator knows the apps by; `nil` if none is asked for.
    func credentials() throws -> SimulatedCredentials? { isOn ? try SimulatedCredentials() : nil }

    /// The rules for HTTP/2 and for the gateway.
    /// - Parameters:
    ///   - usesHTTP2: whether an app does.
    ///   - usesGateway: whether an app does.
    func faults(usesHTTP2: Bool, usesGateway: Bool) throws -> (http2: [FaultRule], gateway: [GatewayRule]) {
        guard usesGateway || gatewayRules.isEmpty else {
            throw ValidationError(
                "--simulate-gateway-rule meets nothing, for no app uses the gateway: leave it out, or add --transport gateway"
            )
        }
        guard usesHTTP2 || rules.isEmpty else {
            throw ValidationError(
                "--simulate-rule meets nothing, for all apps use the gateway: use --simulate-gateway-rule instead")
        }
        do {
            return (try rules.map { try FaultRule($0) }, try gatewayRules.map { try GatewayRule($0) })
        } catch {
            throw ValidationError("\(error)")
        }
    }
}
