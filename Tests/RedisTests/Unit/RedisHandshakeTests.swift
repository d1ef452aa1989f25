import NIOCore
import Testing

@testable import Redis

@Suite("Commands before the first")
struct RedisHandshakeTests {
    let endpoint = RedisEndpoint(
        location: .host("cache", port: 6379), access: RedisAccess(user: "me", password: "hunter2", database: 3))

    @Test("are login, database, name and a PING, each only if needed")
    func steps() {
        let all = RedisHandshake(endpoint: endpoint, clientName: "apns worker\n1")
        #expect(all.commands.map(\.step) == [.authenticate, .select, .setName, .ping])
        var bytes = ByteBuffer()
        for (_, command) in all.commands { #expect(throws: Never.self) { try command.encode(into: &bytes) } }
        let text = String(buffer: bytes)
        #expect(text.hasPrefix("*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$7\r\nhunter2\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n"))
        #expect(text.contains("apns-worker-1"))
        let none = RedisHandshake(endpoint: RedisEndpoint(location: .unixSocket("/r")), clientName: nil)
        #expect(none.commands.map(\.step) == [.ping])
    }

    @Test(
        "fail with the server's reason",
        arguments: [
            (0, "WRONGPASS invalid username-password pair or user is disabled.", "refused the login"),
            (0, "ERR AUTH <password> called without any password configured", "refused the login"),
            (0, "ERR max number of clients reached", "cannot connect"),
            (1, "NOAUTH Authentication required.", "refused the login"),
            (1, "ERR DB index is out of range", "check the database"),
            (3, "LOADING Redis is loading the dataset in memory", "cannot connect"),
            (3, "DENIED Redis is running in protected mode", "cannot connect"),
        ])
    func refusals(step: Int, text: String, says: String) throws {
        var handshake = RedisHandshake(endpoint: endpoint, clientName: "x")
        for _ in 0..<step { #expect(handshake.receive(.success(status)) == .proceed) }
        guard case .failed(let error) = handshake.receive(.failure(.server(RedisServerError(text: text)))) else {
            Issue.record("\(text) was taken for success")
            return
        }
        #expect(error.description.contains(says))
        #expect(error.description.contains(text) && error.description.contains("cache:6379"))
        #expect(!error.description.contains("hunter2"))
    }

    @Test("omit the name and PING if an ACL forbids them")
    func courtesies() {
        var handshake = RedisHandshake(endpoint: endpoint, clientName: "x")
        _ = handshake.receive(.success(status))
        _ = handshake.receive(.success(status))
        let forbidden = RedisError.server(RedisServerError(text: "NOPERM this user has no permissions"))
        #expect(handshake.receive(.failure(forbidden)) == .proceed)
        #expect(handshake.receive(.failure(forbidden)) == .ready)
    }

    @Test("omit PING if the server cannot write to its disk: it can be read")
    func misconfigured() {
        var handshake = RedisHandshake(endpoint: RedisEndpoint(location: .unixSocket("/r")), clientName: nil)
        #expect(handshake.receive(.failure(.server(RedisServerError(text: "MISCONF Errors writing")))) == .ready)
    }

    private var status: RESPReply {
        var builder = RESPReplyBuilder()
        Array("OK".utf8).withUnsafeBytes { builder.add(.status, bytes: $0) }
        return builder.finish()
    }
}
