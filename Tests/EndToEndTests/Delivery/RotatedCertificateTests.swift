import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Rotated certificates")
    struct RotatedCertificateTests {
        /// The certificate files of a process, and a second certificate authority, to which the servers change.
        private struct Files {
            let workshop: OpenSSLWorkshop

            init() throws {
                workshop = try OpenSSLWorkshop()
                for (from, to) in [("ca.pem", "ca"), ("client.pem", "crt"), ("client-key.pem", "key")] {
                    try workshop.write(Data(contentsOf: URL(filePath: TestCertificates.path(from))), to: to)
                }
                try workshop.key("new-ca-key.pem")
                try workshop.openssl(
                    "req", "-x509", "-new", "-key", "new-ca-key.pem", "-days", "3650", "-subj", "/CN=new authority",
                    "-out", "new-ca.pem")
                try make("new-server", days: 10, ["subjectAltName=DNS:localhost,IP:127.0.0.1"])
                try make("new-client", days: 10, ["extendedKeyUsage=clientAuth"])
            }

            private func make(_ name: String, days: Int, _ extensions: [String]) throws {
                try workshop.key("\(name)-key.pem")
                try workshop.openssl("req", "-new", "-key", "\(name)-key.pem", "-subj", "/CN=\(name)", "-out", "csr")
                try workshop.write(Data(extensions.joined(separator: "\n").utf8), to: "ext")
                try workshop.openssl(
                    "x509", "-req", "-in", "csr", "-CA", "new-ca.pem", "-CAkey", "new-ca-key.pem", "-set_serial",
                    "\(Int.random(in: 1...Int.max))", "-days", "\(days)", "-extfile", "ext", "-out", "\(name).pem")
            }

            func path(_ name: String) -> String { workshop.path(name) }

            /// Replaces a client's files with those of the other authority.
            func replace() throws {
                for (from, to) in [("new-ca.pem", "ca"), ("new-client.pem", "crt"), ("new-client-key.pem", "key")] {
                    try workshop.write(workshop.read(from), to: to)
                }
            }

            var environment: [String: String] {
                [
                    "APNS_WORKER_REDIS_CA": path("ca"), "APNS_WORKER_REDIS_CERTIFICATE": path("crt"),
                    "APNS_WORKER_REDIS_CERTIFICATE_KEY": path("key"),
                ]
            }
        }

        /// A Redis that requires clients' certificates of one authority at a time.
        private struct SecureRedis {
            let server: RedisServer
            let port: Int

            init() throws {
                port = try RedisServer.freePort()
                server = try RedisServer(arguments: [
                    "--tls-port", "\(port)", "--tls-auth-clients", "yes", "--tls-cert-file",
                    try TestCertificates.path("server.pem"), "--tls-key-file",
                    try TestCertificates.path("server-key.pem"), "--tls-ca-cert-file",
                    try TestCertificates.path("ca.pem"),
                ])
            }

            var url: String { "rediss://localhost:\(port)" }

            /// Changes to the new authority, and closes all connections.
            func rotate(_ files: Files) throws {
                try server.run(
                    "CONFIG", "SET", "tls-cert-file", files.path("new-server.pem"), "tls-key-file",
                    files.path("new-server-key.pem"), "tls-ca-cert-file", files.path("new-ca.pem"))
                try server.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            }
        }

        /// Starts a worker with certificates for Redis, and waits until five jobs are delivered.
        private static func working() async throws -> (Files, SecureRedis, SimulatorProcess, WorkerProcess) {
            let files = try Files()
            let redis = try SecureRedis()
            let simulator = try await SimulatorProcess()
            let worker = try WorkerProcess(redis: redis.url, endpoint: simulator.port, environment: files.environment)
            try redis.server.push(TestJob.many(5, prefix: "a"))
            try await eventually("the first are delivered") { try await simulator.account().accepted == 5 }
            return (files, redis, simulator, worker)
        }

        @Test("for Redis are in use from the worker's next connection on, and their end is announced")
        func redis() async throws {
            let (files, redis, simulator, worker) = try await Self.working()
            try files.replace()
            try redis.rotate(files)
            try redis.server.push(TestJob.many(5, prefix: "b"))
            try await eventually("the others, too") { try await simulator.account().accepted == 10 }
            try await worker.logs("certificates_replaced")
            try await worker.logs("certificate_problem", "for Redis expires in 9 days")
            #expect(try await worker.stop().possibleDuplicates == 0)
        }

        @Test("that do not match are reported, and the previous ones stay in use")
        func mismatch() async throws {
            let (files, redis, simulator, worker) = try await Self.working()
            try files.workshop.write(files.workshop.read("new-client.pem"), to: "crt")
            try await eventually("it is reported") { worker.log.contains("certificates_unusable") }
            try redis.server.run("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            try redis.server.push(TestJob.many(5, prefix: "b"))
            try await eventually("the others are delivered") { try await simulator.account().accepted == 10 }
            _ = try await worker.stop()
        }

        @Test("of the dashboard are presented without a restart, and SIGHUP does not end it")
        func web() async throws {
            let files = try Files()
            let redis = try SecureRedis()
            for (from, to) in [("server.pem", "web.pem"), ("server-key.pem", "web-key.pem")] {
                try files.workshop.write(Data(contentsOf: URL(filePath: TestCertificates.path(from))), to: to)
            }
            let web = try await WebProcess(
                redis.url, [:], ["--tls-certificate", files.path("web.pem"), "--tls-key", files.path("web-key.pem")],
                environment: files.environment)
            let (process, port) = (web.process, try web.port)
            func get(_ authority: String) throws -> String {
                let request = "printf 'GET /api/v1/status HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n'; sleep 1"
                let client = try ChildProcess(
                    "/bin/sh",
                    [
                        "-c",
                        "(\(request)) | openssl s_client -connect localhost:\(port) -CAfile \(authority) -verify_return_error"
                            + " -quiet 2>&1",
                    ])
                _ = try client.waitBlocking()
                return client.output
            }
            let authority = try TestCertificates.path("ca.pem")
            #expect(try get(authority).contains("200 OK"))
            for name in ["new-server.pem", "new-server-key.pem"] {
                try files.workshop.write(files.workshop.read(name), to: name.replacing("new-server", with: "web"))
            }
            try files.replace()
            try redis.rotate(files)
            process.send(SIGHUP)
            try await eventually("it has the new one, and reads Redis with its new ones") {
                try get(files.path("new-ca.pem")).contains("200 OK")
            }
            #expect(process.ending == nil)
            try await eventually("it says so") {
                process.errors.contains("the changed certificates for browsers")
                    && process.errors.contains("for browsers expires in 9 days")
            }
            process.send(SIGTERM)
            #expect(try await process.wait() == .exited(0))
        }

        @Test("of an app's authorities are trusted without a restart")
        func app() async throws {
            let files = try Files()
            try files.workshop.write(files.workshop.read("new-ca.pem"), to: "ca")
            let (redis, simulator) = try await startServers()
            let worker = try WorkerProcess(redis, simulator, environment: ["APNS_WORKER_CA": files.path("ca")])
            try redis.push(TestJob.many(5))
            try await eventually("it does not trust the server") { worker.log.contains("not trusted") }
            try files.workshop.write(Data(contentsOf: URL(filePath: TestCertificates.path("ca.pem"))), to: "ca")
            try await eventually("it does") { try await simulator.account().accepted == 5 }
            _ = try await worker.stop()
            #expect(worker.log.contains("credential_replaced"))
        }

        @Test("of a webhook's authority and its secret are used for the next request")
        func webhook() async throws {
            let files = try Files()
            try files.workshop.write(files.workshop.read("new-ca.pem"), to: "ca")
            let secret = files.path("secret")
            try "whsec_wrongwrongwrongwrongwrongwrongwrongwrong".write(
                toFile: secret, atomically: true, encoding: .utf8)
            let redis = try RedisServer()
            let right = "whsec_" + Data("a secret of some thirty-two bytes".utf8).base64EncodedString()
            let receiver = try await ForeignReceiver(
                "webhook_receiver.py", behaviour: "200", withTLS: true, arguments: ["--secret", right])
            try redis.run("XGROUP", "CREATE", "push:{default}:results", "callbacks", "0", "MKSTREAM")
            try redis.run("XADD", "push:{default}:results", "*", "id", "one", "outcome", "dead")
            let process = try ChildProcess(
                BuiltProgram.path("apns-worker"),
                [
                    "results", "--webhook", "https://localhost:\(receiver.port)/", "--webhook-ca", files.path("ca"),
                    "--webhook-secret-file", secret, "--redis", redis.url,
                ])
            try await eventually("it does not trust the receiver") { process.errors.contains("not trusted") }
            try right.write(toFile: secret, atomically: true, encoding: .utf8)
            try files.workshop.write(Data(contentsOf: URL(filePath: TestCertificates.path("ca.pem"))), to: "ca")
            try await eventually("the request arrives, signed with the new secret") {
                receiver.process.output.contains(/"signed": ?true/)
            }
            process.send(SIGTERM)
            #expect(try await process.wait() == .exited(0))
            receiver.stop()
        }
    }
}
