import NIOCore
import PushQueue
import QueueTestSupport
import Redis
import TestSupport
import Testing

@testable import Operations

@Suite("Reading and removing invalid tokens")
struct InvalidTokenClientTests {
    private func token(_ number: Int) -> InvalidToken {
        InvalidToken(
            token: ByteBuffer(string: String(number, radix: 16)), at: Int64(number), reason: "Unregistered",
            topic: ByteBuffer(string: "t\(number % 2)"), environment: "sandbox", source: .apns)
    }

    @Test("all are read in parts, with their details or without")
    func scan() async throws {
        try await withQueue { queue in
            try await queue.addInvalidTokens((0..<3000).map(token))
            try queue.redis.run("SADD", queue.sharedKeys.invalidTokens, "unknown")
            try queue.storedInvalidTokens().write([1, 2], for: "1")
            try await withInvalidTokens(queue.client.topology, queue.sharedKeys) { inspector in
                for withDetails in [true, false] {
                    var (cursor, pages): (String?, [InvalidTokenSet.Page]) = (nil, [])
                    repeat {
                        let page = try await inspector.scan(after: cursor, withDetails: withDetails)
                        pages.append(page)
                        cursor = page.cursor
                    } while cursor != nil
                    let listed = pages.flatMap(\.tokens)
                    #expect(pages.count > 2)
                    #expect(Set(listed.map(\.token)).count == 3001)
                    #expect(listed.filter { $0.details.at != nil }.count == (withDetails ? 2999 : 0))
                    guard withDetails else { continue }
                    let one = try #require(listed.first { $0.token.text == "ff" })
                    #expect(one.details.topic?.text == "t1" && one.details.reason?.text == "Unregistered")
                    #expect(one.details.source?.text == "apns" && one.details.environment?.text == "sandbox")
                }
            }
        }
    }

    @Test("removed tokens and their details are deleted, and counted once")
    func withdraw() async throws {
        try await withQueue { queue in
            try await queue.addInvalidTokens((0..<10).map(token))
            try await withInvalidTokens(queue.client.topology, queue.sharedKeys) { inspector in
                let some = ["1", "2", "3", "x"].map { ByteBuffer(string: $0) }
                let counts = [
                    try await inspector.withdraw(some), try await inspector.withdraw(some),
                    try await inspector.withdraw([]),
                ]
                #expect(counts == [3, 0, 0])
            }
            #expect(try queue.redis.run("SCARD", queue.sharedKeys.invalidTokens + ":sandbox") == 7)
            #expect(try queue.storedInvalidTokens().detailsCount() == 7)
        }
    }
}
