import APNS

extension AppConfiguration {
    /// Why nothing may be sent with a credential, because it would reach the devices of another app; `nil` if it may.
    ///
    /// The gateway's frames carry no topic: the certificate alone decides which app they are for. Over HTTP/2 each request
    /// names its topic, and APNs refuses one that the certificate is not for.
    func wrongCertificate(_ credential: Credential) -> String? {
        guard usesGateway, case .certificate(let identity) = credential else { return nil }
        let certificate = identity.apns
        return ([topic] + otherTopics).lazy.compactMap { CredentialReport.mismatch(certificate, $0) }.first
            .map { "CertificateNotForTopic: \($0)" }
    }
}
