import APNSSimulator
import ArgumentParser
import FoundationEssentials

/// What the binary gateway and the feedback service are told.
struct GatewayOptions: ParsableArguments {
    @Option(help: "Listen as the binary gateway too; 0 takes a free port.")
    var gatewayPort: UInt16?

    @Option(help: ArgumentHelp("A scripted fault of the gateway (repeatable); see GATEWAY.", valueName: "rule"))
    var gatewayRule: [String] = []

    @Option(help: ArgumentHelp("The largest payload that the gateway takes, such as 256 of old.", valueName: "bytes"))
    var gatewayPayloadLimit = 2048

    @Option(
        help: ArgumentHelp(
            "A member of payloads by which the gateway's account tells what came twice.", valueName: "member"))
    var gatewayIdMember: String?

    @Option(help: "Listen as the feedback service too; 0 takes a free port.")
    var feedbackPort: UInt16?

    @Option(
        help: ArgumentHelp(
            "What the feedback service has to tell: a line for each device, its token and the seconds since 1970.",
            valueName: "file"))
    var feedback: String?

    @Option(
        help: ArgumentHelp(
            "A scripted fault of the feedback service (repeatable); see FEEDBACK.", valueName: "fault"))
    var feedbackFault: [String] = []

    @Flag(
        help: "Refuse clients of the gateway and the feedback service in the handshake, instead of closing after it.")
    var refuseHandshake = false

    func apply(to configuration: inout SimulatorConfiguration) throws {
        if gatewayPort == nil {
            guard gatewayRule.isEmpty, gatewayIdMember == nil else {
                throw ValidationError("--gateway-rule and --gateway-id-member need --gateway-port")
            }
        }
        if feedbackPort == nil {
            guard feedback == nil, feedbackFault.isEmpty else {
                throw ValidationError("--feedback and --feedback-fault need --feedback-port")
            }
        }
        guard !refuseHandshake || configuration.clientTrust != nil else {
            throw ValidationError("--refuse-handshake needs --client-ca, or there is no certificate to refuse")
        }
        guard (1...65_535).contains(gatewayPayloadLimit) else {
            throw ValidationError("--gateway-payload-limit must be 1 to 65535")
        }
        configuration.gatewayPort = gatewayPort.map { Int($0) }
        configuration.gatewayRules = try gatewayRule.map { try GatewayRule($0) }
        configuration.maximumGatewayPayload = gatewayPayloadLimit
        configuration.gatewayIDMember = gatewayIdMember
        configuration.feedbackPort = feedbackPort.map { Int($0) }
        configuration.feedbackRules = try feedbackFault.map { try FeedbackRule($0) }
        configuration.refusesHandshake = refuseHandshake
        if let feedback { configuration.feedback = try Self.records(feedback) }
    }

    private static func records(_ path: String) throws -> [FeedbackRecord] {
        let text: Data
        do {
            text = try Data(contentsOf: URL(filePath: path))
        } catch {
            throw ValidationError("--feedback: cannot read '\(path)'; check the path and its permissions")
        }
        do {
            return try FeedbackFile.records(String(decoding: text, as: UTF8.self))
        } catch {
            throw ValidationError("--feedback: '\(path)', \(error)")
        }
    }

    /// What `--help` says of both.
    static let help = """
        GATEWAY
          With --gateway-port it also takes the binary protocol, commands 0, 1 and 2, from clients that show a
          certificate: one that --client-ca signed, or any; for a topic of --topic, or any. Others are let in and
          closed, as Apple did. A good notification gets no answer. A bad one gets an error packet with the status
          that belongs to it and the connection closes (command 0: it only closes); what came after it is dropped.
          At SIGTERM each client gets a packet with status 10 that names the last notification accepted.
          A rule says which notifications it meets, with prefix=, rate=, times= and after= as above, or
            at=connect    connections, when TLS is established; times=N are then the first N connections
          and what happens; the first that meets a notification decides:
            answer=8 | InvalidToken | …   an error packet, by the status' number, 0 to 255, or its name:
                                          NoError ProcessingError MissingDeviceToken MissingTopic MissingPayload
                                          InvalidTokenSize InvalidTopicSize InvalidPayloadSize InvalidToken Shutdown
                                          ProtocolError UnknownError
              identifier=0|wrong          name no notification, or one that was never sent
              split=true                  its bytes come one by one
              packet=half                 close after three of its six bytes
              linger=true                 stay open after it, and read and drop until the client closes
            answer=10     names the notification it meets, which is accepted; with accept=false the last before it
            answer=close  close without a packet; accept=true|false
            answer=hang   read nothing more, and stay open; accept=false|true
            answer=reset  a TCP reset; accept=false|true
            answer=feedback   accept it, and let the feedback service tell that the app is gone
            delay=200ms   the packet, or the end, comes so late; what arrives meanwhile is dropped
          Such as --gateway-rule prefix=dead,answer=8,delay=200ms --gateway-rule at=connect,answer=close,times=2

        FEEDBACK
          With --feedback-port it also serves feedback, each record once, to clients with a certificate as above, and
          closes. It tells of the devices in --feedback FILE, and of those that answer=feedback of the gateway and
          answer=410 of HTTP/2 have met. What has begun to be sent is forgotten. A fault is a list of
            slow=10ms     wait between pieces           pieces=1..7   send pieces of so many bytes, not whole records
            cut=50        close after so many bytes     hang=true     do not close
            times=1       only the first N connections
        """
}
