import PushQueue

/// A slow or suspected scope. Equal records of several lanes are joined.
package struct ScopeStatus: Sendable, Equatable {
    package var scope: ScopeRecord.Scope
    package var name: String
    package var state: ScopeRecord.State
    package var apps: [String]
    package var reason: String
    package var detail: String?
    package var status: Int?
    package var failures, notifications: Int
    package var since: Int64
    package var jobs: [String]
    package var othersDelivered, lanes, lanesTotal: Int
    package var workers, endpoints: [String]

    /// Returns the scopes that lanes report. Equal scopes of several lanes become one, with the sum of their numbers.
    /// - Parameter reports: the last report of each lane.
    package static func scopes(_ reports: [WorkerReport]) -> [ScopeStatus] {
        struct Identity: Hashable {
            var scope: ScopeRecord.Scope
            var name, reason: String
        }
        var found: [Identity: [(report: WorkerReport, record: ScopeRecord)]] = [:]
        for report in reports {
            for record in report.scopes {
                let identity = Identity(scope: record.scope, name: record.name, reason: record.reason)
                found[identity, default: []].append((report, record))
            }
        }
        return found.map { identity, all in
            let records = all.map(\.record)
            let apps = Set(records.compactMap(\.app))
            let last = records.max { $0.failures < $1.failures }
            let endpoints = all.flatMap { report, record in
                report.apps.filter { record.app == nil || record.app == $0.name }.map(\.endpoint)
            }
            return ScopeStatus(
                scope: identity.scope, name: identity.name,
                state: records.contains { $0.state == .slow } ? .slow : .suspected, apps: apps.sorted(),
                reason: identity.reason, detail: last?.detail, status: last?.status,
                failures: records.reduce(0) { $0 + $1.failures },
                notifications: records.allSatisfy { $0.notifications > 0 }
                    ? records.reduce(0) { $0 + $1.notifications } : 0,
                since: records.map(\.since).min() ?? 0,
                jobs: Array(Set(records.flatMap(\.jobs)).sorted().prefix(ScopeRecord.maximumJobs)),
                othersDelivered: records.reduce(0) { $0 + $1.othersDelivered }, lanes: all.count,
                lanesTotal: reports.count { report in
                    apps.isEmpty || report.apps.contains { apps.contains($0.name) }
                },
                workers: Set(all.map(\.report.process)).sorted(),
                endpoints: identity.scope == .endpoint ? [identity.name] : Set(endpoints).sorted())
        }.sorted { ($1.failures, $0.scope.rawValue, $0.name) < ($0.failures, $1.scope.rawValue, $1.name) }
    }
}

extension ScopeStatus: Shown {
    package static let columns = Columns<Self>(
        "Scope", "A slow or suspected scope.",
        [
            .init("scope", "Kind:", as: .choice(ScopeRecord.Scope.self), \.scope.rawValue),
            .init("name", "Job's ID, campaign, topic and push type, app, key or certificate, or address.", \.name),
            .init(
                "state", "`suspected` before the scope is slow:", as: .choice(ScopeRecord.State.self), \.state.rawValue),
            .init("apps", "Apps that got the answers.", \.apps),
            .init("reason", "Code of the last failure.", \.reason),
            .init("detail", "Explanation of the last failure.", \.detail),
            .init("status", "HTTP status of the last failure.", \.status),
            .init("failures", "Number of failures since the first one.", as: .count, \.failures),
            .init("notifications", "Answers since the first failure; 0 if unknown.", as: .count, \.notifications),
            .init("since", "Time of the first failure.", as: .time, \.since),
            .init("jobs", "IDs of some jobs that failed.", \.jobs),
            .init(
                "others_delivered", "Other deliveries of the apps since `since`.", as: .count, \.othersDelivered),
            .init("lanes", "Lanes that report the scope.", as: .count, \.lanes),
            .init("lanes_total", "Lanes that have one of the apps.", as: .count, \.lanesTotal),
            .init("workers", "Workers that report the scope.", \.workers),
            .init("endpoints", "Addresses that the lanes reached.", \.endpoints),
        ])
}

// The words of a scope's problem.
extension ScopeStatus {
    /// The faults of device tokens, by reason.
    private static let ofTokens = [
        "BadDeviceToken": "of another environment", "InvalidToken": "of another environment",
        "DeviceTokenNotForTopic": "of another topic",
    ]

    var object: Problem.Object {
        switch scope {
        case .job: .job(name)
        case .campaign: .campaign(name)
        case .topic: .topic(name, app: apps.first)
        case .app: .app(name)
        case .credential: .credential(name, app: apps.first)
        case .endpoint: .endpoint(name, app: apps.first)
        }
    }

    /// The problem, such as `campaign spring: 500 of 500 tokens are of another environment (BadDeviceToken); 1,240 others of the app
    /// were delivered in that time`.
    var message: String {
        "\(scope.rawValue) \(name): \(failure)\(others)\(place)"
    }

    private var failure: String {
        // Requests that wait have not failed yet.
        guard failures > 0 else { return "requests have waited long, and none was answered" }
        let areOne = failures == 1
        let count = notifications >= failures ? "\(Words.number(failures)) of " : ""
        let all = max(failures, notifications)
        if let ofTokens = Self.ofTokens[reason] {
            return
                "\(count)\(Words.count(count.isEmpty ? failures : all, "token")) \(areOne ? "is" : "are") \(ofTokens) (\(reason))"
        }
        // A job has one notification for each device.
        let things =
            count
            + Words.count(
                count.isEmpty ? failures : all, jobs.count == failures && scope != .job ? "job" : "notification")
        let examples =
            scope == .job || jobs.isEmpty
            ? "" : " (\(jobs.joined(separator: ", "))\(failures > jobs.count ? ", …" : ""))"
        let explained = detail.map { ": \($0)" } ?? ""
        guard let status else { return "\(things) got no answer\(examples): \(reason)\(explained)" }
        return reason.isEmpty || reason == "\(status)"
            ? "\(things) \(areOne ? "is" : "are") answered \(status) without a reason\(examples)\(explained)"
            : "\(things) \(areOne ? "is" : "are") answered \(status) \(reason)\(examples)\(explained)"
    }

    private var others: String {
        guard othersDelivered > 0 else { return "" }
        let whose =
            switch scope {
            case .job, .campaign, .topic: " of the app"
            case .app, .credential, .endpoint: ""
            }
        return
            "; \(Words.number(othersDelivered)) \(othersDelivered == 1 ? "other\(whose) was" : "others\(whose) were") "
            + "delivered in that time"
    }

    /// The workers that have the problem, if other workers do not. Empty for a job, campaign or topic, which may be on one lane only.
    private var place: String {
        switch scope {
        case .job, .campaign, .topic: return ""
        case .app, .credential, .endpoint:
            guard lanes < lanesTotal else { return "" }
            let address = scope == .endpoint || endpoints.isEmpty ? "" : ", at \(endpoints.joined(separator: ", "))"
            return "; only on \(lanes) of \(lanesTotal) lanes (\(workers.joined(separator: ", "))\(address))"
        }
    }

    var remedies: [Remedy] {
        let jobs: [Remedy] = jobs.isEmpty ? [] : [.showJobs(self.jobs)]
        let probe = apps.map { Remedy.resumeApp($0) }
        return switch scope {
        case .job: [.showJobs([name])]
        case .campaign: [.cancelCampaign(name)]
        case .topic: jobs
        case .app: (state == .slow ? [.check] : jobs) + [.resumeApp(name)]
        case .credential, .endpoint: state == .slow ? [.check] + probe : jobs
        }
    }
}
