import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// Enqueues over HTTP with the clients of several languages. Each sends half a megabyte twice, with and without a length, and over
    /// one connection if the client can.
    @Suite("HTTP clients")
    struct HTTPClientTests {
        @Test(
            "each enqueues every job",
            arguments: [
                ["/usr/bin/python3", "post.py"], ["node", "post.mjs"], ["php", "post.php"], ["ruby", "post.rb"],
                ["go", "run", "post.go"],
            ])
        func clients(command: [String]) async throws {
            let redis = try RedisServer()
            let web = try await WebProcess(
                redis.url, ["shop": ["--role", "producer", "--queue", "default"]])
            let file = web.path("jobs.ndjson")
            let jobs = TestJob.many(1000, members: #""note":"\#(String(repeating: "x", count: 400))","#)
            try Data(jobs.joined(separator: "\n").utf8).write(to: URL(filePath: file))
            let program = Repository.path("Tests/Foreign/http/\(command.last ?? "")")
            let process = try ChildProcess(
                "/usr/bin/env",
                command.dropLast() + [
                    program, "\(web.address)/api/v1/jobs", try #require(web.tokens["shop"]), file,
                ],
                environment: ForeignProgram.goVariables)
            #expect(try await process.wait() == .exited(0), "\(process.errors)")
            let answers = process.output.split(separator: "\n")
            #expect(answers.count >= 2 && answers.allSatisfy { $0.hasSuffix(" 202") }, "\(process.output)")
            #expect(try redis.run("LLEN", "push:{default}:jobs").number == answers.count * 1000)
        }
    }
}
