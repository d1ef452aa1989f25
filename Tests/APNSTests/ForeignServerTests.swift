import Testing

@testable import APNS

@Suite("Against servers that are not ours", .timeLimit(.minutes(3)), .serialized)
struct ForeignServerTests {
    /// Sends until each of the notifications is answered, as a worker does: again what was certainly not processed.
    private func sendAll(_ count: Int, port: Int, connections: Int) async throws -> (answers: [Int: Int], again: Int) {
        try await withPool(host: "localhost", port: port, { $0.maximumConnections = connections }) { client in
            var waiting = Array(0..<count)
            var answers: [Int: Int] = [:]
            var again = 0
            while !waiting.isEmpty {
                let sent = waiting
                waiting = []
                for (number, future) in zip(sent, client.send(sent.map { .example($0 % 16) })) {
                    switch try await future.get() {
                    case .response(let response):
                        #expect(answers.updateValue(response.status, forKey: number) == nil)
                    case .notProcessed:
                        waiting.append(number)
                        again += 1
                    case .uncertain(let failure): Issue.record("\(number): \(failure)")
                    }
                }
            }
            return (answers, again)
        }
    }

    @Test("5,000 notifications are all answered by nghttpd", arguments: [1, 3])
    func nghttpd(connections: Int) async throws {
        try await ForeignServer.withNghttpd { port in
            let (answers, again) = try await sendAll(5000, port: port, connections: connections)
            #expect(answers.count == 5000)
            #expect(answers.values.allSatisfy { $0 == 200 })
            #expect(again == 0)
        }
    }

    @Test("5,000 notifications are all answered by nginx, which ends connections in between", arguments: [1, 3])
    func nginx(connections: Int) async throws {
        try await ForeignServer.withNginx { port in
            let (answers, _) = try await sendAll(5000, port: port, connections: connections)
            #expect(answers.count == 5000)
            #expect(answers.values.allSatisfy { $0 == 200 })
        }
    }
}
