import APNS
import Logging
import NIOCore
import PushQueue

/// The credential of one app on one lane: its signing keys, the key in use, and the provider token of its requests. It shares the token
/// with the fleet, renews it, and changes the key.
///
/// Belongs to the lane's event loop.
final class AppCredential {
    private let app: String
    private let lane: LaneContext
    private let fleet: Fleet
    private let queues: [QueueContext]
    private var credential: Credential
    private var sources: [ProviderTokenSource]
    /// The transport that gets the provider token.
    private var transport: any Transport
    private var logMetadata: Logger.Metadata
    /// The index of the key in use.
    private(set) var keyIndex = 0
    private var refusedKeys: Set<Int> = []
    private var sharing: TokenSharing
    private(set) var providerToken: ProviderToken?

    init(
        _ credential: Credential, of app: String, _ transport: any Transport, _ lane: LaneContext, _ fleet: Fleet,
        queues: [QueueContext], logMetadata: Logger.Metadata
    ) {
        (self.credential, self.app, self.transport, self.lane, self.fleet) = (credential, app, transport, lane, fleet)
        (self.queues, self.logMetadata) = (queues, logMetadata)
        sources = credential.tokenSources
        sharing = Self.sharing(lane)
    }

    /// Makes workers renew the token at different ages, so that usually only one worker of a fleet signs a new token.
    private static func sharing(_ lane: LaneContext) -> TokenSharing { TokenSharing(jitter: lane.random(in: 0...300)) }

    func replace(with new: Credential) {
        credential = new
        sources = new.tokenSources
        refusedKeys = []
        use(key: 0, sharing: Self.sharing(lane))
        if sources.isEmpty { transport.setProviderToken(nil) }
        keep()
    }

    /// Gives the provider token to another transport from now on.
    func use(_ new: any Transport, logMetadata: Logger.Metadata) {
        (transport, self.logMetadata) = (new, logMetadata)
        new.setProviderToken(providerToken?.jwt)
    }

    /// True if requests can be signed or need no signature.
    var canSend: Bool { sources.isEmpty || providerToken != nil }

    /// The names of the signing keys or of the certificate, for operators.
    var names: [String] {
        switch credential {
        case .providerTokens: return sources.map { "key \($0.keyID)" }
        case .certificate(let certificate):
            let topics = certificate.apns.topics.map(\.name).prefix(1).joined()
            return ["certificate \(topics) until \(certificate.notAfter ?? 0)"]
        }
    }

    var keyIDs: [String] { sources.map(\.keyID) }

    /// The end of the certificate's validity, in seconds since 1970; `nil` for an app with keys.
    var certificateEnd: Int64? { credential.certificateEnd }

    /// The time of the signature of the provider token in use, in seconds since 1970; 0 without one.
    var providerTokenIssuedAt: Int64 { providerToken?.issuedAt ?? 0 }

    /// The age of the provider token in use, in seconds.
    func providerTokenAge(now: Int64) -> Int64? { providerToken.map { now - $0.issuedAt } }

    /// The signing key in use; `nil` for a certificate.
    private var source: ProviderTokenSource? { sources.isEmpty ? nil : sources[keyIndex] }

    // MARK: The provider token

    /// Keeps a valid provider token: asks the fleet for one in time, and signs one if the fleet lacks it.
    func keep() {
        guard let source else { return }
        let wall = lane.wallClock()
        // All lanes of the process share the token, so another lane may have renewed it.
        refresh(source, wall: wall)
        share(source, wall: wall)
    }

    /// Adopts a new provider token if there is one.
    private func refresh(_ source: ProviderTokenSource, wall: Int64) {
        // Before Redis' first answer there are no jobs, so the token can wait.
        let isAwaited = !queues.contains(where: \.knowsTime) || sharing.isAwaited(now: lane.now)
        if isAwaited, source.isDue(now: wall) { return }
        do {
            let current = try source.token(now: wall)
            guard current != providerToken else { return }
            providerToken = current
            transport.setProviderToken(current.jwt)
        } catch {
            logSigningFailure(error)
        }
    }

