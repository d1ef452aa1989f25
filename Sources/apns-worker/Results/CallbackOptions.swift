import ArgumentParser
import FoundationEssentials
import Glibc
import NIOCore
import Operations
import PushJob
import PushQueue
import PushWorker
import TLS

/// The options of the receiver that results are handed to as they arrive.
struct CallbackOptions: ParsableArguments {
    /// The variable with the secret of webhooks, as an alternative to a file.
    static let secretVariable = SettingsVariables.webhookSecret

    @Option(
        help: """
            Shell command that reads results on standard input, one JSON object per line. It is started for each batch; exit \
            status 0 accepts the batch.
            """)
    var exec: String?

    @Option(
        help: ArgumentHelp(
            """
            Variable that the command of --exec inherits, in addition to PATH, HOME, LANG and TZ. Repeatable.
            """, valueName: "name"))
    var execEnv: [String] = []

    @Option(
        help: ArgumentHelp(
            "URL that results are posted to as {\"results\":[…]}. A 2xx answer accepts them.", valueName: "url"))
    var webhook: String?

    @Option(
        help: ArgumentHelp(
            """
            File with the secret that signs webhooks: whsec_ and base64, or any text of 16 bytes or more. \
            (\(Self.secretVariable))
            """, valueName: "file"))
    var webhookSecretFile: String?

    @Option(
        help: ArgumentHelp(
            "File with the trusted certificate authorities for the webhook, PEM or DER. (default: the system's)",
            valueName: "file"))
    var webhookCA: String?

    @Option(help: "Consumer group. Each group gets every result once. (default: callbacks)") var group: String?

    @Option(help: "Name of this process in the group, unique among running processes. (default: host and process ID)")
    var consumer: String?

    @Option(help: "Maximum results per command or request. (default: 100)") var batch: Int?

    @Option(help: "Number of times that a result is tried alone before it is parked. (default: 10)") var tries: Int?

    @Option(
        name: .customLong("answer-timeout"),
        help: ArgumentHelp(
            "Maximum time for a request, or until the command has read its input and ended. (default: 10s)",
            valueName: "duration"))
    var timeout: String?

    @Option(
        help: ArgumentHelp(
            "Time after which the results of an inactive consumer are reclaimed. (default: 1m)",
            valueName: "duration"))
    var claimAfter: String?

    @Flag(help: "Hand over the existing results, and exit.") var once = false

    @Flag(help: "Begin with the results that were parked.") var retryParked = false

    /// True if results are handed over instead of printed.
    var isOn: Bool { exec != nil || webhook != nil }

    func validate() throws {
        guard isOn else {
            let others = [
                ("exec-env", !execEnv.isEmpty), ("webhook-secret-file", webhookSecretFile != nil),
                ("webhook-ca", webhookCA != nil), ("group", group != nil), ("consumer", consumer != nil),
                ("batch", batch != nil), ("tries", tries != nil), ("answer-timeout", timeout != nil),
                ("claim-after", claimAfter != nil), ("once", once), ("retry-parked", retryParked),
            ]
            if let (name, _) = others.first(where: \.1) {
                throw ValidationError("--\(name) needs --exec or --webhook")
            }
            return
        }
        if exec != nil, webhook != nil {
            throw ValidationError(
                "--exec and --webhook cannot be combined; run one process for each, with its own --group")
        }
        if exec == nil, !execEnv.isEmpty { throw ValidationError("--exec-env needs --exec") }
        if webhook == nil, webhookSecretFile != nil || webhookCA != nil {
            throw ValidationError("--webhook-secret-file and --webhook-ca need --webhook")
        }
        for (flag, name) in [("group", group), ("consumer", consumer)] {
            guard let name else { continue }
            let isPlain = name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F }
            guard isPlain, (1...100).contains(name.utf8.count) else {
                throw ValidationError("--\(flag) must have 1 to 100 printable ASCII characters without spaces")
            }
        }
        _ = try limits()
        _ = try address()
    }

    func limits() throws -> ResultDelivery.Limits {
        if let batch, !(1...1000).contains(batch) { throw ValidationError("--batch must be from 1 to 1000") }
        if let tries, !(1...1000).contains(tries) { throw ValidationError("--tries must be from 1 to 1000") }
        let claimAfter = try self.claimAfter.map {
            try DurationText.option($0, "--claim-after", 1...86_400)
        }
        let patience = try patience()
        let silence = claimAfter ?? max(60_000, 3 * patience)
        guard silence >= 2 * patience else {
            throw ValidationError(
                "--claim-after must be at least twice --answer-timeout, or results are handed over twice")
        }
        return ResultDelivery.Limits(batch: batch ?? 100, tries: tries ?? 10, claimAfter: silence, once: once)
    }

    /// Returns the maximum time for a request, in milliseconds.
    private func patience() throws -> Int {
        try timeout.map { try DurationText.option($0, "--answer-timeout", 1...3600) } ?? 10_000
    }

    private func address() throws -> HTTPAddress? {
        guard let webhook else { return nil }
        do { return try HTTPAddress(webhook) } catch { throw ValidationError("--webhook: \(error)") }
    }

    /// The name of this process in the group.
    var consumerName: String {
        let host = String(HostName.current.unicodeScalars.filter { $0.value > 0x20 && $0.value < 0x7F })
        return consumer ?? "\(host.prefix(80)).\(getpid())"
    }

    func receiver(_ stop: StopSignal) throws -> any ResultReceiver {
        let patience = try patience()
        if let exec {
            return CommandReceiver(
                command: exec, variables: execEnv, patience: .milliseconds(patience), stop: stop)
        }
        guard let address = try address() else { throw ValidationError("pass --exec or --webhook") }
        let post: HTTPPost
        do {
            post = try HTTPPost(address, authorities: webhookCA, timeout: .milliseconds(Int64(patience)))
        } catch {
            throw ValidationError("--webhook-ca: \(error)")
        }
        return Webhook(post: post, secret: try secret())
    }

    private func secret() throws -> Renewable<WebhookSecret> {
        if let webhookSecretFile {
            do {
                return try Renewable([.file(webhookSecretFile)]) { contents in
                    try WebhookSecret(String(decoding: contents[0], as: UTF8.self))
                }
            } catch let error as SecretSource.Unreadable {
                throw ValidationError("--webhook-secret-file: \(error)")
            }
        }
        guard let text = ProcessInfo.processInfo.environment[Self.secretVariable], !text.isEmpty else {
            throw ValidationError(
                """
                --webhook needs a secret, with which receivers verify that requests are yours; set one with \
                --webhook-secret-file or \(Self.secretVariable)
                """)
        }
        return Renewable(try WebhookSecret(text))
    }
}
