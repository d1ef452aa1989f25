import APNS
import Logging
import NIOCore
import PushQueue
import TLS

/// The fleet's shared provider tokens, the change of signing keys, and the replacement of credentials.
extension AppSender {
    // MARK: Provider tokens

    /// Keeps a valid provider token: asks the fleet for one in time, and signs one if the fleet has none.
    func keepProviderToken() {
        let wall = lane.wallClock()
        shareProviderToken(wall: wall)
        do {
            // Without an answer from Redis there are no jobs to send either.
            let isAwaited = !ledger.knowsTime || credential.sharing.isAwaited(now: lane.now)
            if let token = try credential.refresh(now: wall, isAwaited: isAwaited) { transport.setProviderToken(token) }
        } catch {
            logSigningFailure(error)
        }
    }

    private func shareProviderToken(wall: Int64) {
        // The wait for the fleet's token begins once Redis can be asked or has answered.
        guard let source = credential.source, ledger.knowsTime || fleet.store.isReady,
            credential.sharing.shouldAsk(
                age: credential.providerTokenAge(now: wall), isReady: fleet.store.isReady, now: lane.now)
        else { return }
        let candidate: ProviderToken
        do {
            // A young token of its own is offered as it is: APNs refuses tokens that change too often.
            candidate =
                try source.isDue(now: wall) || credential.sharing.refusedAt > 0
                ? source.sign(now: wall) : source.token(now: wall)
        } catch {
            credential.sharing.failed(now: lane.now)
            return logSigningFailure(error)
        }
        let offer = SharedProviderTokens.Offer(
            keyID: source.keyID, teamID: source.teamID, issuedAt: candidate.issuedAt, token: candidate.jwt,
            refusedAt: credential.sharing.refusedAt)
        fleet.store.providerTokens.share(offer) { [self] result in
            // The key may have been replaced in the meantime.
            guard credential.source === source else { return }
            adopt(result, candidate, source)
            keepProviderToken()
            lane.schedulePump()
        }
    }

    private func adopt(
        _ result: Result<SharedProviderTokens.Answer, QueueConnection.Failure>, _ candidate: ProviderToken,
        _ source: ProviderTokenSource
    ) {
        fleet.refusals.note(.providerTokens, result)
        switch result {
        case .success(.taken):
            _ = source.adopt(candidate, now: lane.wallClock())
            credential.sharing.agreed()
            lane.logger.debug(
                "signed a provider token for all workers",
                metadata: logMetadata.merging(["event": "provider_token_signed"]) { $1 })
        case .success(.other(let bytes)):
            do throws(ProviderToken.Untrusted) {
                let token = try source.read(jwt: bytes.readableBytesView)
                _ = source.adopt(token, now: lane.wallClock())
                credential.sharing.agreed()
            } catch {
                credential.sharing.failed(now: lane.now)
                lane.logThrottled(
                    .error, "provider_token_untrusted",
                    """
                    the fleet's provider token in Redis is unusable: \(error); this worker signs its own. Do all \
                    workers have the same key under the same key ID?
                    """, kind: "foreign token \(source.keyID)", metadata: logMetadata)
            }
        case .success(.clocksDiffer(let seconds)):
            credential.sharing.failed(now: lane.now)
            lane.logThrottled(
                .error, "clocks_differ",
                """
                this machine's clock is \(abs(seconds)) s \(seconds > 0 ? "ahead of" : "behind") the Redis server's: \
                its provider tokens are not shared, and APNs may refuse them. Correct the clock
                """, kind: "clock", metadata: logMetadata)
        case .failure: credential.sharing.failed(now: lane.now)
        }
    }

    private func logSigningFailure(_ error: any Error) {
        lane.logThrottled(
            .error, "signing_failed", "signing a provider token failed: \(error)", kind: "sign \(name)",
            metadata: logMetadata)
    }

    /// Renews the provider token after an answer that reported it as expired.
    /// - Returns: true if the request should be sent again, with another token.
    func renewProviderToken(_ flight: FlightID) -> Bool {
        guard credential.renew(issuedAt: inFlight[flight].providerTokenIssuedAt, now: lane.wallClock()) else {
            return false
        }
        keepProviderToken()
        return true
    }

    // MARK: Keys

    /// Switches to the app's next signing key, unless that was done since a request.
    /// - Parameter key: the key of the refused request.
    func changeKey(from key: UInt8, _ reason: Reason) {
        guard Int(key) == credential.keyIndex, let before = credential.source?.keyID, credential.useNextKey() else {
            return
        }
        lane.logOngoing(
            .warning, "key_refused",
            "APNs refuses the key \(before): \(reason.explanation); using the next, \(credential.source?.keyID ?? "")",
            of: "key \(before) of \(name)", metadata: logMetadata)
        // APNs accepts the tokens of only one key per connection.
        transport.retireConnections(reason: "another key")
        keepProviderToken()
    }

    // MARK: Changes

    /// Switches to another credential. Working connections stay open, except those that carry tokens of another key or
    /// whose certificate APNs has refused.
    /// - Parameter reason: the reason for which the app was paused before its configuration changed.
    func replaceCredential(
        _ new: AppConfiguration.Credential, _ tls: TLSContext, pausedFor reason: Reason? = nil
    ) {
        transport.setTLS(tls)
        // Connections with tokens of another key must close. A certificate was presented at connection time and remains
        // valid.
        if credential.keyIDs != new.tokenSources.map(\.keyID) || gate.app.isOpen {
            transport.replaceConnections(reason: "another credential")
        }
        let reason = reason ?? gate.app.reason
        credential = AppCredential(new, jitter: lane.random(in: 0...300))
        app.use(new)
        evidence.recordOtherCredential()
        gate.app.block(configuration.wrongCertificate(new))
        if new.tokenSources.isEmpty { transport.setProviderToken(nil) }
        keepProviderToken()
        // The next request shows whether the new credential has the fault of the old one.
        reopen(pausedFor: reason)
    }
}