    private func share(_ source: ProviderTokenSource, wall: Int64) {
        // Sending waits for the fleet's token only for a limited time, which must not begin before Redis can be asked.
        guard queues.contains(where: \.knowsTime) || fleet.store.isReady,
            sharing.shouldAsk(age: providerTokenAge(now: wall), isReady: fleet.store.isReady, now: lane.now)
        else { return }
        let candidate: ProviderToken
        do {
            // A young token of this lane is offered unchanged, because APNs refuses tokens that change too often.
            candidate =
                try source.isDue(now: wall) || sharing.refusedAt > 0 ? source.sign(now: wall) : source.token(now: wall)
        } catch {
            sharing.recordFailure(now: lane.now)
            return logSigningFailure(error)
        }
        let offer = SharedProviderTokens.Offer(
            keyID: source.keyID, teamID: source.teamID, issuedAt: candidate.issuedAt, token: candidate.jwt,
            refusedAt: sharing.refusedAt)
        fleet.store.providerTokens.share(offer) { [self] result in
            // The key may have been replaced in the meantime.
            guard self.source === source else { return }
            adopt(result, candidate, source)
            keep()
            lane.schedulePump()
        }
    }

    private func adopt(
        _ result: Result<SharedProviderTokens.Answer, QueueFailure>, _ candidate: ProviderToken,
        _ source: ProviderTokenSource
    ) {
        fleet.refusals.record(.providerTokens, result)
        switch result {
        case .success(.taken):
            _ = source.adopt(candidate, now: lane.wallClock())
            sharing.recordAgreement()
            lane.logger.debug(
                "signed a provider token for all workers",
                metadata: logMetadata.merging(["event": "provider_token_signed"]) { $1 })
        case .success(.other(let bytes)):
            do throws(ProviderToken.Untrusted) {
                let token = try source.read(jwt: bytes.readableBytesView)
                _ = source.adopt(token, now: lane.wallClock())
                sharing.recordAgreement()
            } catch {
                sharing.recordFailure(now: lane.now)
                lane.logThrottled(
                    .error, "provider_token_untrusted",
                    """
                    the fleet's provider token in Redis is unusable: \(error); this worker signs its own. Do all \
                    workers have the same key under the same key ID?
                    """, kind: "foreign token \(source.keyID)", metadata: logMetadata)
            }
        case .success(.clocksDiffer(let seconds)):
            sharing.recordFailure(now: lane.now)
            lane.logThrottled(
                .error, "clocks_differ",
                """
                this machine's clock is \(abs(seconds)) s \(seconds > 0 ? "ahead of" : "behind") the Redis server's: \
                its provider tokens are not shared, and APNs may refuse them. Correct the clock
                """, kind: "clock", metadata: logMetadata)
        case .failure: sharing.recordFailure(now: lane.now)
        }
    }

    private func logSigningFailure(_ error: any Error) {
        lane.logThrottled(
            .error, "signing_failed", "signing a provider token failed: \(error)", kind: "sign \(app)",
            metadata: logMetadata)
    }

    /// Renews the provider token, because APNs reported one as expired. Nothing is sent until there is another token.
    /// - Parameter issuedAt: the time of the refused token's signature, in seconds since 1970.
    /// - Returns: true if the request should be sent again with another token.
    func renew(issuedAt: Int64) -> Bool {
        guard let source, source.refused(issuedAt: issuedAt, now: lane.wallClock()) else { return false }
        if providerTokenIssuedAt == issuedAt {
            sharing.recordRefusal(issuedAt: issuedAt)
            providerToken = nil
        }
        keep()
        return true
    }

    // MARK: Keys

    /// True if a refused request could be sent again with another key.
    /// - Parameter key: the key of the request.
    func hasKey(otherThan key: UInt8) -> Bool {
        // The request may have been sent before the key was changed.
        sources.count > 1 && (Int(key) != keyIndex || nextKey != nil)
    }

    /// The next key that APNs has not refused.
    private var nextKey: Int? { sources.indices.first { $0 != keyIndex && !refusedKeys.contains($0) } }

    /// Switches to the next signing key, unless the lane has switched since the request, or APNs has refused all other keys.
    /// - Parameter key: the key of the refused request.
    func changeKey(from key: UInt8, _ reason: Reason) {
        guard Int(key) == keyIndex, let before = source?.keyID, let next = nextKey else { return }
        refusedKeys.insert(keyIndex)
        use(key: next, sharing: TokenSharing(jitter: sharing.jitter))
        lane.logOngoing(
            .warning, "key_refused",
            "APNs refuses the key \(before): \(reason.explanation); using the next, \(source?.keyID ?? "")",
            of: "key \(before) of \(app)", metadata: logMetadata)
        // APNs accepts the tokens of only one key per connection.
        transport.retireConnections(reason: "another key")
        keep()
    }

    private func use(key index: Int, sharing new: TokenSharing) {
        (keyIndex, providerToken, sharing) = (index, nil, new)
    }
}
