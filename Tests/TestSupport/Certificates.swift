import Foundation
import TLS

/// Certificates and keys to test with, made by `scripts/make-certs`.
package enum TestCertificates {
    package struct Failure: Error, CustomStringConvertible {
        package let description: String
    }

    /// Returns the directory of the certificates: that in the variable `TEST_CERTIFICATES`, which `scripts/test` makes once for all
    /// processes. Without the variable, a directory is made on first use, and removed when the process exits.
    package static func directory() throws -> String { try made.get() }

    package static func path(_ name: String) throws -> String { try directory() + "/" + name }

    private static let made: Result<String, Failure> = {
        if let shared = ProcessInfo.processInfo.environment["TEST_CERTIFICATES"] { return .success(shared) }
        atexit { try? FileManager.default.removeItem(atPath: TestCertificates.path) }
        do {
            let process = try ChildProcess(Repository.path("scripts/make-certs"), [path])
            guard try process.waitBlocking() == .exited(0) else {
                return .failure(Failure(description: "\(process.failure("failed"))"))
            }
        } catch {
            return .failure(Failure(description: "scripts/make-certs: \(error)"))
        }
        return .success(path)
    }()

    private static let path = FileManager.default.temporaryDirectory
        .appending(path: "apns-worker-certificates-\(UUID().uuidString)").path
}

extension TestCertificates {
    package static func contents(_ name: String) throws -> [UInt8] {
        [UInt8](try Data(contentsOf: URL(filePath: path(name))))
    }

    package static func identity(_ name: String = "server") throws -> TLSIdentity {
        try TLSIdentity(certificateFile: path("\(name).pem"), keyFile: path("\(name)-key.pem"))
    }

    /// Returns the variables of an app with the certificate `client`.
    package static func clientVariables() throws -> [String: String] {
        [
            "APNS_WORKER_CERTIFICATE": try path("client.pem"),
            "APNS_WORKER_CERTIFICATE_KEY": try path("client-key.pem"),
        ]
    }

    package static func client(
        trusting authority: String = "ca.pem", identity: TLSIdentity? = nil, protocols: [String] = []
    ) throws -> TLSContext {
        var configuration = TLSClientConfiguration()
        configuration.trust = .file(try path(authority))
        configuration.identity = identity
        configuration.applicationProtocols = protocols
        return try TLSContext.client(configuration)
    }

    package static func server(
        _ name: String = "server", protocols: [String] = [],
        clientCertificates: TLSServerConfiguration.ClientCertificates = .ignored
    ) throws -> TLSContext {
        var configuration = TLSServerConfiguration(identity: try identity(name))
        configuration.applicationProtocols = protocols
        configuration.clientCertificates = clientCertificates
        return try TLSContext.server(configuration)
    }
}
