import TLS
import TestSupport

/// Identities and contexts made from the test certificates.
enum Fixtures {
    static func path(_ name: String) throws -> String { try TestCertificates.path(name) }

    static func identity(_ name: String = "server") throws -> TLSIdentity {
        try TLSIdentity(certificateFile: path("\(name).pem"), keyFile: path("\(name)-key.pem"))
    }

    static func client(
        trusting authority: String = "ca.pem", identity: TLSIdentity? = nil, protocols: [String] = [],
        verifying: Bool = true
    ) throws -> TLSContext {
        var configuration = TLSClientConfiguration()
        configuration.trust = .file(try path(authority))
        configuration.identity = identity
        configuration.applicationProtocols = protocols
        configuration.verifiesServer = verifying
        return try TLSContext.client(configuration)
    }

    static func server(
        _ name: String = "server", protocols: [String] = [],
        clientCertificates: TLSServerConfiguration.ClientCertificates = .ignored
    ) throws -> TLSContext {
        var configuration = TLSServerConfiguration(identity: try identity(name))
        configuration.applicationProtocols = protocols
        configuration.clientCertificates = clientCertificates
        return try TLSContext.server(configuration)
    }
}
