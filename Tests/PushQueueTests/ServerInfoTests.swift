import PushQueue
import QueueTestSupport
import TestSupport
import Testing

@Suite("A Redis server's report on itself")
struct ServerInfoTests {
    private static let text = """
        # Server\r
        redis_version:7.0.15\r
        executable:/usr/bin/redis:server\r
        \r
        # Memory\r
        used_memory:22439526\r
        maxmemory:21495808\r
        maxmemory_policy:noeviction\r
        mem_not_counted_for_evict:100\r
        # Persistence\r
        aof_enabled:0\r
        # Replication\r
        role:master\r
        connected_slaves:2\r
        min_slaves_good_slaves:1\r

        """

    @Test("is read from INFO")
    func fields() {
        let info = ServerInfo(Self.text)
        #expect(info.version == "7.0.15" && info.compatibleVersion == [7, 0, 15])
        #expect(info.usedMemory == 22_439_426 && info.memoryLimit == 21_495_808)
        #expect(info.evictionPolicy == "noeviction" && !info.evicts)
        #expect(info.keepsAppendOnlyFile == false)
        #expect(info.role == .master && info.replicas == 2 && info.replicasInStep == 1)
        #expect(info.memoryInWords == "21.3 of 20.5 MiB")
    }

    @Test("is unknown if it is missing, one field or all")
    func missing() {
        let nothing = ServerInfo("")
        #expect(nothing == ServerInfo("# Server\r\n\r\n") && nothing == ServerInfo("ERR what?"))
        #expect(nothing.version == nil && nothing.compatibleVersion.isEmpty && nothing.usedMemory == nil)
        #expect(nothing.keepsAppendOnlyFile == nil && nothing.role == nil && nothing.replicas == nil)
        #expect(nothing.memoryShare == nil && nothing.memoryInWords == nil && !nothing.evicts)
        for line in Self.text.split(whereSeparator: \.isNewline) where line.contains(":") && !line.hasPrefix("exec") {
            #expect(ServerInfo(Self.text.replacing(line, with: "")) != ServerInfo(Self.text), "\(line)")
        }
    }

    @Test(
        "an invalid or negative number is unknown",
        arguments: ["", "-1", "1.5", "0x10", "1e9", "99999999999999999999", " 1", "1 ", "nan", "\u{0}"])
    func numbers(value: String) {
        let info = ServerInfo(
            "used_memory:\(value)\nmaxmemory:\(value)\naof_enabled:\(value)\nconnected_slaves:\(value)")
        #expect(info.usedMemory == nil && info.memoryLimit == nil)
        #expect(info.keepsAppendOnlyFile == nil && info.replicas == nil)
    }

    @Test("texts are made printable, and are bounded")
    func hostile() {
        let long = String(repeating: "x", count: 100_000)
        let info = ServerInfo("redis_version:\u{1B}[31m7.0\u{9B}\nmaxmemory_policy:\(long)\nrole:king\nmaxmemory:1")
        #expect(info.version == "[31m7.0" && info.evictionPolicy?.count == 100 && info.role == nil && info.evicts)
        #expect(ServerInfo("redis_version:\nvalkey_version:8.0.1").version == "Valkey 8.0.1")
    }

    @Test("buffers that do not count against the limit are not counted, however large they are reported to be")
    func notCounted() {
        #expect(ServerInfo("used_memory:100\nmem_not_counted_for_evict:40").usedMemory == 60)
        #expect(ServerInfo("used_memory:100\nmem_not_counted_for_evict:400").usedMemory == 0)
    }

    @Test(
        "memory is shown in the units of Redis' settings",
        arguments: [
            ("used_memory:1023\nmaxmemory:1", "0.9 of 0.0 KiB"), ("used_memory:900000", "878.9 KiB"),
            ("used_memory:900000\nmaxmemory:0", "878.9 KiB"), ("used_memory:52428800", "50.0 MiB"),
            ("used_memory:52428800\nmaxmemory:17179869184", "0.0 of 16.0 GiB"),
            ("used_memory:9223372036854775807\nmaxmemory:9223372036854775807", "8589934591.9 of 8589934591.9 GiB"),
        ])
    func words(text: String, expected: String) { #expect(ServerInfo(text).memoryInWords == expected) }

    @Test("a real server reports all of it")
    func real() throws {
        let server = try RedisServer(arguments: ["--maxmemory", "20mb", "--min-replicas-to-write", "1"])
        let info = ServerInfo(try #require(server.run("INFO").text))
        #expect(info.version != nil && info.compatibleVersion.count >= 2)
        #expect(info.usedMemory ?? 0 > 100_000 && info.memoryLimit == 20 << 20 && info.memoryShare ?? 0 > 0)
        #expect(info.evictionPolicy == "noeviction" && info.keepsAppendOnlyFile == false)
        #expect(info.role == .master && info.replicas == 0 && info.replicasInStep == 0)
    }
}
