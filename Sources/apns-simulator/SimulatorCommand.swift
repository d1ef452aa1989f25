import APNSSimulator
import ArgumentParser
import FoundationEssentials

/// `apns-simulator`: listens until it is told to stop.
@main
struct SimulatorCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "apns-simulator",
        abstract: "An Apple Push Notification service to develop and test against.",
        discussion: """
            Speaks HTTP/2 over TLS as APNs does, checks every request as strictly, answers with the same statuses, \
            reasons and headers, and keeps an account of what it accepted. Rules make things go wrong.

            START
              apns-simulator --write-certificates certs --account account.json
              It prints one line of JSON when it listens: {"pid":4711,"port":40123}
              with "gatewayPort", "feedbackPort" and "controlPort" for those that are asked for.
              Point your client at 127.0.0.1 and that port, trusting certs/ca.pem. It is
              known by provider tokens of the key certs/AuthKey_ABC123DEFG.p8 and the
              team TEAM123456, or by the certificate certs/client.pem.

            CONTROL
              With --control-port the simulator keeps what it receives, and can be asked
              and steered while it runs, in JSON over HTTP/1.1:
                GET /notifications     what arrived, the oldest first, as
                                       {"notifications":[…],"last":12,"overwritten":0}
                  after=12             only what came after that one
                  token=HEX            only for that device
                  outcome=accepted     or refused
                  limit=1000           no more than so many
                  wait=10              seconds to wait for the first, if there is none
                DELETE /notifications  forget them
                GET /account           the account; details=true lists ids and tokens
                GET /rules             the rules in force
                PUT /rules             others instead: {"rules":["answer=410"]}
                POST /rules            one more, behind the others: {"rule":"answer=410"}
                DELETE /rules          none
                GET, PUT, POST, DELETE /gateway-rules
                                       the same for the rules of GATEWAY
                GET /feedback          what the feedback service has still to tell
                POST /feedback         more of it; seconds since 1970, or now:
                                       {"records":[{"token":"HEX","seconds":1700000000}]}
                DELETE /feedback       nothing
                GET /settings          what it does by itself; see SETTINGS
                PATCH /settings        change some of it: {"settings":"token-interval=off"}
                GET, PUT /topics       the topics that may be pushed to: {"topics":["com.example.app"]}
                GET, PUT, POST, DELETE /devices
                                       the device tokens that it knows; see DEVICES
                GET /delay, PUT /delay how long answers are held back:
                                       {"delay":"20ms±5ms"}, or null for not at all
                POST /faults/goaway    say GOAWAY on every connection; reason=Shutdown.
                                       The gateway sends the packet with status 10
                POST /faults/drop      close every connection without a word
                POST /faults/wedge     answer no request any more on the connections that
                                       are open, but SETTINGS and PINGs
                POST /faults/stop-listening, POST /faults/start-listening
                                       refuse new connections for a while
                GET /health, GET /     whether it is there; what there is
              Errors are a status and {"error":"…"}. A notification has what was sent, the
              payload as JSON, and in outcome what was answered, such as
              {"status":410,"reason":"Unregistered"}, or one of dropped, silenced, reset,
              closed and goaway. One that came by the gateway has its identifier, the
              certificate's topic, and "transport":"gateway"; its outcome has the packet's
              status and name, 0 for accepted without a word, and is dropped for what came
              behind the one that ended the connection. --record FILE writes the same, a
              line each.

            CHANNELS
              Broadcasts are taken at /4/broadcasts/apps/BUNDLE-ID, and their channels are managed at the same port:
                POST, GET, DELETE /1/apps/BUNDLE-ID/channels    GET /1/apps/BUNDLE-ID/all-channels
              Channels are kept in memory. The account has broadcasts among what was accepted, and by themselves; requests
              that manage channels are in managementAnswers only.

            SETTINGS
              By itself the simulator is as strict as APNs. --set changes that:
                environment=production   or sandbox: what the simulator is
                error-streams=1          concurrent streams after a 4xx other than 410, until the next 200; off
                error-limit=100          GOAWAY after so many 4xx in a row, 410 aside; off
                bad-token-limit=20       or after so many BadDeviceToken among them; off
                token-interval=20m       a connection may change its provider token once in this time. The next change
                                         gets TooManyProviderTokenUpdates, and so do all requests until it is over; off
                token-age=60m            how far iat may be from now, either way; off
                expired-wedge=on         a connection that answered ExpiredProviderToken answers nothing else; off
                bind-topics=on           a connection keeps to the topics that there were at its first push; off
                registered-only=off      on: refuse device tokens that are not known (--registered-only)
                unique-id=auto           apns-unique-id in answers for devices: in the sandbox; on; off. Answers to
                                         broadcasts always have it
                no-broadcasts=           apps without the capability, as BUNDLE-ID+BUNDLE-ID: BroadcastFeatureNotEnabled
              A change by the control port applies to new connections.

            DEVICES
              A device token that is not known is good for every topic. A known one is for its topic and environment only:
                --device token=HEX,topic=com.example.app,environment=sandbox
              Another topic gets DeviceTokenNotForTopic, another environment BadDeviceToken. With state=unregistered or
              state=expired it gets 410 Unregistered or ExpiredToken, with since=MILLISECONDS as the timestamp. The binary
              gateway answers all of these with status 8, except that it accepts notifications for unregistered devices and
              has the feedback service report them; its topic is the certificate's.

            KEYS
              A client certificate wins over authorization. A key of --provider-key is for all topics of its team, and a
              connection takes tokens of all such keys. A scope behind the file changes that:
                ,environment=sandbox     elsewhere it gets BadEnvironmentKeyInToken
                ,topics=BUNDLE-ID+…      a topic-specific key: other topics get TopicDisallowed, and other keys on the same
                                         connection UnrelatedKeyIdInToken
                ,related=KEYID           except for this one
              Another team on the same connection gets InvalidProviderToken.

            RULES
              A rule is a list of key=value. These say which requests it meets (all must agree):
                prefix=dead   device tokens that begin with these hex digits
                rate=0.01     this share of requests
                times=1       the first N requests of each token; one that is older than --account-limit others may count
                              anew
                after=1000    every N-th request of a connection
                connection=2  requests of the second connection since the start
              and these what happens:
                answer=410 | 429 | 500 | 503 | …   an HTTP status with the reason that belongs to it
                answer=BadDeviceToken | …          a reason with the status that belongs to it
                  reason=NewReason  body=whole|empty|split|text  retry-after=SECONDS  timestamp=MILLISECONDS
                answer=reset    code=REFUSED_STREAM|INTERNAL_ERROR|…  accept=false|true
                answer=goaway   reason=Shutdown  last-stream=exact|accepted|zero
                answer=drop     close the connection without a word; accept=true|false
                answer=silence  never answer; accept=false|true
                delay=20ms±5ms  hold the answer back (+- does as well as ±)
                streams=1       lower the stream limit; for=500ms
              accept=true counts the notification as accepted although no answer comes. The first rule with an answer
              that meets a request decides. Rules without a prefix meet broadcasts too, and times counts by channel then.

              With at=channels a rule meets requests that manage channels, with rate, times (of each app), after and connection.
              A reason may have spaces: answer=Service Unavailable.

              With at=connect a rule meets connections: the N-th since the start (connection=N), the first N (times=N), every
              N-th (after=N), or a share (rate=0.1). It decides how they fail from their TLS handshake on:
                answer=wedge        answer SETTINGS and PINGs, and no request
                answer=no-window    grant no flow-control window beyond the first 65,535 bytes
                answer=no-settings  send nothing at all, not even SETTINGS

            \(GatewayOptions.help)

            SIGNALS
              SIGTERM and SIGINT: say GOAWAY or Shutdown, finish, write the account, exit with 0. SIGUSR1: write the account.
            """)

    @Option(help: "The address to listen on.")
    var host = "127.0.0.1"

    @Option(help: "The port to listen on; 0 takes a free one.")
    var port: UInt16 = 0

    @Option(help: ArgumentHelp("Write the port to this file when listening.", valueName: "file"))
    var portFile: String?

    @OptionGroup var certificates: CertificateOptions

    @OptionGroup var control: ControlOptions

    @Option(
        help: ArgumentHelp(
            "A key that provider tokens may be signed with (repeatable). Without any, and without --write-certificates, "
                + "signatures are not checked. Behind the file it may have a scope; see KEYS.",
            valueName: "keyid:teamid:file.p8[,scope]"))
    var providerKey: [String] = []

    @Option(
        help: ArgumentHelp(
            "Change what the simulator does by itself (repeatable), such as token-interval=off; see SETTINGS.",
            valueName: "key=value,…"))
    var set: [String] = []

    @Option(
        help: ArgumentHelp(
            "A device token that the simulator knows (repeatable); see DEVICES.",
            valueName: "token=hex,topic=…"))
    var device: [String] = []

    @Option(help: ArgumentHelp("A file of such device tokens, one a line.", valueName: "file"))
    var devices: String?

    @Flag(help: "Refuse device tokens that the simulator does not know, with BadDeviceToken.")
    var registeredOnly = false

    @Option(
        help: ArgumentHelp(
            "A topic that may be pushed to, with all derived from it (repeatable). Without any, every topic may.",
            valueName: "bundle-id"))
    var topic: [String] = []

    @Option(help: "How many broadcast channels an app may have.")
    var maxChannels = 10_000

    @Option(help: "How many streams a trusted connection may have open.")
    var maxStreams = 1000

    @Option(help: "How many streams before the first valid provider token.")
    var initialStreams = 1

    @Option(help: "Bytes of request bodies a connection may have under way.")
    var connectionWindow: Int32 = 65_535

    @Option(help: "The number of event loops.")
    var threads = 1

    @Option(help: ArgumentHelp("A scripted fault (repeatable); see RULES.", valueName: "rule"))
    var rule: [String] = []

    @Option(help: ArgumentHelp("Hold every answer back, such as 20ms±5ms.", valueName: "delay"))
    var delay: String?

    @Option(
        help: ArgumentHelp(
            "Measure from sending to arrival by this member of payloads, microseconds since 1970, into the account.",
            valueName: "member"))
    var measureLatency: String?

    @Option(help: "What the randomness of rules and delays starts from.")
    var seed: UInt64 = 1

    @Option(
        help: ArgumentHelp("Write the account to this file, as JSON, at the end and at SIGUSR1.", valueName: "file"))
    var account: String?

    @Option(
        help: ArgumentHelp(
            "How many apns-ids and device tokens the account counts apart, and rules with times= know, at least; the "
                + "oldest are forgotten. --record-tokens and --token-counts forget none.",
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
            "At the end, write each device token with how many notifications were accepted for it, a line each: for as "
                + "many as would make the account unwieldy.", valueName: "file"))
    var tokenCounts: String?

    @Flag(help: "Print nothing but the line of JSON.")
    var quiet = false

    func run() async throws {
        let signals = Signals()
        let recordFile = try control.recordFile()
        var configuration = try configuration()
        control.apply(to: &configuration, file: recordFile)
        let server = try await APNSSimulatorServer.start(configuration)
        try announce(server)
        for await signal in signals.stream {
            guard signal == .writeAccount else { break }
            try write(server.account)
        }
        // The sources end with the last use of this value.
        withExtendedLifetime(signals) {}
        try await server.stop()
        try write(server.account)
        if let tokenCounts {
            try Data(server.account.tokenCounts()).write(to: URL(filePath: tokenCounts), options: .atomic)
        }
        if !quiet {
            let account = server.account
            let gateway = server.gatewayPort == nil ? "" : ", \(account.acceptedByGateway) of them by the gateway"
            StandardError.write("apns-simulator: \(account.requests) requests, \(account.accepted) accepted\(gateway)")
        }
        // It was told when it happened; whoever looks at the status only must not take the recording for whole.
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
        if let devices { configuration.devices += try Self.devices(devices) }
        guard accountLimit >= 1 else { throw ValidationError("--account-limit must be at least 1") }
        configuration.accountLimit = recordTokens || tokenCounts != nil ? nil : accountLimit
        configuration.topics = topic
        guard maxStreams >= 1, initialStreams >= 1 else {
            throw ValidationError("--max-streams and --initial-streams must be at least 1")
        }
        guard connectionWindow >= 65_535 else {
            throw ValidationError(
                "--connection-window must be at least 65535, what every HTTP/2 connection starts with")
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
                throw ValidationError("--delay must be a time such as 20ms or 20ms±5ms, up to an hour")
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
            throw ValidationError("--provider-key '\(text)' must be KEYID:TEAMID:FILE, perhaps with ,SCOPE")
        }
        // A file's name may have commas of its own.
        let scopeStart = parts[2].ranges(of: ",").first { comma in
            ["topics=", "environment=", "related="].contains { parts[2][comma.upperBound...].hasPrefix($0) }
        }
        let file = String(parts[2][..<(scopeStart?.lowerBound ?? parts[2].endIndex)])
        guard let pem = try? Data(contentsOf: URL(filePath: file)) else {
            throw ValidationError("--provider-key: cannot read '\(file)'; check the path and its permissions")
        }
        let scope = try scopeStart.map { try ProviderKey.Scope(String(parts[2][$0.upperBound...])) }
        return try ProviderKey(keyID: parts[0], teamID: parts[1], pem: Array(pem), scope: scope ?? ProviderKey.Scope())
    }

    private static func devices(_ path: String) throws -> [RegisteredDevice] {
        guard let text = try? Data(contentsOf: URL(filePath: path)) else {
            throw ValidationError("--devices: cannot read '\(path)'; check the path and its permissions")
        }
        return try DeviceFile.devices(String(decoding: text, as: UTF8.self))
    }

    private func announce(_ server: APNSSimulatorServer) throws {
        if let portFile { try Data("\(server.port)\n".utf8).write(to: URL(filePath: portFile), options: .atomic) }
        let ports = [
            ("port", server.port), ("gatewayPort", server.gatewayPort), ("feedbackPort", server.feedbackPort),
            ("controlPort", server.controlPort),
        ]
        let members = ports.compactMap { name, port in port.map { "\"\(name)\":\($0)" } }
        let process = ProcessInfo.processInfo.processIdentifier
        StandardOutput.write("{\"pid\":\(process),\(members.joined(separator: ","))}")
        guard !quiet else { return }
        StandardError.write("apns-simulator: listening on \(host):\(server.port)")
        if let port = server.gatewayPort { StandardError.write("apns-simulator: gateway on \(host):\(port)") }
        if let port = server.feedbackPort { StandardError.write("apns-simulator: feedback on \(host):\(port)") }
    }

    // Whoever reads the file while it is written finds the old one, not half of the new.
    private func write(_ record: Account) throws {
        guard let account else { return }
        try Data((try record.json(details: recordTokens) + "\n").utf8)
            .write(to: URL(filePath: account), options: .atomic)
    }
}
