import PrintableText

public struct CertificateValidity: Sendable {
    /// A reason to renew or replace the certificate.
    public struct Problem: Sendable, Equatable {
        /// True if the certificate is not valid now.
        public let isError: Bool
        /// The end of a sentence that begins with the certificate, without a final period.
        public let predicate: String
    }

    /// A certificate gets a warning from this number of days before its end on.
    public static let warningDays: Int64 = 30

    private let notBefore: Int64?
    private let notAfter: Int64?

    /// - Parameters: seconds since 1970; `nil` if unknown.
    public init(notBefore: Int64?, notAfter: Int64?) {
        self.notBefore = notBefore
        self.notAfter = notAfter
    }

    /// - Parameters:
    ///   - now: seconds since 1970.
    ///   - advice: the advice to add if the certificate has expired or will expire soon.
    public func problems(now: Int64, advice: String) -> [Problem] {
        var problems: [Problem] = []
        if let notBefore, now < notBefore {
            problems.append(
                Problem(
                    isError: true,
                    predicate: "is not valid before \(utcTime(notBefore)); correct this machine's clock, or use "
                        + "another certificate until then"))
        }
        if let notAfter {
            let left = notAfter - now
            if left < 0 {
                problems.append(Problem(isError: true, predicate: "expired on \(utcTime(notAfter)); \(advice)"))
            } else if left <= Self.warningDays * 86_400 {
                let days = left / 86_400
                let time = days == 0 ? "less than a day" : days == 1 ? "1 day" : "\(days) days"
                problems.append(
                    Problem(isError: false, predicate: "expires in \(time), on \(utcTime(notAfter)); \(advice)"))
            }
        }
        return problems
    }
}
