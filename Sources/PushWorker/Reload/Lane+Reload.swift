import APNS
import Logging
import NIOCore
import TLS

/// Another configuration while the lane works.
extension Lane {
    /// What an app needs on a lane, made where making it may fail.
    struct PreparedApp: Sendable {
        let configuration: AppConfiguration
        let transport: TransportConfiguration
        let tls: TLSContext

        init(_ app: AppConfiguration) throws {
            configuration = app
            transport = try app.transportConfiguration()
            tls = try app.tlsContext(for: app.credential)
        }
    }

    /// The app of a name that jobs go through now.
    func app(named name: String) -> AppLane? { apps.first { $0.configuration.name == name && !$0.isLeaving } }

    /// Goes by another configuration from now on. What has been accepted goes on: by the old connections where it has been
    /// submitted, else by the new ones. From anywhere.
    /// - Parameters:
    ///   - configuration: one that differs in what can be taken up only.
    ///   - prepared: what its apps need.
    func reload(_ configuration: WorkerConfiguration, _ prepared: [PreparedApp]) -> EventLoopFuture<Void> {
        eventLoop.submit { [self] in
            guard phase == .running else { return }
            self.configuration = configuration
            appPauses?.durations = configuration.appPause
            for app in prepared {
                if let known = self.app(named: app.configuration.name) {
                    change(known, app)
                } else {
                    add(app)
                }
            }
            let names = Set(prepared.map(\.configuration.name))
            for app in apps where !names.contains(app.configuration.name) { app.isLeaving = true }
            router.replace(apps.map(\.configuration)) { apps[$0].isLeaving }
            for app in apps where !app.isLeaving { app.transport.check(now: eventLoop.now) }
            schedulePump()
        }
    }

    private func transport(of prepared: PreparedApp) -> any Transport {
        prepared.transport.make(on: eventLoop, logger: logger(of: prepared.configuration))
    }

    private func add(_ prepared: PreparedApp) {
        let app = AppLane(prepared.configuration, transport: transport(of: prepared))
        app.transport.delegate = self
        apps.append(app)
        keepProviderToken(of: app)
    }

    private func change(_ app: AppLane, _ prepared: PreparedApp) {
        let difference = AppDifference(from: app.configuration, to: prepared.configuration)
        guard difference.isChanged else { return }
        let reason = app.breaker.reason
        app.take(prepared.configuration)
        if difference.changesTransport {
            leave(app.use(transport(of: prepared)))
        }
        if difference.changesCredential {
            replaceCredential(
                of: app, with: prepared.configuration.credential, prepared.tls, pausedFor: reason)
        } else {
            reopen(app, pausedFor: reason)
        }
    }

    /// An app that jobs no longer go through is done when it has nothing left.
    func leaveIfDone(_ app: AppLane) {
        guard app.waiting == 0, app.resends.isEmpty, app.transport.statistics.streamsInUse == 0 else { return }
        // Closing it once more does nothing.
        _ = app.transport.close()
    }

    private func leave(_ transport: any Transport) {
        leavingTransports.append(transport)
        transport.flushConfirmations()
        transport.close().assumeIsolated().whenComplete { [self] _ in
            leavingTransports.removeAll { $0 === transport }
        }
    }
}
