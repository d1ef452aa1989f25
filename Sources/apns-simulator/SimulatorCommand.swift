import APNSSimulator
import ArgumentParser
import FoundationEssentials
import Glibc
import Sockets
import UnixSignals

@main
struct SimulatorCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "apns-simulator",
        abstract: "Simulate the Apple Push Notification service for development and tests.",
        discussion: """
            Speaks HTTP/2 over TLS as APNs does, checks requests as strictly, answers with the same statuses, reasons and \
            headers, and keeps an account of accepted notifications. Rules simulate failures.

            START
              apns-simulator --write-certificates certs --account account.json
              When it listens, it prints one line of JSON: {"pid":4711,"port":40123}
              with "gateway_port", "feedback_port" and "control_port" if they are open.
              Connect your client to 127.0.0.1 and that port, trusting certs/ca.pem. Use
              provider tokens of the key certs/AuthKey_ABC123DEFG.p8 and the team
              TEAM123456, or the certificate certs/client.pem.

            CONTROL
              With --control-port the simulator keeps what it receives. In a browser, that
              port shows each push as a device would, and has buttons for the next answer.
              Programs query and change the simulator there in JSON over HTTP/1.1:
                GET /notifications     received notifications, oldest first, as
                                       {"notifications":[…],"last":12,"overwritten":0}
                  after=12             only later ones
                  token=HEX            only of this device
                  outcome=accepted     or refused
                  limit=1000           maximum number
                  wait=10              seconds to wait for the first one
                DELETE /notifications  delete them
                GET /account           the account; details=true lists ids and tokens
                GET /rules             the rules in force
                PUT /rules             replace the rules: {"rules":["answer=410"]}
                POST /rules            append a rule: {"rule":"answer=410"}
                DELETE /rules          delete all rules
                GET, PUT, POST, DELETE /gateway-rules
                                       the same for the rules of GATEWAY
                GET /feedback          the records of the feedback service
                POST /feedback         add records; seconds since 1970, by default now:
                                       {"records":[{"token":"HEX","seconds":1700000000}]}
                DELETE /feedback       delete all records
                GET /settings          the default behaviour; see SETTINGS
                PATCH /settings        change a part: {"settings":"token-interval=off"}
                GET, PUT /topics       the accepted topics: {"topics":["com.example.app"]}
                GET, PUT, POST, DELETE /devices
                                       the registered device tokens; see DEVICES
                GET /delay, PUT /delay the delay of answers:
                                       {"delay":"20ms±5ms"}, or null
                POST /faults/goaway    send GOAWAY on every connection; reason=Shutdown.
                                       The gateway sends the packet with status 10
                POST /faults/drop      close every connection abruptly
                POST /faults/wedge     answer no more requests on open connections;
                                       SETTINGS and PINGs still work
                POST /faults/stop-listening, POST /faults/start-listening
                                       refuse new connections for a while
                GET /health, GET /     health; a list of these requests
              Errors are a status and {"error":"…"}. A notification has the request, the
              payload as JSON, and in outcome the answer, such as
              {"status":410,"reason":"Unregistered"}, or one of dropped, silenced, reset,
              closed and goaway. Notifications of the gateway have their identifier, the
              certificate's topic, and "transport":"gateway"; the outcome has the packet's
              status and name, 0 if accepted, and dropped for those behind the one that
              ended the connection. --record FILE writes the same, one per line.

            CHANNELS
              Broadcasts are accepted at /4/broadcasts/apps/BUNDLE-ID. Their channels are managed at the same port:
                POST, GET, DELETE /1/apps/BUNDLE-ID/channels    GET /1/apps/BUNDLE-ID/all-channels
              Channels are kept in memory. The account counts broadcasts as accepted, and separately; requests that manage
              channels are in management_answers only.

            SETTINGS
              By default the simulator is as strict as APNs. --set changes that:
                environment=production   or sandbox: the simulated environment
                error-streams=1          concurrent streams after a 4xx other than 410, until the next 200; off
                error-limit=100          GOAWAY after this many 4xx other than 410 in a row; off
                bad-token-limit=20       or after this many BadDeviceToken among them; off
                token-interval=20m       a connection may change its provider token once in this time. The next change
                                         gets TooManyProviderTokenUpdates, as do all requests until it has passed; off
                token-age=60m            maximum difference of iat and the clock; off
                expired-wedge=on         a connection that answered ExpiredProviderToken answers nothing else; off
                bind-topics=on           a connection keeps the topics of its first push; off
                registered-only=off      on: refuse unregistered device tokens (--registered-only)
                unique-id=auto           apns-unique-id in answers for devices: in the sandbox; on; off. Answers to
                                         broadcasts always have it
                no-broadcasts=           apps without the capability, as BUNDLE-ID+BUNDLE-ID: BroadcastFeatureNotEnabled
              A change by the control port applies to new connections.

            DEVICES
              An unregistered device token is valid for every topic. A registered one is valid for its topic and environment:
                --device token=HEX,topic=com.example.app,environment=sandbox
              Another topic gets DeviceTokenNotForTopic, another environment BadDeviceToken. With state=unregistered or
              state=expired it gets 410 Unregistered or ExpiredToken, with since=MILLISECONDS as the timestamp. The binary
              gateway answers all of these with status 8, except that it accepts notifications for unregistered devices and
              has the feedback service report them; its topic is the certificate's.

            KEYS
              A client certificate overrides authorization. A key of --provider-key is for all topics of its team, and a
              connection accepts tokens of all such keys. A scope after the file changes that:
                ,environment=sandbox     elsewhere it gets BadEnvironmentKeyInToken
                ,topics=BUNDLE-ID+…      a topic-specific key: other topics get TopicDisallowed, and other keys on the same
                                         connection UnrelatedKeyIdInToken
                ,related=KEYID           except for this one
              Another team on the same connection gets InvalidProviderToken.

            RULES
              A rule is a list of key=value. These select requests (all must match):
                prefix=dead   device tokens that begin with these hex digits
                rate=0.01     this share of requests
                times=1       the first N requests of each token; tokens older than the newest --account-limit ones
                              count from 0 again
                after=1000    every N-th request of a connection
                connection=2  requests of the second connection since the start
              These are the effects:
                answer=410 | 429 | 500 | 503 | …   an HTTP status with the reason that belongs to it
                answer=BadDeviceToken | …          a reason with the status that belongs to it
                  reason=NewReason  body=whole|empty|split|text  retry-after=SECONDS  timestamp=MILLISECONDS
                answer=reset    code=REFUSED_STREAM|INTERNAL_ERROR|…  accept=false|true
                answer=goaway   reason=Shutdown  last-stream=exact|accepted|zero
                answer=drop     close the connection abruptly; accept=true|false
                answer=silence  never answer; accept=false|true
                delay=20ms±5ms  delay the answer (+- works like ±)
                streams=1       lower the stream limit; for=500ms
              accept=true counts the notification as accepted although it gets no answer. The first matching rule with an
              answer decides. Rules without a prefix match broadcasts too; times then counts by channel.

              With at=channels a rule matches requests that manage channels, with rate, times (of each app), after and connection.
              A reason may have spaces: answer=Service Unavailable.

              With at=connect a rule matches connections: the N-th since the start (connection=N), the first N (times=N), every
              N-th (after=N), or a share (rate=0.1). It decides how they fail after the TLS handshake:
                answer=wedge        answer SETTINGS and PINGs, but no request
                answer=no-window    grant no flow-control window beyond the first 65,535 bytes
                answer=no-settings  send nothing at all, not even SETTINGS

            \(GatewayOptions.help)

            SIGNALS
              SIGTERM and SIGINT: send GOAWAY or Shutdown, finish, write the account, exit with 0. SIGUSR1: write the account.
            """)

    @Option(help: "Address to listen on.")
    var host = "127.0.0.1"

    @Option(help: "Port to listen on; 0 chooses a free one.")
    var port: UInt16 = 0

    @Option(help: ArgumentHelp("Write the port to this file when listening.", valueName: "file"))
    var portFile: String?

    @OptionGroup var certificates: CertificateOptions

    @OptionGroup var control: ControlOptions

    @Option(
        help: ArgumentHelp(
            "Key of provider tokens, with an optional scope; see KEYS. Repeatable. Without one, and without "
                + "--write-certificates, signatures are not checked.",
            valueName: "keyid:teamid:file.p8[,scope]"))
    var providerKey: [String] = []

    @Option(
        help: ArgumentHelp(
            "Change the default behaviour, such as token-interval=off; see SETTINGS. Repeatable.",
            valueName: "key=value,…"))
    var set: [String] = []

    @Option(
        help: ArgumentHelp(
            "Registered device token; see DEVICES. Repeatable.",
            valueName: "token=hex,topic=…"))
    var device: [String] = []

    @Option(help: ArgumentHelp("File of registered device tokens, one per line.", valueName: "file"))
    var devices: String?

    @Flag(help: "Refuse unregistered device tokens with BadDeviceToken.")
    var registeredOnly = false

    @Option(
        help: ArgumentHelp(
            "Accepted topic, with the topics derived from it. Repeatable. (default: all topics)",
            valueName: "bundle-id"))
    var topic: [String] = []

    @Option(help: "Maximum number of broadcast channels per app.")
    var maxChannels = 10_000

    @Option(help: "Maximum concurrent streams of a trusted connection.")
    var maxStreams = 1000

    @Option(help: "Maximum concurrent streams before the first valid provider token.")
    var initialStreams = 1

    @Option(help: "Flow-control window of a connection in bytes.")
    var connectionWindow: Int32 = 65_535

    @Option(help: "Number of event loops.")
    var threads = 1

    @Option(help: ArgumentHelp("Fault rule; see RULES. Repeatable.", valueName: "rule"))
    var rule: [String] = []

    @Option(help: ArgumentHelp("Delay of every answer, such as 20ms±5ms.", valueName: "delay"))
    var delay: String?

    @Option(
        help: ArgumentHelp(
            "Payload member with the time of sending in microseconds since 1970, for latencies in the account.",
            valueName: "member"))
    var measureLatency: String?

    @Option(help: "Seed of random rules and delays.")
    var seed: UInt64 = 1

    @Option(
        help: ArgumentHelp("Write the account to this file as JSON, at the end and at SIGUSR1.", valueName: "file"))
    var account: String?

    @Option(
        help: ArgumentHelp(
            "Minimum number of apns-ids and device tokens that the account counts separately, and that rules with "
                + "times= know; the oldest are forgotten, except with --record-tokens and --token-counts.",
            valueName: "number"))
    var accountLimit = 40_000

    @OptionGroup(title: "Gateway and feedback options")
    var gateway: GatewayOptions

    @Flag(
        help: ArgumentHelp(
            "List every accepted apns-id and device token in the account, each with the number of notifications."))
    var recordTokens = false

    @Option(
        help: ArgumentHelp(
            "At the end, write the number of accepted notifications per device token to this file, one per line.",
            valueName: "file"))
    var tokenCounts: String?

    @Flag(help: "Print nothing but the line of JSON.")
    var quiet = false

    func run() async throws {
        // The simulator must survive when the reader of the recording closes the pipe.
        signal(SIGPIPE, SIG_IGN)
        let signals = await UnixSignalsSequence(trapping: .sigterm, .sigint, .sigusr1)
        // A second signal must not end the process before the account is written.
        defer { withExtendedLifetime(signals) {} }
        let recordFile = try control.recordFile()
        var configuration = try configuration()
        control.apply(to: &configuration, file: recordFile)
        let server = try await APNSSimulatorServer.start(configuration)
        try announce(server)
        let lines = quiet ? nil : control.printLines(of: server.recorder)
        for await signal in signals {
            guard signal == .sigusr1 else { break }
            try write(server.account)
        }
        try await server.stop()
        lines?.cancel()
        await lines?.value
        try write(server.account)
        if let tokenCounts {
            try Self.replace(tokenCounts, with: Data(server.account.tokenCounts()))
        }
        if !quiet {
            let account = server.account
            let gateway = server.gatewayPort == nil ? "" : ", \(account.gateway.accepted) of them through the gateway"
            StandardError.write("apns-simulator: \(account.requests) requests, \(account.accepted) accepted\(gateway)")
        }
        // The failure was reported when it happened. The exit status shows scripts that the recording is incomplete.
        if recordFile?.failure != nil { throw ExitCode.failure }
    }

    private func configuration() throws -> SimulatorConfiguration {
        var configuration = try certificates.configuration(topic: topic.first ?? "com.example.app")
        configuration.host = host
        configuration.port = Int(port)
        configuration.providerKeys += try providerKey.map(Self.providerKey)
        for text in set { try configuration.settings.change(text) }
        if registeredOnly { configuration.settings.acceptsRegisteredOnly = true }
        configuration.devices = try device.map { try RegisteredDevice($0) }
        if let devices {
            let text = try OptionFile.read(devices, for: "--devices")
            configuration.devices += try RegisteredDevice.all(inFile: String(decoding: text, as: UTF8.self))
        }
        guard accountLimit >= 1 else { throw ValidationError("--account-limit must be at least 1") }
        configuration.accountLimit = recordTokens || tokenCounts != nil ? nil : accountLimit
        configuration.topics = topic
        guard maxStreams >= 1, initialStreams >= 1 else {
            throw ValidationError("--max-streams and --initial-streams must be at least 1")
        }
        guard connectionWindow >= 65_535 else {
            throw ValidationError(
                "--connection-window must be at least 65535, the initial window of HTTP/2")
        }
        guard (1...256).contains(threads) else { throw ValidationError("--threads must be 1 to 256") }
        guard maxChannels >= 0 else { throw ValidationError("--max-channels must be at least 0") }
        configuration.maximumChannels = maxChannels
        configuration.maximumStreams = maxStreams
        configuration.initialStreams = initialStreams
        configuration.connectionWindow = connectionWindow
        configuration.threads = threads
        configuration.rules = try rule.map { try FaultRule($0) }
        if let delay {
            guard let value = AnswerDelay(delay) else {
                throw ValidationError("--delay must be \(AnswerDelay.form)")
            }
            configuration.delay = value
        }
        configuration.latencyMember = measureLatency
        configuration.seed = seed
        try gateway.apply(to: &configuration)
        return configuration
    }

    private static func providerKey(_ text: String) throws -> ProviderKey {
        let parts = text.split(separator: ":", maxSplits: 2).map(String.init)
        guard parts.count == 3 else {
            throw ValidationError("--provider-key '\(text)' must be KEYID:TEAMID:FILE[,SCOPE]")
        }
        // File names can contain commas.
        let scopeStart = parts[2].ranges(of: ",").first { comma in
            ["topics=", "environment=", "related="].contains { parts[2][comma.upperBound...].hasPrefix($0) }
        }
        let file = String(parts[2][..<(scopeStart?.lowerBound ?? parts[2].endIndex)])
        let pem = try OptionFile.read(file, for: "--provider-key")
        let scope = try scopeStart.map { try ProviderKey.Scope(String(parts[2][$0.upperBound...])) }
        return try ProviderKey(keyID: parts[0], teamID: parts[1], pem: Array(pem), scope: scope ?? ProviderKey.Scope())
    }

    private func announce(_ server: APNSSimulatorServer) throws {
        if let portFile { try Data("\(server.port)\n".utf8).write(to: URL(filePath: portFile), options: .atomic) }
        let ports = [
            ("port", server.port), ("gateway_port", server.gatewayPort), ("feedback_port", server.feedbackPort),
            ("control_port", server.controlPort),
        ]
        let members = ports.compactMap { name, port in port.map { "\"\(name)\":\($0)" } }
        let process = ProcessInfo.processInfo.processIdentifier
        // Without buffering, because the reader of a pipe waits for the line.
        let limit = ContinuousClock.now + .seconds(1)
        _ = DescriptorOutput.write("{\"pid\":\(process),\(members.joined(separator: ","))}\n", to: STDOUT_FILENO) {
            ContinuousClock.now < limit
        }
        guard !quiet else { return }
        StandardError.write("apns-simulator: listening on \(host):\(server.port)")
        if let port = server.gatewayPort { StandardError.write("apns-simulator: gateway on \(host):\(port)") }
        if let port = server.feedbackPort { StandardError.write("apns-simulator: feedback on \(host):\(port)") }
        if let port = server.controlPort { StandardError.write("apns-simulator: inbox  \(control.inbox(port: port))") }
    }

    private func write(_ record: Account) throws {
        guard let account else { return }
        try Self.replace(account, with: Data((try record.json(details: recordTokens) + "\n").utf8))
    }

    /// Replaces a file at once, so that a concurrent reader never sees half of it. Only the owner can read a new file, because it may
    /// contain device tokens.
    private static func replace(_ path: String, with data: Data) throws {
        let mask = umask(0o077)
        defer { umask(mask) }
        try data.write(to: URL(filePath: path), options: .atomic)
    }
}
