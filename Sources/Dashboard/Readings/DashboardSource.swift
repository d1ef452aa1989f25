import HTTPPort
import HTTPTypes
import NIOCore
import Operations
import PushJob
import PushQueue
import TLS
import WebPages

/// The address, the users and the limits of a dashboard.
package struct DashboardConfiguration: Sendable {
    package var host = "127.0.0.1"
    /// 0 for a free port.
    package var port = 8080
    /// The path under which a proxy serves the dashboard, such as `/push`; empty for none.
    package var base = ""
    /// Without users: the host names that requests can use besides `localhost` and IP addresses.
    package var hostNames: [String] = []
    /// The users; `nil` to admit everyone who can reach the port.
    package var users: UserFile?
    /// The proxies whose information about their clients is trusted.
    package var proxies: TrustedProxies
    /// The header that ``proxies`` use to name the user; `nil` if they do not.
    private(set) var userHeader: HTTPField.Name?
    /// True to admit users as viewers if ``proxies`` name them and ``users`` does not.
    package var admitsUnlisted = false
    package var isReadOnly = false
    /// True to show tokens and payloads to viewers.
    package var viewersSeeContent = false
    package var tls: Renewable<TLSContext>?
    /// The address of the inbox of the simulated APNs that the workers send to; nil if they send to the real APNs.
    package var inbox: String?

    package init(proxies: TrustedProxies) { self.proxies = proxies }

    /// Lets ``proxies`` name users in a header.
    /// - Returns: false if the text is not a name of a header.
    package mutating func nameUsers(in header: String) -> Bool {
        userHeader = HTTPField.Name(header)
        return userHeader != nil
    }
}

/// The connections and functions that the dashboard's pages and actions use.
package struct DashboardSource: Sendable {
    package struct Check: Sendable {
        package var verdicts: [JobRow.Verdict]
        /// The notification for the first device; `nil` if the job cannot be sent.
        package var preview: PushPreview?

        package init(_ verdicts: [JobRow.Verdict], _ preview: PushPreview?) {
            (self.verdicts, self.preview) = (verdicts, preview)
        }

        /// The first finding that would make the job a dead letter.
        var failure: JobRow.Verdict? { verdicts.first { $0.level == "failure" } }
    }

    package struct EnqueuedJob: Sendable {
        /// The bytes to push.
        package var body: ByteBuffer
        /// The job's own ID, or its new ID; `nil` for a job in a worker's wrapper without an ID.
        package var id: String?
        package var app: String?
        package var hints: [JobHint]

        package init(body: ByteBuffer, id: String?, app: String?, hints: [JobHint]) {
            (self.body, self.id, self.app, self.hints) = (body, id, app, hints)
        }
    }

    /// A likely mistake in a job.
    package struct JobHint: Sendable {
        /// The rule and the part of the job that breaks it. It is the same for all jobs with the same mistake.
        package var kind: String
        package var rule: String
        package var message: String

        package init(kind: String, rule: String, message: String) {
            (self.kind, self.rule, self.message) = (kind, rule, message)
        }
    }

    /// The checks of a request's jobs, and the values of members that a job lacks.
    package struct JobTerms: Sendable {
        /// The names of the workers' apps; `nil` if unknown.
        package var apps: Set<String>?
        /// True to refuse jobs with likely mistakes.
        package var isStrict = false
        package var id: String?
        /// `unique_for`, in seconds.
        package var uniqueFor: Int?
        package var app: String?
    }

    /// Settings of an app, without secrets.
    package struct AppSettings: Sendable {
        package var topics: [String]
        /// The kind of credential, with its key ID and team; `nil` if none is set.
        package var credential: String?
        /// The maximum notifications per second of all workers; `nil` for no maximum.
        package var maximumPerSecond: Int?

        package init(topics: [String], credential: String?, maximumPerSecond: Int?) {
            (self.topics, self.credential, self.maximumPerSecond) = (topics, credential, maximumPerSecond)
        }
    }

    /// The queues, workers and apps, through clients that stay connected.
    package var fleet: Fleet
    package var invalidTokens: InvalidTokenClient
    /// Apps to show even if no worker has reported them.
    package var appNames: [String] = []
    /// The settings of the apps in the dashboard's own configuration, by name.
    package var appSettings: [String: AppSettings] = [:]
    /// The name of the worker whose process serves the dashboard; `nil` if the process is not a worker.
    package var worker: String?
    /// Checks a job of a queue, as `check --job` does, with the apps of its workers. The apps are `nil` if they are unknown.
    package var check: @Sendable (_ job: ByteBuffer, QueueSource, _ apps: [WorkerReport.App]?) -> Check
    /// Checks and completes a producer's job, as `enqueue` does. Throws the reason if the job must not be enqueued.
    package var prepare: @Sendable (_ job: ByteBuffer, QueueSource, JobTerms) throws -> EnqueuedJob
    /// Returns the rule behind a reason, in Apple's words for reasons of APNs; `nil` if it is unknown.
    package var explain: @Sendable (_ reason: String) -> String?
    /// The reasons that workers know.
    package var reasons: Set<String> = []
    /// Returns the environment of an endpoint, such as `sandbox` for the sandbox's host name. Other text is returned unchanged.
    package var environment: @Sendable (String) -> String
    /// Returns a device token in hex; `nil` if the text is not a token.
    package var token: @Sendable (String) -> String?
    package var version: String

    package init(
        fleet: Fleet, invalidTokens: InvalidTokenClient, version: String,
        check: @escaping @Sendable (_ job: ByteBuffer, QueueSource, _ apps: [WorkerReport.App]?) -> Check,
        prepare: @escaping @Sendable (_ job: ByteBuffer, QueueSource, JobTerms) throws -> EnqueuedJob,
        explain: @escaping @Sendable (_ reason: String) -> String?,
        environment: @escaping @Sendable (String) -> String, token: @escaping @Sendable (String) -> String?
    ) {
        (self.prepare, self.token) = (prepare, token)
        (self.fleet, self.invalidTokens, self.version) = (fleet, invalidTokens, version)
        (self.check, self.explain, self.environment) = (check, explain, environment)
    }
}
