import Foundation
import NIOCore
import Redis
import TestSupport
import Testing

@Suite("A client against a real server", .timeLimit(.minutes(10)))
struct RedisClientTests {
    @Test("answers 10,000 pipelined commands in order")
    func pipelining() async throws {
        let server = try RedisServer()
        try await withClient(server.url) { client in
            let answers: [Int?] = try await client.eventLoop.flatSubmit {
                let promise = client.eventLoop.makePromise(of: [Int?].self)
                let collected = NIOLoopBoundBox<[Int?]>([], eventLoop: client.eventLoop)
                for number in 0..<10_000 {
                    client.send(RedisCommand("ECHO", String(number))) { result in
                        collected.value.append((try? result.get()).flatMap { $0.root.string }.flatMap { Int($0) })
                        if number == 9_999 { promise.succeed(collected.value) }
                    }
                }
                return promise.futureResult
            }.get()
            #expect(answers == Array(0..<10_000))
        }
    }

    @Test("carries 16 MiB of any bytes, also in a key, there and back, and hiredis' own client reads them")
    func binary() async throws {
        let server = try RedisServer()
        let key = (0...255).map { UInt8($0) } + Array("\r\n$5\r\n".utf8)
        var random = SeededGenerator(seed: 1)
        let value = (0..<(16 << 20)).map { _ in UInt8(truncatingIfNeeded: random.next()) }
        try await withClient(server.url) { client in
            var set = RedisCommand("SET", expecting: 2, bytes: key.count + value.count)
            set.append(key)
            set.append(ByteBuffer(bytes: value))
            _ = try await client.call(set)
            var get = RedisCommand("MGET", "missing")
            get.append(key)
            let reply = try await client.call(get)
            #expect(reply.root[0].isNull)
            let isSame = reply.root[1].bytes == ByteBuffer(bytes: value)
            #expect(isSame)
        }
        let isStored = try server.connect().run([Array("GET".utf8), key]) == .bytes(value)
        #expect(isStored)
    }

    @Test("the kernel probes a connection that is silent for 15 seconds")
    func keepalive() async throws {
        let server = try RedisServer()
        try await withClient(server.url) { client in
            _ = try await client.call(RedisCommand("PING"))
            let remote = ":" + String(format: "%04X", server.port)
            // sl, local_address, rem_address, st, tx_queue:rx_queue, tr:tm->when in hundredths of a second, …
            let file = try FileHandle(forReadingFrom: URL(filePath: "/proc/net/tcp"))
            let table = String(decoding: try #require(try file.readToEnd()), as: UTF8.self)
            let rows = table.split(separator: "\n").map { $0.split(separator: " ") }
            let timers = rows.filter { $0.count > 5 && $0[2].hasSuffix(remote) && $0[3] == "01" }.map { String($0[5]) }
            let left: [Int] = timers.compactMap { $0.hasPrefix("02:") ? Int($0.dropFirst(3), radix: 16) : nil }
            #expect(left.count == 1 && left.allSatisfy { $0 <= 1500 }, "\(timers)")
        }
    }

    @Test("reaches a server by its socket, in the configured database, if that exists, and under the configured name")
    func socketDatabaseName() async throws {
        let server = try RedisServer(arguments: ["--unixsocket", "redis.sock"])
        var named = RedisClientConfiguration()
        named.clientName = "apns worker"
        try await withClient("unix://\(server.directory.path)/redis.sock?db=3", named) { client in
            _ = try await client.call(RedisCommand("SET", "here", "yes"))
            let name = try await client.call(RedisCommand("CLIENT", "GETNAME"))
            #expect(name.root.string == "apns-worker")
        }
        let connection = try server.connect()
        try connection.run("SELECT", "3")
        #expect(try connection.run("GET", "here") == "yes")
        try await withClient(server.url + "/3") { client in
            let reply = try await client.call(RedisCommand("GET", "here"))
            #expect(reply.root.string == "yes")
        }
        let error = try await failure(of: server.url + "/99")
        #expect(error.description.contains("DB index is out of range: check the database"))
    }

    @Test("logs in as a user of the ACL")
    func user() async throws {
        let server = try RedisServer(password: "default-password")
        try server.run("ACL", "SETUSER", "worker", "on", ">p@ss/word", "~*", "&*", "+@all")
        try await withClient("redis://worker:p%40ss%2Fword@127.0.0.1:\(server.port)") { client in
            let reply = try await client.call(RedisCommand("ACL", "WHOAMI"))
            #expect(reply.root.string == "worker")
        }
        try await withClient(server.url) { client in
            let reply = try await client.call(RedisCommand("ACL", "WHOAMI"))
            #expect(reply.root.string == "default")
        }
    }

    @Test(
        "reports that the login was refused, and why",
        arguments: [
            (":hunter2@", "right", "WRONGPASS"), ("nobody:hunter2@", "right", "WRONGPASS"), ("", "right", "NOAUTH"),
            (":hunter2@", nil, "without any password"),
        ] as [(String, String?, String)])
    func wrongPassword(credentials: String, password: String?, says: String) async throws {
        let server = try RedisServer(password: password)
        try await withClient("redis://\(credentials)127.0.0.1:\(server.port)", waiting: false) { client in
            let error = await #expect(throws: RedisError.self) {
                try await client.waitUntilReady(timeout: .minutes(3))
            }
            guard case .authentication = error else {
                Issue.record("\(String(describing: error))")
                return
            }
            let text = error?.description ?? ""
            #expect(text.contains(says) && text.contains("127.0.0.1:\(server.port)") && !text.contains("hunter2"))
            for text in try shownTexts(of: client) { #expect(!text.contains("hunter2")) }
        }
    }

    @Test("fails unanswered commands when it is closed, and all later ones")
    func close() async throws {
        let server = try RedisServer()
        try await withClient(server.url) { client in
            let waiting = Task { try await client.call(RedisCommand("BLPOP", "nothing", "0"), deadline: .minutes(1)) }
            try await eventually { try server.run("INFO", "clients").text?.contains("blocked_clients:1") == true }
            try await client.close().get()
            let error = await #expect(throws: RedisError.self) { _ = try await waiting.value }
            #expect(error?.mayHaveBeenExecuted == true)
            let later = await #expect(throws: RedisError.self) { _ = try await client.call(RedisCommand("PING")) }
            #expect(later?.description.contains("the client was closed") == true)
        }
        try await eventually { try server.run("INFO", "clients").text?.contains("connected_clients:1\r\n") == true }
    }
}
