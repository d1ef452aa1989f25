/// The predicted fate of a job, without its explanation.
package struct JobForecast: Sendable {
    /// The number of notifications that would be sent.
    package var notifications = 0
    /// The reasons why the job, or a part of it, would not be sent unchanged.
    package var findings: [Finding] = []

    /// A reason why a job would not be sent, or would be sent in another way than its producer may expect.
    package struct Finding: Sendable, Equatable {
        package var effect: Effect
        /// The reason of a dead letter, such as `MalformedToken`, or the rule of a hint, such as `unknown_member`.
        package var reason: String
        /// One sentence without tokens and payloads.
        package var detail: String

        init(_ effect: Effect, _ reason: String, _ detail: String) {
            self.effect = effect
            self.reason = reason
            self.detail = detail
        }

        init(_ reason: Reason) { self.init(.notSent, reason.code.text, reason.detail ?? reason.code.text) }

        /// The text that identifies a kind of finding. The details of a kind differ only in positions and sizes.
        var kind: String { "\(effect.rawValue) \(reason) \(detail.filter { !$0.isNumber })" }
    }

    /// The effect of a finding, in the order of a report.
    package enum Effect: String, CaseIterable, Sendable, Encodable {
        /// The job, or a part of its tokens, would not be sent.
        case notSent = "not_sent"
        /// The job would be sent in another way than its producer may expect.
        case different = "sent_differently"
    }
}

/// The counts of the forecasts of many jobs.
package struct JobSurvey: Sendable {
    /// The maximum number of kinds of findings. Some details contain texts of producers, so there may be any number of kinds.
    static let maximumKinds = 200

    /// The jobs with findings of one kind.
    package struct Row: Sendable, Equatable, Encodable {
        package let effect: JobForecast.Effect
        /// The reason of a dead letter, or the rule of a hint.
        package let reason: String
        package fileprivate(set) var jobs: Int
        /// The place of the first such job, such as `line 3`.
        package let example: String
        /// The detail of the first such job.
        package let detail: String
    }

    /// The number of jobs that were read.
    package private(set) var jobs = 0
    /// The number of jobs that would be sent as they are.
    package private(set) var sent = 0
    /// The number of jobs that would be sent in another way than their producer may expect.
    package private(set) var different = 0
    /// The number of jobs that would not be sent, or not to all their tokens.
    package private(set) var notSent = 0
    /// The number of notifications that would be sent.
    package private(set) var notifications = 0
    /// The number of findings that were not counted, because there were too many kinds.
    package private(set) var otherFindings = 0
    private var kinds: [String: Row] = [:]

    package init() {}

    /// Adds a job.
    /// - Parameter place: the place of the job, for an example.
    package mutating func add(_ forecast: JobForecast, at place: @autoclosure () -> String) {
        jobs += 1
        notifications += forecast.notifications
        let effects = forecast.findings.map(\.effect)
        if effects.contains(.notSent) {
            notSent += 1
        } else if effects.contains(.different) {
            different += 1
        } else {
            sent += 1
        }
        var counted: Set<String> = []
        for finding in forecast.findings where counted.insert(finding.kind).inserted {
            if kinds[finding.kind] != nil {
                kinds[finding.kind]?.jobs += 1
            } else if kinds.count < Self.maximumKinds {
                kinds[finding.kind] = Row(
                    effect: finding.effect, reason: finding.reason, jobs: 1, example: place(), detail: finding.detail)
            } else {
                otherFindings += 1
            }
        }
    }

    /// The kinds of findings: by effect, the most frequent first.
    package var rows: [Row] {
        JobForecast.Effect.allCases.flatMap { effect in
            kinds.values.filter { $0.effect == effect }
                .sorted { ($1.jobs, $0.reason, $0.detail) < ($0.jobs, $1.reason, $1.detail) }
        }
    }
}
