import Logging
import TLS

/// Reports changes of a certificate's files, and the approaching end of its validity.
package struct CertificateWatch: Sendable {
    /// The interval between looks at files of credentials.
    package static let interval = Duration.seconds(5)
    /// The interval between reports of a problem with a credential, in seconds.
    static let reportInterval: Int64 = 86_400

    private let context: Renewable<TLSContext>
    private let purpose: String
    private let logger: Logger
    private var reportedAt = Int64.min

    /// - Parameter purpose: the use of the certificate, for log lines.
    package init(_ context: Renewable<TLSContext>, purpose: String, logger: Logger) {
        self.context = context
        self.purpose = purpose
        self.logger = logger
    }

    /// Checks once if the files have changed.
    /// - Parameter now: seconds since 1970.
    package mutating func look(now: Int64) {
        switch context.takeChange() {
        case nil: break
        case .renewed:
            reportedAt = .min
            logger.notice(
                "using the changed certificates for \(purpose), for new connections",
                metadata: ["event": "certificates_replaced"])
        case .unusable(let error):
            logger.error(
                "the changed certificates for \(purpose) are unusable; keeping the previous ones: \(error)",
                metadata: ["event": "certificates_unusable"])
        }
        guard reportedAt == .min || now - reportedAt >= Self.reportInterval else { return }
        reportedAt = now
        guard let identity = context.current.identity, let source = context.sources.first else { return }
        let name = identity.commonName.map { " (\(printable($0)))" } ?? ""
        for problem in identity.validity.problems(now: now, advice: "replace \(source), which is read again") {
            logger.log(
                level: problem.isError ? .error : .warning,
                "the certificate\(name) for \(purpose) \(problem.predicate)",
                metadata: ["event": "certificate_problem"])
        }
    }
}
