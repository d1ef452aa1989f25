import NIOConcurrencyHelpers
import TLS
import TestSupport
import Testing

@testable import APNS

@Suite("Third-party servers", .timeLimit(.minutes(10)), .serialized)
struct ForeignServerTests {
    /// Sends until each notification is answered. Like a worker, it resends notifications that were certainly not processed.
    /// - Parameter inBetween: called after each batch, with the number of answers so far.
    private func sendAll(
        _ count: Int, port: Int, connections: Int, batch: Int = .max, tls: TLSContext? = nil,
        inBetween: (_ sent: Int) throws -> Void = { _ in }
    ) async throws -> (answers: [Int: Int], again: Int) {
        let change = { @Sendable (configuration: inout ConnectionPool.Configuration) in
            configuration.maximumConnections = connections
            // A busy machine must not look like a stale connection.
            configuration.wakeAfter = .hours(1)
            if let tls { configuration.tls = tls }
        }
        return try await withPool(host: "localhost", port: port, change) { client in
            var waiting = Array(0..<count)
            var answers: [Int: Int] = [:]
            var again = 0
            while !waiting.isEmpty {
                let sent = Array(waiting.prefix(batch))
                waiting.removeFirst(sent.count)
                defer { do { try inBetween(answers.count) } catch { Issue.record(error) } }
                for (number, future) in zip(sent, client.send(sent.map { .example($0 % 16) })) {
                    let result = try await future.get()
                    switch result {
                    case .response(let response): #expect(answers.updateValue(response.status, forKey: number) == nil)
                    case .notProcessed:
                        waiting.append(number)
                        again += 1
                    case .uncertain, .confirmed, .refused: Issue.record("\(number): \(result)")
                    }
                }
            }
            return (answers, again)
        }
    }

    enum Server { case nghttpd, nginx, haproxy }

    /// nginx ends connections in between, so only its notifications may be resent.
    @Test("5,000 notifications are all answered", arguments: [Server.nghttpd, .nginx, .haproxy], [1, 3])
    func answers(server: Server, connections: Int) async throws {
        let check = { (port: Int) in
            let (answers, again) = try await sendAll(5000, port: port, connections: connections)
            #expect(answers.count == 5000)
            #expect(answers.values.allSatisfy { $0 == 200 })
            #expect(again == 0 || server == .nginx)
        }
        switch server {
        case .nghttpd: try await ForeignServer.withNghttpd(check)
        case .nginx: try await ForeignServer.withNginx(check)
        case .haproxy: try await ForeignServer.withHaproxy { try await check($0.port) }
        }
    }

    @Test("haproxy is reloaded again and again while 20,000 notifications are sent, and none is lost or uncertain")
    func reload() async throws {
        try await ForeignServer.withHaproxy { server in
            let reloads = NIOLockedValueBox(0)
            let (answers, _) = try await sendAll(20_000, port: server.port, connections: 2, batch: 500) { sent in
                guard sent / 5000 > reloads.withLockedValue({ $0 }) else { return }
                reloads.withLockedValue { $0 += 1 }
                try server.reload()
            }
            #expect(answers.count == 20_000)
            #expect(answers.values.allSatisfy { $0 == 200 })
            #expect(reloads.withLockedValue { $0 } >= 3)
            try await eventually("the predecessors end") { server.ended >= 3 }
        }
    }

    @Test("a client certificate is accepted by nginx and haproxy, and its absence reported as such")
    func clientCertificate() async throws {
        let tls = try TestCertificates.client(identity: TestCertificates.identity("client"), protocols: ["h2"])
        try await ForeignServer.withNginx(wantsCertificate: true) { port in
            let (with, _) = try await sendAll(100, port: port, connections: 1, tls: tls)
            #expect(with.values.allSatisfy { $0 == 200 } && with.count == 100)
            let (without, _) = try await sendAll(1, port: port, connections: 1)
            #expect(without == [0: 400])
        }
        try await ForeignServer.withHaproxy(wantsCertificate: true) { server in
            let (with, _) = try await sendAll(100, port: server.port, connections: 1, tls: tls)
            #expect(with.values.allSatisfy { $0 == 200 } && with.count == 100)
            try await withPool(host: "localhost", port: server.port) { client in
                try await eventually("two failures") { try await client.failures() >= 2 }
                let failure = try await client.lastFailure()
                #expect(failure.contains("certificate"), "\(failure)")
            }
        }
    }
}
