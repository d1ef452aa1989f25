import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Servers that are not APNs. `APNSTests` tests the effect of worse ones on a connection.
    @Suite("Servers that are not APNs")
    struct HostileServerTests {
        @Test("one that agrees to HTTP/2 and then sends nothing is named, and nothing is lost")
        func silent() async throws {
            let redis = try RedisServer()
            let port = try RedisServer.freePort()
            // This server agrees to h2 and waits for a request of HTTP/1.0.
            let silent = try ChildProcess(
                "openssl",
                [
                    "s_server", "-accept", "127.0.0.1:\(port)", "-alpn", "h2", "-www", "-quiet", "-cert",
                    try TestCertificates.path("server.pem"), "-key", try TestCertificates.path("server-key.pem"),
                ])
            // A refused connection would be logged first, and the second reason only after a while.
            try await eventually("the server listens") { (try? RawConnection(port: port)) != nil }
            try redis.push(TestJob.many(200))
            let worker = try WorkerProcess(
                redis: redis.url, endpoint: port, options: ["--max-attempts", "1000", "--exit-when-done"])
            try await eventually("the worker tells what is wrong") {
                if let ending = silent.ending { throw silent.failure("ended with \(ending)") }
                return !worker.lines(of: "apns_connection_failed").isEmpty
            }
            try await worker.logs("apns_connection_failed", "SETTINGS", " endpoint=localhost:\(port) ")
            let before = try QueueContents(redis)
            #expect(before.dead.isEmpty && before.count("delivered") == 0)
            silent.kill()
            _ = try await silent.wait()

            let simulator = try await SimulatorProcess(options: ["--port", "\(port)"])
            let account = try await worker.finish()
            #expect(account.delivered == 200 && account.dead == 0 && account.possibleDuplicates == 0)
            let answered = try await simulator.stop()
            #expect(answered.distinctTokens == 200 && answered.duplicates <= account.possibleDuplicates)
        }
    }
}
