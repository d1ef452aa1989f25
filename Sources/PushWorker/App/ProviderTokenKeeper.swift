import APNS
import Logging
import NIOCore
import PushQueue

/// Keeps the provider token of one app on one lane: shares the fleet's token, renews it, and changes the signing key.
///
/// Belongs to the lane's event loop.
final class ProviderTokenKeeper {
    private unowned let app: AppSender
    private var lane: LaneContext { app.lane }
    private var fleet: Fleet { app.fleet }

    init(_ app: AppSender) { self.app = app }

    /// Keeps a valid provider token: asks the fleet for one in time, and signs one if the fleet has none.
    func keep() {
        let wall = lane.wallClock()
        // First, because all lanes of the process share the token, and another lane may have renewed it.
        refresh(wall: wall)
        share(wall: wall)
    }

    private func refresh(wall: Int64) {
        do {
            // Before Redis' first answer there are no jobs, so the token can wait.
            let isAwaited = !app.ledger.knowsTime || app.credential.sharing.isAwaited(now: lane.now)
            if let token = try app.credential.refresh(now: wall, isAwaited: isAwaited) {
                app.transport.setProviderToken(token)
            }
        } catch {
            logSigningFailure(error)
        }
    }

    private func share(wall: Int64) {
        // Sending waits for the fleet's token only for a limited time, which must not begin before Redis can be asked.
        guard let source = app.credential.source, app.ledger.knowsTime || fleet.store.isReady,
            app.credential.sharing.shouldAsk(
                age: app.credential.providerTokenAge(now: wall), isReady: fleet.store.isReady, now: lane.now)
        else { return }
        let candidate: ProviderToken
        do {
            // A young token of this lane is offered unchanged, because APNs refuses tokens that change too often.
            candidate =
                try source.isDue(now: wall) || app.credential.sharing.refusedAt > 0
                ? source.sign(now: wall) : source.token(now: wall)
        } catch {
            app.credential.sharing.recordFailure(now: lane.now)
            return logSigningFailure(error)
        }
        let offer = SharedProviderTokens.Offer(
            keyID: source.keyID, teamID: source.teamID, issuedAt: candidate.issuedAt, token: candidate.jwt,
            refusedAt: app.credential.sharing.refusedAt)
        fleet.store.providerTokens.share(offer) { [self] result in
            // The key may have been replaced in the meantime.
            guard app.credential.source === source else { return }
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
            app.credential.sharing.recordAgreement()
            lane.logger.debug(
                "signed a provider token for all workers",
                metadata: app.logMetadata.merging(["event": "provider_token_signed"]) { $1 })
        case .success(.other(let bytes)):
            do throws(ProviderToken.Untrusted) {
                let token = try source.read(jwt: bytes.readableBytesView)
                _ = source.adopt(token, now: lane.wallClock())
                app.credential.sharing.recordAgreement()
            } catch {
                app.credential.sharing.recordFailure(now: lane.now)
                lane.logThrottled(
                    .error, "provider_token_untrusted",
                    """
                    the fleet's provider token in Redis is unusable: \(error); this worker signs its own. Do all \
                    workers have the same key under the same key ID?
                    """, kind: "foreign token \(source.keyID)", metadata: app.logMetadata)
            }
        case .success(.clocksDiffer(let seconds)):
            app.credential.sharing.recordFailure(now: lane.now)
            lane.logThrottled(
                .error, "clocks_differ",
                """
                this machine's clock is \(abs(seconds)) s \(seconds > 0 ? "ahead of" : "behind") the Redis server's: \
                its provider tokens are not shared, and APNs may refuse them. Correct the clock
                """, kind: "clock", metadata: app.logMetadata)
        case .failure: app.credential.sharing.recordFailure(now: lane.now)
        }
    }

    private func logSigningFailure(_ error: any Error) {
        lane.logThrottled(
            .error, "signing_failed", "signing a provider token failed: \(error)", kind: "sign \(app.name)",
            metadata: app.logMetadata)
    }

    /// Renews the provider token after an answer that reported it as expired.
    /// - Returns: true if the request should be sent again with another token.
    func renew(_ flight: FlightID) -> Bool {
        guard app.credential.renew(issuedAt: app.inFlight[flight].providerTokenIssuedAt, now: lane.wallClock()) else {
            return false
        }
        keep()
        return true
    }

    // MARK: Keys

    /// Switches to the app's next signing key, unless that has happened since the request.
    /// - Parameter key: the key of the refused request.
    func changeKey(from key: UInt8, _ reason: Reason) {
        guard Int(key) == app.credential.keyIndex, let before = app.credential.source?.keyID,
            app.credential.useNextKey()
        else {
            return
        }
        lane.logOngoing(
            .warning, "key_refused",
            "APNs refuses the key \(before): \(reason.explanation); using the next, \(app.credential.source?.keyID ?? "")",
            of: "key \(before) of \(app.name)", metadata: app.logMetadata)
        // APNs accepts the tokens of only one key per connection.
        app.transport.retireConnections(reason: "another key")
        keep()
    }
}
