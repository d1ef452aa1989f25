import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Checking a gateway")
    struct GatewayCheckTests {
        private static func check(
            _ scene: GatewayScene, _ arguments: [String] = [], job: String? = nil
        ) async throws -> CommandLineTests.Output {
            try await CommandLineTests.run(
                ["check", "--no-redis"] + arguments + (job == nil ? [] : ["--job", "-"]),
                environment: [
                    "APNS_WORKER_ENDPOINT": "localhost:\(try scene.gatewayPort())",
                    "APNS_WORKER_CA": try TestCertificates.path("ca.pem"), "APNS_WORKER_TRANSPORT": "gateway",
                    "APNS_WORKER_TOPIC": "com.example.app",
                ].merging(try TestCertificates.clientVariables()) { $1 }, input: job)
        }

        @Test("reports that a good one accepts the certificate")
        func good() async throws {
            let scene = try await GatewayScene()
            try await Self.check(scene).succeeds(
                "ok       app default: certificate Apple Push Services: com.example.app for com.example.app",
                "ok       app default: connected to localhost:\(try scene.gatewayPort()) with TLS\n",
                "ok       app default: the gateway accepts the certificate")
            #expect(try await scene.simulator.stop().gateway.accepted == 0)
        }

        @Test(
            "reports one that drops connections, sends garbage, or sends nothing, and that none answers simple frames",
            arguments: [
                (["at=connect,answer=close"], [], 1, "FAILED   app default: "),
                (["at=connect,answer=3"], [], 1, "FAILED   app default: "),
                (
                    ["at=connect,answer=hang"], [], 0,
                    "warning  app default: the gateway does not report an invalid token"
                ),
                ([], ["--gateway-frame", "simple"], 0, "warning  app default: the frame simple has no error packets"),
            ])
        func bad(rules: [String], flags: [String], status: Int32, words: String) async throws {
            let result = try await Self.check(try await GatewayScene(rules: rules), flags).fails(status).shows(words)
            #expect(result.output.contains("FAILED") == (status != 0), "\(result.output)")
        }

        @Test("reports as much of a job's outcome as the gateway reveals")
        func send() async throws {
            let scene = try await GatewayScene(rules: ["prefix=dead,answer=8"])
            let (good, bad) = (TestJob.token("a", 1), TestJob.token("dead", 2))
            try await Self.check(
                scene, ["--send"], job: #"{"id":"x","tokens":["\#(good)","\#(bad)"],"payload":{"aps":{"alert":"hi"}}}"#
            ).fails(1).shows(
                "ok       job: APNs answered for a0000000…: accepted by the gateway",
                "FAILED   job: APNs answered for dead0000…: InvalidToken (status 8)")
            #expect(try await scene.simulator.stop().gatewayAccepted.map(\.token) == [good])
        }

        @Test("reports a job that the gateway cannot carry")
        func job() async throws {
            let scene = try await GatewayScene()
            let token = TestJob.token("a", 1)
            for (job, words) in [
                (#"{"id":"x","token":"abcd","payload":{"aps":{}}}"#, "MalformedToken"),
                (#"{"id":"x","token":"\#(token)","payload":\#(TestJob.payload(bytes: 2049))}"#, "PayloadTooLarge"),
            ] {
                try await Self.check(scene, ["--no-connect"], job: job).ends(1, words)
            }
        }
    }
}
