import APNSSimulator
import ArgumentParser
import TLS

/// The server's certificate and the accepted client certificates, from files or generated.
struct CertificateOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "The server's certificate chain, PEM. Without one the simulator makes its own.", valueName: "file"))
    var certificate: String?

    @Option(help: ArgumentHelp("The server's private key, PEM.", valueName: "file"))
    var key: String?

    @Option(
        help: ArgumentHelp(
            "Accept client certificates of these authorities, PEM. (default: the simulator's own, if it makes one)",
            valueName: "file"))
    var clientCa: String?

    @Option(
        help: ArgumentHelp(
            "Write files for clients to this directory: ca.pem, client.pem with its key, AuthKey_ABC123DEFG.p8. "
                + "Provider tokens must then be signed with that key (team TEAM123456).",
            valueName: "directory"))
    var writeCertificates: String?

    @Option(
        help: ArgumentHelp(
            "Additional name or address in the simulator's certificate, which has localhost, 127.0.0.1 and ::1. "
                + "The control port accepts it as a host name. Repeatable.", valueName: "name"))
    var serverName: [String] = []

    func validate() throws {
        guard (certificate == nil) == (key == nil) else {
            throw ValidationError("--certificate and --key must be given together")
        }
        guard certificate == nil || writeCertificates == nil && serverName.isEmpty else {
            throw ValidationError(
                "--write-certificates and --server-name cannot be combined with "
                    + "--certificate and --key")
        }
    }

    /// - Parameter topic: the bundle identifier of the generated client certificate.
    func configuration(topic: String) throws -> SimulatorConfiguration {
        if let certificate, let key {
            var configuration = SimulatorConfiguration(
                identity: try TLSIdentity(certificateFile: certificate, keyFile: key))
            configuration.clientTrust = clientCa.map { .file($0) }
            return configuration
        }
        let authority = try SimulatedAuthority()
        var configuration = SimulatorConfiguration(
            identity: try authority.serverIdentity(names: SimulatedAuthority.localNames + serverName))
        configuration.clientTrust = clientCa.map { .file($0) } ?? .pem(authority.certificatePEM)
        configuration.controlNames = serverName
        if let writeCertificates {
            try CertificateDirectory(writeCertificates).write(authority, topic: topic)
            configuration.providerKeys = [try authority.providerKey()]
        }
        return configuration
    }
}
