import PushQueue

/// The state of an app in all lanes together.
package struct AppStatus: Encodable, Sendable {
    package enum State: String, Encodable, Sendable {
        case connected, idle, connecting, unconnected, unavailable, refused, blocked, paused, unknown

        /// The state of an app in some lanes, apart from an operator's pause: the worst one or, if they send, that of their
        /// connections.
        package init(of lanes: [WorkerReport.App]) {
            self =
                switch lanes.map(\.state).filter({ $0 != .paused }).max() {
                case .blocked: .blocked
                case .refused: .refused
                case .unavailable: .unavailable
                case .sending, .paused, nil:
                    if lanes.contains(where: { $0.usable > 0 }) {
                        .connected
                    } else if lanes.allSatisfy(\.isDormant) {
                        .idle
                    } else {
                        lanes.contains { $0.failure != nil } ? .unconnected : .connecting
                    }
                }
        }
    }

    package var name: String
    package var endpoints: [String] = []
    package var state = State.unknown
    package var paused: PauseStatus?
    /// Connections that accept requests, and connections that are being established, of all workers.
    package var connections = 0
    package var connecting = 0
    package var streams = 0
    package var streamLimit = 0
    /// Lanes that have the app.
    package var lanes = 0
    /// Lanes whose endpoint is unavailable, or that APNs refuses.
    package var lanesSlow = 0
    /// The fault of its certificate, if it is blocked.
    package var blocked: String?
    /// The reason why there is no connection.
    package var failure: String?
    /// The time at which the oldest provider token in use was signed.
    package var tokenIssuedAt: Int64?
    /// The time until which the certificate is valid, if the app has one.
    package var certificateExpiresAt: Int64?
    /// The error of its credential, or of a file that should replace it and can't.
    package var credentialProblem: String?

    /// Returns the apps that lanes report, sorted by their names.
    /// - Parameters:
    ///   - reports: the last report of each lane.
    ///   - names: the names of apps that are shown even without a report.
    ///   - pauses: the pauses in Redis, by app.
    package static func apps(
        _ reports: [WorkerReport], names: Set<String> = [], pauses: [String: PauseRecord]
    ) -> [AppStatus] {
        var apps: [String: AppStatus] = [:]
        for name in names { apps[name] = AppStatus(name: name) }
        for (name, pause) in pauses { apps[name, default: AppStatus(name: name)].paused = PauseStatus(pause) }
        var appsByName: [String: [WorkerReport.App]] = [:]
        for app in reports.flatMap(\.apps) { appsByName[app.name, default: []].append(app) }
        for (name, lanes) in appsByName {
            var app = apps[name] ?? AppStatus(name: name)
            app.endpoints = Set(lanes.map(\.endpoint)).sorted()
            app.connections = lanes.reduce(0) { $0 + $1.usable }
            app.connecting = lanes.reduce(0) { $0 + $1.connecting }
            app.streams = lanes.reduce(0) { $0 + $1.streams }
            app.streamLimit = lanes.reduce(0) { $0 + $1.streamLimit }
            app.lanes = lanes.count
            app.lanesSlow = lanes.count { [.unavailable, .refused].contains($0.state) }
            app.blocked = lanes.first { $0.state == .blocked }?.pause
            app.failure = lanes.compactMap(\.failure).first
            app.tokenIssuedAt = lanes.compactMap(\.tokenIssuedAt).min()
            app.certificateExpiresAt = lanes.compactMap(\.certificateExpiresAt).min()
            app.credentialProblem = lanes.compactMap(\.credentialProblem).first
            app.state = State(of: lanes)
            apps[name] = app
        }
        return apps.values.map { app in
            var app = app
            if app.paused != nil { app.state = .paused }
            return app
        }.sorted { $0.name < $1.name }
    }
}
