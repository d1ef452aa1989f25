import Foundation

/// The program `apns-simulator`. It accepts only provider tokens of the test key.
package final class SimulatorProcess: Sendable {
    /// The simulator's account. The program's `--help` explains the members.
    package struct Account: Decodable, Sendable {
        package let requests, accepted, acceptedAnswerLost, acceptedTakenBack, silenced, resets, drops: Int
        package let resetsReceived, goAways, connections, protocolErrors, duplicates: Int
        package let distinctIDs, distinctTokens, broadcasts: Int
        /// Answers by status and reason, such as `200` and `410 Unregistered`.
        package let answers: [String: Int]
        /// The number of notifications that the binary gateway accepted.
        package let acceptedByGateway: Int
        package let gateway: Gateway
        package let feedback: Feedback
        private let recordedByGatewayID: [String: Int]?
        private let recordedByToken: [String: Int]?
        private let recordedByChannel: [String: Int]?

        /// The number of accepted notifications by device token.
        package var acceptedByToken: [String: Int] { recordedByToken ?? [:] }
        /// The number of accepted broadcasts by channel.
        package var acceptedByChannel: [String: Int] { recordedByChannel ?? [:] }

        /// The notifications that the gateway accepted, in order; empty until the simulator has ended.
        package fileprivate(set) var gatewayAccepted: [GatewayRecord] = []
        /// The number of accepted notifications by ID, which is the member of the payload that `--gateway-id-member` names.
        package var gatewayAcceptedByID: [String: Int] { recordedByGatewayID ?? [:] }

        private enum CodingKeys: String, CodingKey {
            case requests, accepted, acceptedAnswerLost, acceptedTakenBack, silenced, resets, drops, resetsReceived
            case goAways, connections, protocolErrors, duplicates, distinctTokens
            case answers, broadcasts, acceptedByGateway, gateway, feedback
            case distinctIDs = "distinctIds"
            case recordedByGatewayID = "gatewayAcceptedById"
            case recordedByToken = "acceptedByToken"
            case recordedByChannel = "acceptedByChannel"
        }
    }

    package struct Gateway: Decodable, Sendable {
        /// The number of notifications by the protocol's command: `0`, `1` or `2`.
        package let frames: [String: Int]
        /// The numbers of refused notifications and of error packets by status, such as `8 InvalidToken`.
        package let refused, packets: [String: Int]
        package let accepted, dropped, duplicates, connections, refusedClients, resets: Int
    }

    package struct Feedback: Decodable, Sendable { package let connections, served, waiting: Int }

    /// A notification that the simulator's binary gateway accepted.
    package struct GatewayRecord: Equatable, Sendable {
        package let token, payload: String
        package let identifier, expiration: UInt32?
        package let priority: UInt8?
        fileprivate let isAccepted: Bool

        private struct Line: Decodable {
            let transport, token: String?
            let identifier, expiration: UInt32?
            let priority: UInt8?
            let accepted: Bool
        }

        /// Parses a line of the recording. The payload keeps its bytes.
        fileprivate init(line: Substring) throws {
            let members = try JSONDecoder().decode(Line.self, from: Data(line.utf8))
            token = members.token ?? ""
            identifier = members.identifier
            expiration = members.expiration
            priority = members.priority
            isAccepted = members.accepted && members.transport == "gateway"
            let start = line.range(of: #""payload":"#)?.upperBound
            let end = line.range(of: #","payload_bytes":"#, options: .backwards)?.lowerBound
            if let start, let end, start < end { payload = String(line[start..<end]) } else { payload = "" }
        }
    }

    package let port: Int
    /// The port of the binary gateway; `nil` without a gateway.
    package let gatewayPort: Int?
    /// The port of the feedback service; `nil` without that service.
    package let feedbackPort: Int?
    package let controlPort: Int?
    package let process: ChildProcess

    private let directory: URL

    /// Starts the simulator, and waits until it listens.
    /// - Parameters:
    ///   - rules: the values of `--rule`.
    ///   - certificate: the certificate of ``TestCertificates`` that the simulator presents.
    ///   - manyTokens: true for an account without tokens. At the end, ``forEachToken(_:)`` returns them.
    ///   - gateway: the values of `--gateway-rule`. The gateway accepts clients of the test authority; `nil` for no gateway.
    ///   - feedback: the values of `--feedback-fault`. The service accepts the gateway's clients; `nil` for no feedback service.
    ///   - options: further arguments.
    package init(
        rules: [String] = [], certificate: String = "server", manyTokens: Bool = false, gateway: [String]? = nil,
        feedback: [String]? = nil, options: [String] = []
    ) async throws {
        let directory = FileManager.default.temporaryDirectory.appending(path: "simulator-\(UUID().uuidString)")
        let arguments = [
            "--certificate", try TestCertificates.path("\(certificate).pem"),
            "--key", try TestCertificates.path("\(certificate)-key.pem"),
            "--provider-key", "ABC123DEFG:TEAM123456:\(try TestCertificates.path("AuthKey_ABC123DEFG.p8"))",
            "--account", directory.appending(path: "account.json").path,
        ]
        let record = manyTokens ? ["--token-counts", directory.appending(path: "tokens").path] : ["--record-tokens"]
        try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
        var binary: [String] = []
        // An option must not be there twice.
        if gateway != nil || feedback != nil, !options.contains("--client-ca") {
            binary += ["--client-ca", try TestCertificates.path("ca.pem")]
        }
        if let gateway { binary += ["--gateway-port", "0"] + gateway.flatMap { ["--gateway-rule", $0] } }
        if gateway != nil || options.contains("--gateway-port"), !options.contains("--record") {
            binary += ["--record", directory.appending(path: "record").path]
        }
        if let feedback { binary += ["--feedback-port", "0"] + feedback.flatMap { ["--feedback-fault", $0] } }
        let process = try ChildProcess(
            BuiltProgram.path("apns-simulator"),
            arguments + record + rules.flatMap { ["--rule", $0] } + binary + options)
        self.process = process
        self.directory = directory
        let announcement = try await Self.announcement(of: process)
        port = announcement.port
        gatewayPort = announcement.gatewayPort
        feedbackPort = announcement.feedbackPort
        controlPort = announcement.controlPort
    }

    deinit {
        process.kill()
        try? FileManager.default.removeItem(at: directory)
    }

    package func account() async throws -> Account { try await account(by: SIGUSR1) }

    /// Sends a request to the simulator's control port. The options must have `--control-port`.
    /// - Throws: ``ChildProcess/Failure`` if the request is refused.
    package func control(_ method: String, _ path: String, _ body: String? = nil) async throws {
        guard let controlPort else { throw process.failure("has no control port") }
        let answer = try await RawConnection.request(path, port: controlPort, method: method, body: body ?? "")
        guard answer.status < 400 else { throw process.failure("\(method) \(path) is answered with \(answer)") }
    }

    /// Stops the simulator with SIGTERM.
    /// - Returns: the simulator's final account.
    package func stop() async throws -> Account { try await account(by: SIGTERM) }

    /// Calls a function with each token and its number of accepted notifications. Needs `manyTokens`, and ``stop()`` before.
    package func forEachToken(_ body: (_ token: Substring, _ accepted: Int) throws -> Void) throws {
        let text = try String(contentsOf: directory.appending(path: "tokens"), encoding: .utf8)
        for line in text.split(separator: "\n") {
            let parts = line.split(separator: " ")
            guard parts.count == 2, let accepted = Int(parts[1]) else { throw process.failure("wrote \(line)") }
            try body(parts[0], accepted)
        }
    }

    private func account(by signal: Int32) async throws -> Account {
        let file = directory.appending(path: "account.json")
        if FileManager.default.fileExists(atPath: file.path) { try FileManager.default.removeItem(at: file) }
        process.send(signal)
        try await eventually("the simulator writes its account") { FileManager.default.fileExists(atPath: file.path) }
        if signal == SIGTERM {
            let ending = try await process.wait()
            guard ending == .exited(0) else { throw process.failure("ended with \(ending)") }
        }
        var account = try JSONDecoder.snakeCase.decode(Account.self, from: Data(contentsOf: file))
        if signal == SIGTERM { account.gatewayAccepted = try gatewayAccepted() }
        return account
    }

    /// Reads the recording.
    private func gatewayAccepted() throws -> [GatewayRecord] {
        let record = directory.appending(path: "record")
        guard FileManager.default.fileExists(atPath: record.path) else { return [] }
        return try String(contentsOf: record, encoding: .utf8).split(separator: "\n")
            .map { try GatewayRecord(line: $0) }.filter(\.isAccepted)
    }

    private struct Announcement: Decodable {
        let port: Int
        let gatewayPort, feedbackPort, controlPort: Int?
    }

    private static func announcement(of process: ChildProcess) async throws -> Announcement {
        var announcement: Announcement?
        try await process.until("the simulator listens") {
            let line = process.output
            guard line.hasSuffix("\n") else { return false }
            announcement = try JSONDecoder.snakeCase.decode(Announcement.self, from: Data(line.utf8))
            return true
        }
        guard let announcement else { throw process.failure("no port") }
        return announcement
    }
}
