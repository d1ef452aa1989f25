import Logging
import NIOCore
import NIOPosix
import Redis
import TestSupport
import Testing

@Suite("A client against a real server")
struct RedisClientTests {
    @Test("sends a command and gets its answer")
    func call() async throws {
        let server = try RedisServer()
        try await withClient(server.url) { client in
            let set = try await client.call(RedisCommand("SET", "a", "1"))
            #expect(set.root.string == "OK")
            let increased = try await client.call(RedisCommand("INCR", "a"))
            #expect(increased.root.integer == 2)
        }
        #expect(try server.run("GET", "a") == "2")
    }
}
