import HTTPPort
import NIOCore
import Operations
import PushJob
import PushQueue
import TLS
import WebPages

/// The address, the users and the limits of a dashboard.
package struct DashboardConfiguration: Sendable {
    package var host = "127.0.0.1"
    /// 0 for a free one.
    package var port = 8080
    /// The path under which a proxy serves the dashboard, such as `/push`; empty for none.
    package var base = ""
    /// Host names that requests can use besides `localhost` and IP addresses, without users.
    package var hostNames: [String] = []
    /// The users; `nil` to admit everyone who can reach the port.
    package var users: UserFile?
    /// The proxies that say who their clients are.
    package var proxies: TrustedProxies
    /// True to refuse all changes.
    package var isReadOnly = false
    /// True to show tokens and payloads to viewers.
    package var viewersSeeContent = false
    package var tls: Renewable<TLSContext>?

    package init(proxies: TrustedProxies) { self.proxies = proxies }
}

/// The data sources of the dashboard, and what its actions need.
package struct DashboardSource: Sendable {
    /// A finding about a job.
    package struct Verdict: Encodable, Sendable {
        /// `ok`, `warning` or `failure`.
        package let level, subject, sentence: String

        package init(level: String, subject: String, sentence: String) {
            (self.level, self.subject, self.sentence) = (level, subject, sentence)
        }
    }

    /// The result of checking a job.
    package struct Check: Sendable {
        package var verdicts: [Verdict]
        /// The notification for the first device; `nil` if the job cannot be sent.
        package var preview: PushPreview?

        package init(_ verdicts: [Verdict], _ preview: PushPreview?) {
            (self.verdicts, self.preview) = (verdicts, preview)
        }

        /// The first finding that would make the job a dead letter.
        var failure: Verdict? { verdicts.first { $0.level == "failure" } }
    }

    /// The queues, workers and apps, through clients that stay connected.
    package var fleet: Fleet
    package var invalidTokens: InvalidTokenClient
    /// Apps to show even if no worker has reported them.
    package var appNames: [String] = []
    /// Checks a job of a queue, as `check --job` does.
    package var check: @Sendable (_ job: ByteBuffer, QueueSource) async -> Check
    /// Returns the rule behind a reason, in Apple's words for reasons of APNs; `nil` if it is unknown.
    package var explain: @Sendable (_ reason: String) -> String?
    /// Returns the name of an environment under which invalid tokens are stored: `sandbox` for its host name.
    package var environment: @Sendable (String) -> String
    /// Returns a device token in hex; `nil` for a text that is none.
    package var token: @Sendable (String) -> String?
    package var version: String

    package init(
        fleet: Fleet, invalidTokens: InvalidTokenClient, version: String,
        check: @escaping @Sendable (_ job: ByteBuffer, QueueSource) async -> Check,
        explain: @escaping @Sendable (_ reason: String) -> String?,
        environment: @escaping @Sendable (String) -> String, token: @escaping @Sendable (String) -> String?
    ) {
        self.token = token
        (self.fleet, self.invalidTokens, self.version) = (fleet, invalidTokens, version)
        (self.check, self.explain, self.environment) = (check, explain, environment)
    }
}
