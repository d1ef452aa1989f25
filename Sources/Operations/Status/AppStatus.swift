import PushQueue

/// The state of an app in all lanes together.
package struct AppStatus: Sendable {
    package enum State: String, CaseIterable, Sendable {
        case connected, idle, connecting, unconnected, unavailable, refused, blocked, paused, unknown

        /// The worst state of an app in some lanes, regardless of an operator's pause. If the lanes send, it is the state of their
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
    package var paused: PauseRecord?
    package var connections = 0, connecting = 0, streams = 0, streamLimit = 0, lanes = 0, lanesSlow = 0
    package var blocked, failure, credentialProblem: String?
    package var tokenIssuedAt, certificateExpiresAt: Int64?

    /// The reason of its state, in a few words.
    package var reason: String? {
        switch state {
        case .paused: paused?.reason
        case .unavailable, .refused: "\(lanesSlow) of \(Words.count(lanes, "lane"))"
        case .blocked: blocked
        case .unconnected: failure
        case .connecting, .connected, .idle, .unknown: nil
        }
    }

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
        for (name, pause) in pauses { apps[name, default: AppStatus(name: name)].paused = pause }
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

extension AppStatus: Shown {
    package static let columns = Columns<Self>(
        "App", "An app, in all lanes together.",
        [
            .init("name", "Name.", as: .app, title: "App", in: .list, \.name),
            .init("state", "State:", as: .choice(State.self), in: .list, \.state.rawValue),
            .text("Reason", in: .wide, \.reason),
            .init("paused", "Pause by an operator.", \.paused),
            .init("connections", "Connections that accept requests.", as: .count, in: .list, \.connections),
            .init("connecting", "Connections that are being established.", as: .count, \.connecting),
            .init("streams", "Requests in flight.", as: .count, title: "In flight", in: .list, \.streams),
            .init("stream_limit", "Requests that could be in flight at once.", as: .count, \.streamLimit),
            .init("lanes", "Lanes that have the app.", as: .count, \.lanes),
            .init("lanes_slow", "Lanes whose endpoint is unavailable, or that APNs refuses.", as: .count, \.lanesSlow),
            .init("blocked", "Fault of the certificate in the state `blocked`.", \.blocked),
            .init("failure", "Reason why there is no connection.", \.failure),
            .init("token_issued_at", "Time of the oldest provider token's signature.", as: .time, \.tokenIssuedAt),
            .init(
                "certificate_expires_at", "End of the certificate's validity.", as: .time, title: "Credential",
                in: .widest,
                \.certificateExpiresAt),
            .init(
                "endpoints", "APNs servers of the app.", as: .key, title: "Environment", in: .widest, \.endpoints),
            .init("credential_problem", "Error of the credential, or of the file to replace it.", \.credentialProblem),
        ])
}
