import Foundation
import TestSupport
import Testing

/// The command and the script that requeue dead letters. Both have the same effect.
enum RequeueTool: CaseIterable, Sendable {
    case command
    case script

    func start(_ flags: [String], redis: RedisServer) throws -> ChildProcess {
        switch self {
        case .command: try redis.startCommand(["requeue"] + flags)
        case .script: try ChildProcess(Self.scriptPath, flags, environment: ["APNS_WORKER_REDIS_URL": redis.url])
        }
    }

    func run(_ flags: [String], redis: RedisServer) async throws -> EndToEnd.CommandLineTests.Output {
        switch self {
        case .command: try await redis.apnsWorker(["requeue"] + flags)
        case .script:
            try await EndToEnd.CommandLineTests.run(
                flags, of: Self.scriptPath, environment: ["APNS_WORKER_REDIS_URL": redis.url])
        }
    }

    static let scriptPath = Repository.path("scripts/requeue")
}

/// A dead letter as a worker writes it.
struct TestLetter {
    var reason = "UnknownApp"
    var id: String?
    var members = ""
    var original: [UInt8]
    /// The age of the dead letter in seconds.
    var seconds: Int64 = 60

    static func numbered(_ number: Int, reason: String = "UnknownApp", members: String = "") -> TestLetter {
        TestLetter(
            reason: reason, id: "job-\(number)", members: members,
            original: Array(TestJob.text(TestJob.token("", number), #""id":"job-\#(number)","#).utf8))
    }
}

extension RedisServer {
    /// Writes dead letters, each with its own claim.
    /// - Parameter kind: `dead` or `cancelled`.
    func bury(_ letters: [TestLetter], queue: String = "default", as kind: String = "dead") throws {
        let connection = try connect()
        let now = Int64(Date().timeIntervalSince1970) * 1000
        for start in stride(from: 0, to: letters.count, by: 500) {
            var command = ["ZADD", "push:{\(queue)}:\(kind)"].map { Array($0.utf8) }
            for (index, letter) in letters[start..<min(start + 500, letters.count)].enumerated() {
                let at = now - letter.seconds * 1000
                let id = letter.id.map { #","id":"\#($0)""# } ?? ""
                let head =
                    #"{"v":1,"reason":"\#(letter.reason)","at":\#(at),"claim":"w:\#(start + index)","size":\#(letter.original.count),"attempts":2\#(id)\#(letter.members)}"#
                command += [Array("\(at)".utf8), Array(head.utf8) + [0x0A] + letter.original]
            }
            let reply = try connection.run(command)
            try #require(reply.number != nil, "ZADD was answered with \(reply)")
        }
    }

    /// Returns the waiting jobs without the worker's wrappers.
    func originals(queue: String = "default") throws -> [[UInt8]] {
        try QueueContents(self, queue: queue).jobs.map { body in
            let text = Array("\"job\":".utf8)
            guard let start = body.firstRange(of: text)?.upperBound,
                body.starts(with: Array(#"{"apns_worker":1,"#.utf8))
            else { return body }
            return Array(body[start..<(body.count - 1)])
        }
    }
}
