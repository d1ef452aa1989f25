import PushQueue

/// A scope that lanes have slowed down, or suspect: their equal records as one.
package struct ScopeStatus: Encodable, Sendable, Equatable {
    package var scope: ScopeRecord.Scope
    /// The job's ID, the campaign, the topic with its push type, the app, the key ID or certificate, or the address.
    package var name: String
    /// ``ScopeRecord/State/slow`` if a lane has slowed it down.
    package var state: ScopeRecord.State
    /// The apps whose answers these are, sorted.
    package var apps: [String]
    /// The code of the last failure, its explanation and its HTTP status.
    package var reason: String
    package var detail: String?
    package var status: Int?
    /// The number of failures since ``since``, the time of the first, in milliseconds since 1970.
    package var failures: Int
    /// The number of notifications that failed or were accepted since then; 0 if it is unknown.
    package var notifications: Int
    package var since: Int64
    /// The IDs of some jobs that failed.
    package var jobs: [String]
    /// The number of notifications of the same apps that APNs accepted since then outside of the scope.
    package var othersDelivered: Int
    /// The lanes that report it, and the lanes that have one of its apps.
    package var lanes: Int
    package var lanesTotal: Int
    /// The workers that report it, and the addresses that they reached, sorted.
    package var workers: [String]
    package var endpoints: [String]

    /// Returns the scopes that lanes report: equal ones of several lanes are one, with the sum of their numbers.
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

// The words of its problem.
extension ScopeStatus {
    /// Reasons that say what is wrong with device tokens.
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
        guard failures > 0 else { return "requests wait for long, and nothing is answered" }
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

    /// The workers, if others do not have the problem. A job or a campaign may be on one lane only.
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
