import APNS

extension AppConfiguration {
    /// Returns the reason to send nothing with a credential whose certificate is another app's; `nil` otherwise.
    ///
    /// The gateway's frames carry no topic, so the certificate alone decides which app a notification reaches. Over HTTP/2
    /// each request names its topic, and APNs refuses one that the certificate is not for.
    func wrongCertificate(_ credential: Credential) -> String? {
        guard usesGateway, case .certificate(let identity) = credential else { return nil }
        let certificate = identity.apns
        return ([topic] + otherTopics).lazy.compactMap { CredentialReport.mismatch(certificate, $0) }.first
            .map { "CertificateNotForTopic: \($0)" }
    }
}
