import Foundation
import NIOCore
import NIOPosix
import Redis
import Synchronization
import TLS
import TestSupport
import Testing

@Suite("A client over TLS", .timeLimit(.minutes(10)), .enabled(if: RedisServer.hasTLS))
struct RedisTLSTests {
    let server: RedisServer
    let port: Int

    init() throws {
        server = try RedisServer(password: "hunter2", tls: true)
        port = try #require(server.tlsPort)
    }

    @Test("logs in and carries large values, when the server's authority is trusted")
    func trusted() async throws {
        let value = ByteBuffer(repeating: 0x61, count: 1 << 20)
        try await withClient("rediss://:hunter2@localhost:\(port)/1", trusting("ca.pem")) { client in
            var set = RedisCommand("SET", "large")
            set.append(value)
            _ = try await client.call(set)
            let reply = try await client.call(RedisCommand("GET", "large"))
            #expect(reply.root.bytes == value)
        }
    }

    @Test("refuses a server whose authority it does not trust, and reports that", arguments: [nil, "other-ca.pem"])
    func untrusted(authority: String?) async throws {
        let configuration = try authority.map { try trusting($0) } ?? RedisClientConfiguration()
        let error = try await failure(of: "rediss://:hunter2@localhost:\(port)", configuration)
        guard case .connect(_, let reason) = error else {
            Issue.record("\(String(describing: error))")
            return
        }
        #expect(reason.contains("not trusted"))
    }

    @Test("reports if only one side uses TLS")
    func mixed() async throws {
        let plain = try await failure(of: "redis://:hunter2@127.0.0.1:\(port)")
        #expect(plain.description.contains("use rediss://"))
        var impatient = try trusting("ca.pem")
        impatient.connectTimeout = .milliseconds(300)
        let encrypted = try await failure(of: "rediss://127.0.0.1:\(server.port)", impatient)
        #expect(encrypted.description.contains("use redis://"))
    }

    @Test("finds the master over TLS by Sentinels over TLS, and follows a failover")
    func sentinels() async throws {
        let set = try await RedisSentinelSet(password: "server", sentinelPassword: "sentinel", tls: true)
        try await withClient(set.url, trusting("ca.pem")) { client in
            _ = try await client.call(RedisCommand("SET", "a", "1"))
            let old = try set.master()
            try await set.failOver()
            try await eventually {
                try await client.eventLoop.submit {
                    client.isReady && client.server?.address.hasSuffix("\(old.tlsPort ?? 0)") == false
                }.get()
            }
            _ = try await client.call(RedisCommand("SET", "a", "2"))
            #expect(try set.master().run("GET", "a").text == "2")
        }
        let error = try await failure(of: set.url)
        #expect("\(error)".contains("not trusted"), "\(error)")
    }

    @Test("follows a slot from node to node over TLS")
    func cluster() async throws {
        let (cluster, slot, old, new) = try await clusterAndSlot(password: "node", tls: true)
        try await withClient(cluster.url, trusting("ca.pem"), key: "{queue}") { client in
            _ = try await client.call(RedisCommand("SET", "{queue}", "1"))
            try cluster.migrate(slot: slot, from: old, to: new)
            _ = try await client.call(RedisCommand("SET", "{queue}", "2"))
            #expect(try new.run("GET", "{queue}").text == "2")
            #expect(try await place(of: client) == .host("127.0.0.1", port: new.tlsPort ?? 0))
        }
    }

    @Test("reads certificates and passwords in another thread, because their file system may hang")
    func filesOffTheLoop() async throws {
        let workshop = try OpenSSLWorkshop()
        let certificate = try Array(Data(contentsOf: URL(filePath: TestCertificates.path("ca.pem"))))
        try workshop.write(Array("hunter2".utf8), to: "password")
        try workshop.write(certificate, to: "ca.pem")
        let url = "rediss://localhost:\(port)?password_file=\(workshop.path("password"))"
        let readers = Mutex<[Bool]>([])
        var configuration = RedisClientConfiguration()
        configuration.tls = try Renewable([.file(workshop.path("ca.pem"))]) { contents in
            readers.withLock { $0.append(MultiThreadedEventLoopGroup.currentEventLoop == nil) }
            var tls = TLSClientConfiguration()
            tls.trust = .pem(contents[0])
            return try TLSContext.client(tls)
        }
        try workshop.write(certificate + Array("\n".utf8), to: "ca.pem")
        try await eventually("the changed file is read again") {
            try await withClient(url, configuration) { client in
                _ = try await client.call(RedisCommand("PING"))
            }
            return readers.withLock { $0.count > 1 && $0.dropFirst().allSatisfy(\.self) }
        }
    }

    private func trusting(_ authority: String) throws -> RedisClientConfiguration {
        var tls = TLSClientConfiguration()
        tls.trust = .file(try TestCertificates.path(authority))
        var configuration = RedisClientConfiguration()
        configuration.tls = Renewable(try TLSContext.client(tls))
        return configuration
    }
}
