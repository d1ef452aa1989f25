import TestSupport
import Testing

/// Jobs as a producer would write them.
enum TestJob {
    /// A device token of 64 hex digits.
    static func token(_ prefix: String, _ number: Int) -> String {
        let digits = String(number, radix: 16)
        return prefix + String(repeating: "0", count: 64 - prefix.count - digits.count) + digits
    }

    /// Returns a job for one device.
    /// - Parameter members: additional members, each followed by a comma.
    static func text(_ token: String, _ members: String = "") -> String {
        #"{\#(members)"token":"\#(token)","payload":{"aps":{"alert":"Hello \#(token.suffix(6))"}}}"#
    }

    /// - Parameter bytes: the exact size of the payload.
    static func large(_ token: String, bytes: Int) -> String {
        #"{"token":"\#(token)","payload":\#(payload(bytes: bytes))}"#
    }

    /// Returns a job for many devices.
    /// - Parameter members: additional members, each followed by a comma.
    static func fanOut(_ tokens: [String], _ members: String = "") -> String {
        #"{\#(members)"tokens":["\#(tokens.joined(separator: #"",""#))"],"payload":{"aps":{"alert":"Hello all"}}}"#
    }

    /// Returns numbered jobs. Every second job has an ID.
    static func many(_ count: Int, prefix: String = "", members: String = "") -> [String] {
        (0..<count).map { number in
            text(token(prefix, number), members + (number % 2 == 0 ? #""id":"job-\#(prefix)\#(number)","# : ""))
        }
    }

    /// - Parameter bytes: the exact size.
    static func payload(bytes: Int) -> String {
        let empty = #"{"aps":{"alert":""}}"#
        return #"{"aps":{"alert":"\#(String(repeating: "x", count: bytes - empty.utf8.count))"}}"#
    }
}

extension RedisServer {
    /// Pushes jobs as a producer does.
    func push(_ jobs: [String], queue: String = "default") throws {
        try push(jobs.map { Array($0.utf8) }, queue: queue)
    }

    /// Pushes jobs of any bytes to the queue.
    func push(_ jobs: [[UInt8]], queue: String = "default") throws {
        let connection = try connect()
        for start in stride(from: 0, to: jobs.count, by: 500) {
            let reply = try connection.run(
                [Array("RPUSH".utf8), Array("push:{\(queue)}:jobs".utf8)] + jobs[start..<min(start + 500, jobs.count)])
            try #require(reply.number != nil, "RPUSH was answered with \(reply)")
        }
    }
}
