import Foundation
import Synchronization
import TestSupport

/// The configuration file of a worker's place. The workers are those of a rolling upgrade: only each third has the app
/// `other`, and another third sends with a certificate, which is not for all push types.
final class WorkerSettings: Sendable {
    private enum Credential { case key, certificate }

    private let workshop: OpenSSLWorkshop
    private let slot: Int
    private let endpoint: Int
    /// The number of rotations, and true once the upgrade is complete.
    private let state = Mutex((rotations: 0, isComplete: false))

    /// - Parameters:
    ///   - slot: the number of the place, which determines the apps and credentials of its workers. The first place has all apps.
    ///   - endpoint: the port of the workers' APNs.
    init(slot: Int, endpoint: Int) throws {
        workshop = try OpenSSLWorkshop()
        self.slot = slot
        self.endpoint = endpoint
        for name in ["first", "second"] {
            try workshop.certificate(name, subject: "/UID=com.example.app/CN=Apple Push Services: com.example.app")
        }
        try write(0, isComplete: false)
    }

    /// The simulator's options for accepting the credentials of all workers.
    static func simulatorOptions() throws -> [String] {
        [
            "--client-ca", try TestCertificates.path("ca.pem"),
            "--provider-key", "NEXT123456:TEAM123456:\(try TestCertificates.path("AuthKey_ABC123DEFG.p8"))",
        ]
    }

    var file: String { workshop.path("worker.yaml") }

    /// Variables of ``WorkerProcess`` that would override the file.
    var environment: [String: String] {
        Dictionary(
            uniqueKeysWithValues: ["ENDPOINT", "TOPIC", "KEY", "KEY_ID", "TEAM_ID"].map { ("APNS_WORKER_\($0)", "") })
    }

    /// Switches to the other of two credentials.
    func rotate() throws {
        try state.withLock { state in
            state.rotations += 1
            try write(state.rotations, isComplete: state.isComplete)
        }
    }

    /// Completes the upgrade: the workers get all apps, with keys.
    func complete() throws {
        try state.withLock { state in
            state.isComplete = true
            try write(state.rotations, isComplete: true)
        }
    }

    private func write(_ rotation: Int, isComplete: Bool) throws {
        var apps = [try app("default", "com.example.app", slot % 3 == 1 && !isComplete ? .certificate : .key, rotation)]
        if slot % 3 == 0 || isComplete { apps.append(try app("other", "com.example.other", .key, rotation)) }
        let name = rotation % 2 == 0 ? "first" : "second"
        try workshop.write(workshop.read("\(name).pem") + workshop.read("\(name)-key.pem"), to: "credential.pem")
        try workshop.write(("apps:\n" + apps.joined()).utf8, to: "worker.yaml")
    }

    private func app(_ name: String, _ topic: String, _ credential: Credential, _ rotation: Int) throws -> String {
        let key = try TestCertificates.path("AuthKey_ABC123DEFG.p8")
        let lines =
            switch credential {
            case .certificate: ["certificate: \(workshop.path("credential.pem"))"]
            case .key:
                ["key: \(key)", "key_id: \(rotation % 2 == 0 ? "ABC123DEFG" : "NEXT123456")", "team_id: TEAM123456"]
            }
        return (["  \(name):"] + (["topic: \(topic)", "endpoint: localhost:\(endpoint)"] + lines).map { "    " + $0 })
            .map { $0 + "\n" }.joined()
    }
}
