import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("scripts/apns-probe")
    struct ProbeTests {
        /// A line of the report.
        private struct Row {
            let item, answer, expected: String
            let agrees: Bool

            init(_ line: Substring) throws {
                let cells = line.split(separator: "\t", omittingEmptySubsequences: false).map(String.init)
                try #require(cells.count == 5, "\(line)")
                item = cells[0]
                answer = cells[1] == "-" ? cells[2] : "\(cells[1]) \(cells[2])"
                expected = cells[3]
                agrees = cells[4] == "yes"
            }
        }

        private static let script = Repository.path("scripts/apns-probe")

        private func byKey() throws -> [String] {
            [
                "--key", try TestCertificates.path("AuthKey_ABC123DEFG.p8"), "--key-id", "ABC123DEFG", "--team-id",
                "TEAM123456",
            ]
        }

        /// Makes a certificate with the topics that Apple gives an app's certificate.
        private func byCertificate(_ workshop: OpenSSLWorkshop) throws -> [String] {
            try workshop.certificate(
                "push", subject: "/UID=com.example.app/CN=Apple Push Services: com.example.app",
                extensions: [
                    "1.2.840.113635.100.6.3.1=ASN1:NULL", "1.2.840.113635.100.6.3.2=ASN1:NULL",
                    "1.2.840.113635.100.6.3.6=ASN1:SEQUENCE:topics", "[topics]", "a=UTF8String:com.example.app",
                    "b=SEQWRAP,UTF8String:app", "c=UTF8String:com.example.app.voip", "d=SEQWRAP,UTF8String:voip",
                    "e=UTF8String:com.example.app.push-type.liveactivity", "f=SEQWRAP,UTF8String:liveactivity",
                    "g=UTF8String:com.example.app.push-type.accessory", "h=SEQWRAP,UTF8String:accessory",
                ])
            return ["--certificate", workshop.path("push.pem"), "--certificate-key", workshop.path("push-key.pem")]
        }

        private func probe(_ port: Int, _ options: [String]) async throws -> (ChildProcess.Ending, ChildProcess) {
            let process = try ChildProcess(
                Self.script,
                [
                    "--endpoint", "localhost:\(port)", "--broadcasts", "localhost:\(port)", "--channels",
                    "localhost:\(port)", "--cacert", try TestCertificates.path("ca.pem"), "--topic", "com.example.app",
                    "--pause", "0",
                ] + options)
            return (try await process.wait(), process)
        }

        private func rows(_ process: ChildProcess) throws -> [Row] {
            try process.output.split(separator: "\n").filter { !$0.hasPrefix("#") }.map(Row.init)
        }

        /// A simulator that rejects all device tokens.
        private func simulator(_ options: [String] = []) async throws -> SimulatorProcess {
            try await SimulatorProcess(
                rules: ["answer=BadDeviceToken"], options: ["--topic", "com.example.app"] + options)
        }

        @Test("the simulator answers every question about a key as expected; the report has no secrets")
        func key() async throws {
            let simulator = try await simulator()
            let (ending, process) = try await probe(simulator.port, byKey() + ["--yes"])
            #expect(ending == .exited(0), "\(process.errors)")
            let rows = try rows(process)
            for row in rows { #expect(row.agrees, "\(row.item): \(row.answer), expected: \(row.expected)") }
            #expect(rows.count > 50)
            let account = try await simulator.stop()
            #expect(account.requests <= 70 && account.accepted == 0)

            let report = process.output
            for secret in ["ABC123DEFG", "TEAM123456", "com.example", "localhost", "127.0.0.1", ":\(simulator.port)"] {
                #expect(!report.contains(secret))
            }
            #expect(report.firstMatch(of: /[0-9A-Fa-f]{16}/) == nil, "a token or an id")
        }

        @Test("the same for a certificate")
        func certificate() async throws {
            let simulator = try await simulator(["--client-ca", TestCertificates.path("ca.pem")])
            // The object must live as long as its files are used.
            let workshop = try OpenSSLWorkshop()
            defer { withExtendedLifetime(workshop) {} }
            let (ending, process) = try await probe(simulator.port, byCertificate(workshop) + ["--yes"])
            #expect(ending == .exited(0), "\(process.errors)")
            let rows = try rows(process)
            for row in rows { #expect(row.agrees, "\(row.item): \(row.answer), expected: \(row.expected)") }
            #expect(
                rows.contains { $0.item == "certificate-and-token" } && !rows.contains { $0.item == "two-updates.1" })
        }

        @Test("a different answer is reported unchanged, and a missing one exits with 1")
        func differences() async throws {
            let differing = try await SimulatorProcess(rules: ["answer=500,reason=Nonsense"])
            let (ending, process) = try await probe(
                differing.port, byKey() + ["--yes", "--only", "token-512-digits", "--only", "body-empty"])
            #expect(ending == .exited(0), "\(process.errors)")
            let rows = try rows(process)
            #expect(rows.map(\.answer) == ["500 Nonsense", "400 PayloadEmpty"])
            #expect(rows.map(\.agrees) == [false, true])
            #expect(process.errors.contains(#"token-512-digits: see "the maximum size of a device token""#))
            #expect(!process.errors.contains("body-empty"))

            let silent = try await SimulatorProcess(rules: ["answer=drop"])
            let (end, missing) = try await probe(silent.port, byKey() + ["--yes", "--only", "token-512-digits"])
            #expect(end == .exited(1))
            #expect(try self.rows(missing).map(\.answer) == ["000 no answer"])
        }

        @Test("nothing is sent without consent, to production, or after a refused credential")
        func consent() async throws {
            let simulator = try await simulator()
            let (ending, unasked) = try await probe(simulator.port, byKey())
            #expect(ending == .exited(64) && unasked.errors.contains("--yes") && unasked.output.isEmpty)
            #expect(unasked.errors.contains("localhost:\(simulator.port)"), "where it would send")
            let production = try ChildProcess(
                Self.script, byKey() + ["--topic", "com.example.app", "--yes", "--endpoint", "api.push.apple.com:443"])
            #expect(try await production.wait() == .exited(64))
            #expect(production.errors.contains("production"))
            #expect(try await simulator.account().requests == 0)

            let (refused, process) = try await probe(
                simulator.port, byKey().map { $0 == "TEAM123456" ? "TEAM000000" : $0 } + ["--yes"])
            #expect(refused == .exited(77) && process.errors.contains("InvalidProviderToken"))
            #expect(try await simulator.stop().requests == 1)
            let (unreachable, _) = try await probe(simulator.port, byKey() + ["--yes"])
            #expect(unreachable == .exited(69))
        }
    }
}
