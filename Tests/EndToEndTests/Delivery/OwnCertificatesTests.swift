import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("A simulator with its own certificates")
    struct OwnCertificatesTests {
        @Test("is trusted by the worker and trusts it, by key and by certificate")
        func check() async throws {
            let redis = try RedisServer()
            let directory = redis.directory.appending(path: "certificates").path
            let simulator = try ChildProcess(
                try BuiltProgram.path("apns-simulator"),
                ["--write-certificates", directory, "--topic", "com.example.own"])
            struct Announcement: Decodable { let port: Int }
            try await eventually("the simulator listens") { simulator.output.hasSuffix("\n") }
            let port = try JSONDecoder().decode(Announcement.self, from: Data(simulator.output.utf8)).port
            let environment = [
                "APNS_WORKER_REDIS_URL": redis.url, "APNS_WORKER_CA": "\(directory)/ca.pem",
                "APNS_WORKER_TOPIC": "com.example.own", "APNS_WORKER_ENDPOINT": "localhost:\(port)",
            ]
            let key = ["APNS_WORKER_KEY": "\(directory)/AuthKey_ABC123DEFG.p8", "APNS_WORKER_TEAM_ID": "TEAM123456"]
            let certificate = [
                "APNS_WORKER_CERTIFICATE": "\(directory)/client.pem",
                "APNS_WORKER_CERTIFICATE_KEY": "\(directory)/client-key.pem",
            ]
            for (credential, words) in [
                (key, "APNs accepts the key ABC123DEFG"), (certificate, "APNs accepts the cert"),
            ] {
                try await CommandLineTests.run(["check"], environment: environment.merging(credential) { $1 }).succeeds(
                    "ok       app default: \(words)")
            }
        }
    }
}
