import APNSSimulator
import ArgumentParser
import FoundationEssentials

struct GatewayOptions: ParsableArguments {
    @Option(help: "Port of a binary gateway; 0 chooses a free one.")
    var gatewayPort: UInt16?

    @Option(help: ArgumentHelp("Fault rule of the gateway; see GATEWAY. Repeatable.", valueName: "rule"))
    var gatewayRule: [String] = []

    @Option(help: ArgumentHelp("Maximum payload of the gateway; 256 for the oldest ones.", valueName: "bytes"))
    var gatewayPayloadLimit = 2048

    @Option(
        help: ArgumentHelp(
            "Member of payloads that identifies repeated notifications in the gateway's account.", valueName: "member"))
    var gatewayIdMember: String?

    @Option(help: "Port of a feedback service; 0 chooses a free one.")
    var feedbackPort: UInt16?

    @Option(
        help: ArgumentHelp(
            "File with the feedback service's records: one per line, a token and the seconds since 1970.",
            valueName: "file"))
    var feedback: String?

    @Option(
        help: ArgumentHelp(
            "Fault of the feedback service; see FEEDBACK. Repeatable.", valueName: "fault"))
    var feedbackFault: [String] = []

    @Flag(
        help: "Refuse clients of the gateway and the feedback service during the handshake instead of after it.")
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
            throw ValidationError("--refuse-handshake needs --client-ca")
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
        guard let feedback else { return }
        let text = try OptionFile.read(feedback, for: "--feedback")
        do {
            configuration.feedback = try FeedbackRecord.all(inFile: String(decoding: text, as: UTF8.self))
        } catch {
            throw ValidationError("--feedback: '\(feedback)', \(error)")
        }
    }

    static let help = """
        GATEWAY
          With --gateway-port the simulator also speaks the binary protocol, commands 0, 1 and 2. Clients need a
          certificate: signed by --client-ca if given, and for a topic of --topic if given. Others are accepted and
          closed, as Apple did. A good notification gets no answer. A bad one gets an error packet with its status,
          and the connection closes (command 0: it only closes); notifications after it are dropped. At SIGTERM each
          client gets a packet with status 10 that names the last accepted notification.
          A rule matches notifications with prefix=, rate=, times= and after= as above, or
            at=connect    connections, when TLS is established; times=N are then the first N connections
          The first rule that matches decides:
            answer=8 | InvalidToken | …   an error packet, by the status' number, 0 to 255, or its name:
                                          NoError ProcessingError MissingDeviceToken MissingTopic MissingPayload
                                          InvalidTokenSize InvalidTopicSize InvalidPayloadSize InvalidToken Shutdown
                                          ProtocolError UnknownError
              identifier=0|wrong          name no notification, or one that was never sent
              split=true                  send its bytes one by one
              packet=half                 close after three of its six bytes
              linger=true                 stay open after it, and read and drop until the client closes
            answer=10     name the matched notification, which is accepted; with accept=false the last before it
            answer=close  close without a packet; accept=true|false
            answer=hang   read nothing more, and stay open; accept=false|true
            answer=reset  a TCP reset; accept=false|true
            answer=feedback   accept it, and add the token to the feedback service
            delay=200ms   delay the packet or the close; notifications that arrive in the meantime are dropped
          Example: --gateway-rule prefix=dead,answer=8,delay=200ms --gateway-rule at=connect,answer=close,times=2

        FEEDBACK
          With --feedback-port the simulator also serves feedback to clients with a certificate as above, each record
          once, and closes. Records are those of --feedback FILE, and the devices that got answer=feedback of the
          gateway or answer=410 of HTTP/2. Records are forgotten when sending begins. A fault is a list of
            slow=10ms     wait between pieces           pieces=1..7   send pieces of so many bytes, not whole records
            cut=50        close after so many bytes     hang=true     do not close
            times=1       only the first N connections
        """
}
