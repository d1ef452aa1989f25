import APNS
import LegacyAPNS
import Logging
import NIOCore
import NIOPosix
import PrintableText
import PushQueue
import Sockets

/// Tries an app's credential and endpoint like a worker.
package struct AppCheck: LoopBound {
    /// A device token of no device. APNs reports it as bad only if it accepts the credential and the topic.
    private static let madeUpToken = String(repeating: "0", count: 64)
    /// The maximum time for a connection or an answer.
    private static let patience = TimeAmount.seconds(15)

    private let app: AppConfiguration
    private let eventLoop: any EventLoop
    private let now: Int64

    /// - Parameter now: seconds since 1970.
    package init(_ app: AppConfiguration, eventLoop: any EventLoop, now: Int64) {
        self.app = app
        self.eventLoop = eventLoop
        self.now = now
    }

    private var subject: String { "app \(app.name)" }

    /// Returns the findings about the credential, without a connection.
    package func credential() -> [CheckVerdict] {
        var verdicts: [CheckVerdict] = []
        switch app.credential {
        case .providerTokens(let sources):
            for source in sources {
                do {
                    _ = try source.sign(now: now)
                    verdicts.append(.init(.ok, subject, "signing key \(source.keyID) of team \(source.teamID)"))
                } catch {
                    verdicts.append(.init(.failure, subject, "signing key \(source.keyID): \(error)"))
                }
            }
        case .certificate(let identity):
            let certificate = identity.apns
            let topics = certificate.topics.map(\.name).joined(separator: ", ")
            verdicts.append(
                .init(
                    .ok, subject,
                    "certificate \(certificate.commonName ?? "without a name")\(topics.isEmpty ? "" : " for \(topics)")"
                ))
        }
        guard let plan = app.renewal?.plan else { return verdicts }
        let reports = plan.report(
            app.credential, topics: [app.topic] + app.otherTopics, endpoint: app.endpoint, now: now)
        for finding in reports.flatMap(\.findings) {
            let verdict = CheckVerdict(finding.severity == .error ? .failure : .warning, subject, finding.sentence)
            if !verdicts.contains(verdict) { verdicts.append(verdict) }
        }
        return verdicts
    }

    /// Connects to APNs, and sends a notification to a token of no device.
    package func endpoint() async -> [CheckVerdict] {
        let via = app.proxy.map { " through \($0)" } ?? ""
        let sources = app.credential.tokenSources
        var verdicts: [CheckVerdict] = []
        // A certificate is tried once. Each key gets a connection of its own, because a connection accepts only one key's tokens.
        for source in sources.isEmpty ? [nil] : sources.map(Optional.some) {
            let session: CheckSession
            do {
                session = try await CheckSession.open(app, on: eventLoop, within: Self.patience)
            } catch {
                return verdicts + [.init(.failure, subject, "\(app.endpoint)\(via): \(error)")]
            }
            if verdicts.isEmpty {
                verdicts.append(
                    .init(
                        .ok, subject,
                        "connected to \(app.endpoint)\(via) with TLS\(app.usesGateway ? "" : " and HTTP/2")"))
            }
            let name = source.map { "the key \($0.keyID)" } ?? "the certificate"
            do {
                verdicts.append(verdict(try await session.send(probe(), source, now: now), of: name))
            } catch {
                verdicts.append(.init(.failure, subject, "\(name) cannot be tested: \(error)"))
            }
            await session.close()
        }
        return verdicts
    }

    /// Sends the notifications of a job one after another.
    /// - Returns: the answers of APNs.
    package func send(_ notifications: [Notification]) async -> [CheckVerdict] {
        do {
            let session = try await CheckSession.open(app, on: eventLoop, within: Self.patience)
            var verdicts: [CheckVerdict] = []
            for notification in notifications {
                let result = try await session.send(notification, app.credential.tokenSources.first, now: now)
                let isDelivered = Verdict(result, topic: .app) == .delivered
                var verdict = CheckVerdict(
                    isDelivered ? .ok : .failure, "job",
                    "APNs answered for \(notification.deviceToken.shortened): \(result.inWords)")
                verdict.answer = answer(result, to: notification)
                verdicts.append(verdict)
            }
            await session.close()
            return verdicts
        } catch {
            return [.init(.failure, "job", "it cannot be sent: \(error)")]
        }
    }

    private func answer(_ result: RequestResult, to notification: Notification) -> CheckVerdict.Answer {
        var answer = CheckVerdict.Answer(token: String(buffer: notification.deviceToken.hex))
        answer.apnsID = app.usesGateway ? nil : notification.apnsID?.description
        switch result {
        case .response(let response):
            answer.status = response.status
            answer.reason = response.reasonText
            answer.timestamp = response.timestamp
            answer.apnsUniqueID = response.uniqueID?.description
        case .refused(let status):
            answer.status = Int(status)
            answer.reason = GatewayStatus(code: status).name
        case .confirmed, .notProcessed, .uncertain: break
        }
        return answer
    }

    private func probe() -> Notification {
        var token = DeviceToken.none
        if let made = try? DeviceToken(Self.madeUpToken) { token = made }
        // A background notification that APNs must not store, so that no user is disturbed.
        return Notification(
            deviceToken: token, payload: ByteBuffer(string: #"{"aps":{"content-available":1}}"#),
            topic: ByteBuffer(string: app.topic), pushType: .background, priority: 5, expiration: 0)
    }

    /// Returns a finding about the credential from APNs' answer to the made-up token.
    private func verdict(_ result: RequestResult, of name: String) -> CheckVerdict {
        let response: Response
        switch result {
        case .response(let answer): response = answer
        // The gateway must refuse a made-up token.
        case .refused(GatewayStatus.invalidToken.code): return .init(.ok, subject, "the gateway accepts \(name)")
        case .refused(let status):
            return .init(
                .failure, subject, "the gateway refuses \(name) or the notification: \(GatewayStatus(code: status))")
        case .confirmed:
            return .init(
                .warning, subject,
                "the gateway does not report an invalid token; does it send error packets at all?")
        case .notProcessed, .uncertain:
            // Frames of command 0 are never answered. The gateway closes the connection instead.
            if case .gateway(let options) = app.transport, options.frame == .simple {
                return .init(
                    .warning, subject,
                    "the frame simple has no error packets, so the gateway cannot show whether it accepts \(name)")
            }
            return .init(.failure, subject, "APNs did not answer: \(result.inWords)")
        }
        if response.status == 200, response.origin == .unnamed {
            return .init(
                .warning, subject,
                "\(app.endpoint) accepts \(name) for \(app.topic), but its answer has no apns-id, unlike those of APNs; a "
                    + "proxy may remove it")
        }
        switch response.reason {
        case .badDeviceToken, .deviceTokenNotForTopic, .unregistered, .expiredToken:
            return .init(.ok, subject, "APNs accepts \(name) for \(app.topic)")
        case nil where response.status == 200 && response.origin != .doubtful:
            return .init(.ok, subject, "APNs accepts \(name) for \(app.topic)")
        case .tooManyProviderTokenUpdates:
            return .init(
                .warning, subject,
                "APNs has recently seen too many provider tokens of \(name); try again in some minutes")
        default:
            return .init(
                .failure, subject,
                "APNs refuses \(name) for \(app.topic): \(result.inWords). "
                    + CredentialAdvice.text(response.reason, now: now))
        }
    }
}

/// Advice for operators after a refusal or a failure.
enum CredentialAdvice {
    /// Returns advice about a slow scope.
    /// - Parameter reason: the code of its last failure.
    static func text(of scope: ScopeRecord.Scope, _ reason: String, now: Int64) -> String {
        switch scope {
        case .job: "Look at the job, or cancel it"
        case .campaign: "Look at one of its jobs, or cancel the campaign"
        case .topic, .app: "Check the topic and the environment of the app"
        case .credential: text(APNSReason(rawValue: reason), now: now)
        case .endpoint: "Check Apple's status page, and any proxy between this host and APNs"
        }
    }

    /// - Parameters:
    ///   - reason: APNs' reason.
    ///   - now: this machine's time in seconds since 1970.
    static func text(_ reason: APNSReason?, now: Int64) -> String {
        let clock = "this machine's clock, which says \(utcTime(now))"
        return switch reason {
        // Tokens are renewed long before they expire, so an expired token shows a wrong clock.
        case .expiredProviderToken: "The token was signed a moment ago, so only the clock can be wrong: check \(clock)"
        case .invalidProviderToken: "Check the key, key ID, team ID, topic and environment, and \(clock)"
        default: "Check the key, key ID, team ID, topic and environment"
        }
    }
}

extension RequestResult {
    /// A one-line description for people.
    var inWords: String {
        switch self {
        case .response(let response):
            "\(response.status)\(response.reasonText.map { " \($0)" } ?? "")"
        case .notProcessed(let failure), .uncertain(let failure): "\(failure)"
        case .confirmed: "accepted by the gateway"
        case .refused(let status): "\(GatewayStatus(code: status))"
        }
    }
}
