import APNS
import Logging
import NIOCore
import PushQueue
import TLS

/// Provider tokens that the whole fleet shares, keys that take each other's place, and credentials that change.
extension Lane {
    // MARK: Provider tokens

    /// Keeps the provider token of an app fit to be sent: asks the fleet for it in time, and signs one where the fleet has
    /// none to give.
    func keepProviderToken(of app: AppLane) {
        let (now, wall) = (eventLoop.now, wallClock())
        shareProviderToken(of: app, now: now, wall: wall)
        do {
            try app.refreshProviderToken(now: wall, isAwaited: app.sharing.isAwaited(now: now))
        } catch {
            incident(
                "signing a provider token failed: \(error)", key: "sign \(app.configuration.name)",
                metadata: app.logMetadata)
        }
    }

    private func shareProviderToken(of app: AppLane, now: NIODeadline, wall: Int64) {
        guard let source = app.tokenSource, let sharedTokens else { return }
        let isToBeAsked = app.sharing.shouldAsk(
            age: app.providerTokenAge(now: wall),
            isReady: sharedTokens.isReady, now: now)
        guard isToBeAsked else { return }
        let candidate: ProviderToken
        do {
            candidate = try source.sign(now: wall)
        } catch {
            app.sharing.failed(now: now)
            incident(
                "signing a provider token failed: \(error)", key: "sign \(app.configuration.name)",
                metadata: app.logMetadata)
            return
        }
        let offer = SharedProviderTokens.Offer(
            keyID: source.keyID, teamID: source.teamID, issuedAt: candidate.issuedAt, token: candidate.jwt,
            refusedAt: app.sharing.refusedAt)
        sharedTokens.share(offer) { [self] result in
            // The key may have been replaced meanwhile.
            guard app.tokenSource === source else { return }
            take(result, candidate, source, app)
            keepProviderToken(of: app)
            schedulePump()
        }
    }

    private func take(
        _ result: Result<SharedProviderTokens.Answer, QueueConnection.Failure>, _ candidate: ProviderToken,
        _ source: ProviderTokenSource, _ app: AppLane
    ) {
        let now = eventLoop.now
        switch result {
        case .success(.taken):
            _ = source.adopt(candidate, now: wallClock())
            app.sharing.agreed()
            logger.debug("signed a provider token for all workers", metadata: app.logMetadata)
        case .success(.other(let bytes)):
            do throws(ProviderToken.Untrusted) {
                let token = try source.read(jwt: bytes.readableBytesView)
                _ = source.adopt(token, now: wallClock())
                app.sharing.agreed()
            } catch {
                app.sharing.failed(now: now)
                incident(
                    """
                    the provider token that Redis has for all workers is of no use: \(error); this worker signs its own. \
                    Do all workers have the same key under the same key ID?
                    """,
                    key: "foreign token \(source.keyID)", metadata: app.logMetadata)
            }
        case .success(.clocksDiffer(let seconds)):
            app.sharing.failed(now: now)
            incident(
                """
                this machine's clock is \(abs(seconds)) s \(seconds > 0 ? "ahead of" : "behind") Redis': its provider \
                tokens are not shared, and APNs may refuse them. Set the clock
                """, key: "clock", metadata: app.logMetadata)
        case .failure(let failure):
            app.sharing.failed(now: now)
            tellOfFleetState(failure)
        }
    }

    /// APNs called the provider token of a request expired.
    /// - Returns: whether it is to be sent again, with another one.
    func renew(_ tag: Int, _ app: AppLane) -> Bool {
        guard !flights[tag].isRenewed else { return false }
        guard app.renew(issuedAt: flights[tag].providerTokenIssuedAt, now: wallClock()) else { return false }
        flights[tag].isRenewed = true
        keepProviderToken(of: app)
        return true
    }

    // MARK: Keys

    /// APNs refuses the key with which a request was signed. Is there another?
    /// - Returns: whether the request is to be sent again.
    func takesNextKey(_ tag: Int, _ app: AppLane, reason: String) -> Bool {
        guard Self.keyFaults.contains(reason), app.hasSeveralKeys else { return false }
        // An answer to what was sent before the key was changed.
        if Int(flights[tag].key) != app.keyIndex { return true }
        guard let before = app.tokenSource?.keyID, app.takeNextKey() else { return false }
        trouble(
            .warning,
            "APNs refuses the key \(before): \(reason); going on with the next, \(app.tokenSource?.keyID ?? "")",
            "key \(before) of \(app.configuration.name)", at: "\(index)", metadata: app.logMetadata)
        // APNs takes the tokens of one key on a connection.
        app.transport.retireConnections(reason: "another key")
        keepProviderToken(of: app)
        return true
    }

    /// Refusals that may be those of one key. `TopicDisallowed` and the like would be the same with another.
    private static let keyFaults: Set<String> = Set(
        [.invalidProviderToken, .forbidden, .unrelatedKeyIDInToken, .badEnvironmentKeyIDInToken].map(
            \APNSReason.rawValue))

    // MARK: Changes

    /// Takes another credential into use. Connections that work stay, but for those that carry the tokens of another key, or
    /// whose certificate APNs has refused. From anywhere.
    func replaceCredential(of app: String, with credential: AppConfiguration.Credential, _ tls: TLSContext) {
        eventLoop.execute { [self] in
            guard phase == .running, let app = self.app(named: app) else { return }
            replaceCredential(of: app, with: credential, tls)
        }
    }

    /// - Parameter reason: why the app was paused before its configuration changed.
    func replaceCredential(
        of app: AppLane, with credential: AppConfiguration.Credential, _ tls: TLSContext,
        pausedFor reason: String? = nil
    ) {
        app.transport.setTLS(tls)
        // Those with tokens of another key cannot go on; a certificate was shown when they were made, and still counts.
        if app.keyIDs != credential.tokenSources.map(\.keyID) || app.breaker.isOpen {
            app.transport.replaceConnections(reason: "another credential")
        }
        let reason = reason ?? app.breaker.reason
        app.replace(credential)
        keepProviderToken(of: app)
        // Whatever was wrong with the old one: the next request tells whether it is with this one.
        reopen(app, pausedFor: reason)
    }
}
