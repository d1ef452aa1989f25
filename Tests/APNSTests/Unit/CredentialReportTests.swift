import Foundation
import TLS
import TestSupport
import Testing

@testable import APNS

@Suite("A credential's report")
struct CredentialReportTests {
    private let universal: APNSCertificate
    private let day: Int64 = 86_400

    init() throws { universal = try APNSCertificateTests.certificate(APNSCertificateTests.universal) }

    private func report(
        _ certificate: APNSCertificate, topic: String? = "com.example.app", environment: APNSEnvironment? = .production,
        now: Int64? = nil
    ) throws -> CredentialReport {
        CredentialReport(
            certificate: certificate, topic: topic, environment: environment,
            now: try now ?? #require(certificate.notBefore) + 1)
    }

    @Test("is empty for a good certificate, in any environment")
    func good() throws {
        for environment in [.production, .sandbox, nil] as [APNSEnvironment?] {
            for topic in ["com.example.app", "com.example.app.voip", nil] {
                let report = try report(universal, topic: topic, environment: environment)
                #expect(report.findings.isEmpty && report.isUsable)
                #expect(report.daysLeft == 364)
            }
        }
    }

    @Test("warns 30 days before the expiration, counts the days, and reports an error afterwards")
    func expiry() throws {
        let end = try #require(universal.notAfter)
        let expected: [(Int64, Int, CredentialReport.Severity?, String)] = [
            (end - 31 * day, 31, nil, ""), (end - 30 * day - 1, 30, nil, ""),
            (end - 30 * day, 30, .warning, "expires in 30 days, on 20"),
            (end - 2 * day, 2, .warning, "in 2 days"), (end - 2 * day + 1, 1, .warning, "in 1 day,"),
            (end - 1, 0, .warning, "in less than a day"), (end, 0, .warning, "in less than a day"),
            (end + 1, -1, .error, "expired on 20"), (end + day, -1, .error, "expired on 20"),
            (end + day + 1, -2, .error, "expired on 20"),
        ]
        for (now, days, severity, words) in expected {
            let report = try report(universal, now: now)
            #expect(report.daysLeft == days, "\(end - now)")
            #expect(report.findings.map(\.severity) == (severity.map { [$0] } ?? []), "\(end - now)")
            #expect(report.isUsable == (severity != .error))
            if let finding = report.findings.first {
                #expect(finding.sentence.contains(words), "\(finding.sentence)")
                #expect(finding.sentence.contains("Apple Push Services: com.example.app"))
            }
        }
    }

    @Test("reports a certificate that is not yet valid as an error until its first second")
    func notYetValid() throws {
        let start = try #require(universal.notBefore)
        let early = try report(universal, now: start - 1)
        #expect(early.findings.map(\.severity) == [.error])
        #expect(try #require(early.findings.first).sentence.contains("is not valid before 20"))
        #expect(try report(universal, now: start).findings.isEmpty)
    }

    @Test("names the topics of a certificate that is for others")
    func topic() throws {
        let report = try report(universal, topic: "com.example.other")
        #expect(report.findings.map(\.severity) == [.error])
        let sentence = try #require(report.findings.first).sentence
        #expect(sentence.contains("com.example.app, com.example.app.voip, com.example.app.complication"), "\(sentence)")
        #expect(sentence.contains("not for the topic com.example.other"), "\(sentence)")
    }

    @Test("only warns of a certificate without any topic")
    func withoutTopics() throws {
        let report = try report(APNSCertificateTests.certificate(subject: "/CN=worker", []))
        #expect(report.findings.map(\.severity) == [.warning] && report.isUsable)
    }

    @Test(
        "reports a certificate for the other environment, except for other servers",
        arguments: [("1", APNSEnvironment.sandbox), ("2", .production)])
    func environment(number: String, own: APNSEnvironment) throws {
        let certificate = try APNSCertificateTests.certificate(["1.2.840.113635.100.6.3.\(number)=ASN1:NULL"])
        #expect(try report(certificate, environment: own).findings.isEmpty)
        #expect(try report(certificate, environment: nil).findings.isEmpty)
        let other: APNSEnvironment = own == .sandbox ? .production : .sandbox
        let report = try report(certificate, environment: other)
        #expect(report.findings.map(\.severity) == [.error])
        let sentence = try #require(report.findings.first).sentence
        #expect(sentence.contains("for the \(own.rawValue) environment only, not for \(other.rawValue)"), "\(sentence)")
    }

    @Test("warns of key files that others may read, after all errors")
    func permissions() throws {
        try withTemporaryDirectory { directory in
            let path = directory.appending(path: "key.pem").path
            try Data([1]).write(to: URL(filePath: path))
            #expect(chmod(path, 0o644) == 0)
            let sources = [SecretSource.file(path), .base64("AA==", name: "PASSPHRASE")]
            let key = CredentialReport(keySources: sources)
            #expect(key.findings.map(\.severity) == [.warning] && key.daysLeft == nil && key.isUsable)
            #expect(try #require(key.findings.first).sentence.contains("mode 0644"))
            let certificate = try CredentialReport(
                certificate: universal, topic: "com.example.other", environment: nil, keySources: sources,
                now: #require(universal.notAfter))
            #expect(certificate.findings.map(\.severity) == [.error, .warning, .warning])
            #expect(chmod(path, 0o600) == 0)
            #expect(CredentialReport(keySources: sources).findings.isEmpty)
        }
    }

    @Test("escapes control characters in a certificate's names")
    func escapes() throws {
        let certificate = try APNSCertificateTests.certificate(
            subject: "/UID=a\u{1B}[31mb/CN=c\u{1B}]0;d", ["1.2.840.113635.100.6.3.1=ASN1:NULL"])
        let report = try report(certificate)
        #expect(report.findings.count == 2)
        for finding in report.findings { #expect(!finding.sentence.contains("\u{1B}"), "\(finding.sentence)") }
    }
}
