import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Requests of producers")
    struct HTTPRequestTests {
        private let redis: RedisServer
        private let web: WebProcess

        init() async throws {
            redis = try RedisServer()
            let producer = ["--role", "producer", "--queue", "default"]
            web = try await WebProcess(redis.url, ["shop": producer, "news": producer])
        }

        private func waiting() throws -> Int { try redis.run("LLEN", "push:{default}:jobs").number ?? -1 }

        @Test("are the same with the same key and the same jobs, however these are divided, and refused with others")
        func keys() async throws {
            let (one, two) = (TestJob.text(TestJob.token("a", 1)), TestJob.text(TestJob.token("a", 2)))
            func post(_ body: String, by user: String = "shop") async throws -> WebProcess.Answer {
                try await web.post(user, body, "", ["Idempotency-Key: k"])
            }
            let first = try await post("\(one)\n\(two)")
            let ids = try #require(first.ids)
            #expect(first.status == 202 && Set(ids).count == 2)
            for body in ["\(one)\(two)", "\n\n\(one)\n\n\(two)\n", "[\(one),\n\(two)]", "\(one) \(two)"] {
                let answer = try await post(body)
                #expect(answer.status == 202 && answer.ids == ids, "\(body) \(answer)")
            }
            #expect(try waiting() == 2)
            for body in [one, "\(two)\n\(one)", "\(one)\n\(two)\n\(one)"] {
                let answer = try await post(body)
                #expect(answer.status == 422 && answer.error.contains("was used for other jobs"), "\(body) \(answer)")
            }
            #expect(try waiting() == 2)
            // An idempotency key is valid for one user only. A refused request does not use up its key.
            #expect(try await post(one, by: "news").status == 202)
            let refused = try await web.post("shop", "{}", "", ["Idempotency-Key: l"])
            #expect(refused.status == 400)
            #expect(try await web.post("shop", one, "", ["Idempotency-Key: l"]).status == 202)
            #expect(try waiting() == 4)
        }

        @Test("with an encoded body are refused, with the reason")
        func codings() async throws {
            let job = TestJob.text(TestJob.token("a", 1))
            for coding in ["gzip", "br", "deflate, gzip"] {
                let answer = try await web.post("shop", job, "", ["Content-Encoding: \(coding)"])
                #expect(answer.status == 415 && answer.error.contains("without Content-Encoding"), "\(answer)")
            }
            #expect(try await web.post("shop", job, "", ["Content-Encoding: identity"]).status == 202)
            let connection = try RawConnection(port: web.port)
            connection.send(head("Transfer-Encoding: gzip, chunked") + "1\r\nx\r\n0\r\n\r\n")
            try await eventually("an answer") {
                connection.read()
                return connection.received.contains("\r\n\r\n")
            }
            #expect(connection.received.hasPrefix("HTTP/1.1 501"), "\(connection.received)")
            #expect(try waiting() == 1)
        }

        @Test("whose client waits to be asked for the body are asked")
        func expectation() async throws {
            let job = TestJob.text(TestJob.token("a", 1))
            let connection = try RawConnection(port: web.port)
            connection.send(head("Expect: 100-continue\r\nContent-Length: \(job.utf8.count)"))
            try await eventually("the client is asked") {
                connection.read()
                return connection.received.hasPrefix("HTTP/1.1 100 ")
            }
            connection.send(job)
            try await eventually("an answer") {
                connection.read()
                return connection.received.contains("HTTP/1.1 202")
            }
            #expect(try waiting() == 1)
        }

        private func head(_ lines: String) -> String {
            "POST /api/v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer \(web.tokens["shop"] ?? "")\r\n\(lines)\r\n\r\n"
        }
    }
}
