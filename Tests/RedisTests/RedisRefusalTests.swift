import TestSupport
import Testing

@testable import Redis

@Suite("An error that points to another server")
struct RedisRefusalTests {
    static let sender = RedisLocation.host("10.0.0.1", port: 6379)
    static let single = RedisTopology.single(RedisEndpoint(location: sender))
    static let sentinel = RedisTopology.sentinel(RedisTopology.Sentinel(sentinels: [sender], master: "m"))
    static let cluster = RedisTopology.cluster(RedisTopology.Cluster(nodes: [sender]))

    @Test(
        "in a Cluster names the owner of the slot, or asks to find it",
        arguments: [
            ("MOVED 7 10.0.0.2:6380", RedisRefusal.moved(.host("10.0.0.2", port: 6380))),
            ("MOVED 7 fe80::2:6380", .moved(.host("fe80::2", port: 6380))),
            ("MOVED 7 :6380", .moved(.host("10.0.0.1", port: 6380))),
            ("MOVED 7 ?:6380", .wrongServer), ("MOVED 7 a:0", .wrongServer), ("MOVED 7", .wrongServer),
            ("MOVED x a:1", .wrongServer), ("MOVED 16384 a:1", .wrongServer),
            ("MOVED 8 10.0.0.2:6380", .none), ("ASK 8 10.0.0.2:6380", .none),
            ("ASK 7 redis-2.net:1", .ask(.host("redis-2.net", port: 1))), ("ASK 7", .none),
            ("CLUSTERDOWN The cluster is down", .wrongServer), ("LOADING Redis is loading", .wrongServer),
            ("TRYAGAIN Multiple keys request during rehashing of slot", .none), ("CROSSSLOT Keys", .none),
            ("BUSY Redis is busy running a script", .none), ("ERR MOVED 7 a:1", .none),
            ("UNBLOCKED client unblocked via CLIENT UNBLOCK", .none),
        ])
    func inCluster(text: String, expected: RedisRefusal) { #expect(refusal(text, Self.cluster) == expected) }

    @Test(
        "from a master that became a replica starts a search for another",
        arguments: [single, sentinel, cluster],
        [
            "READONLY You can't write against a read only replica.",
            "ERR Error running script (call to f_1): @user_script:7: @user_script: 7: -READONLY You can't write "
                + "against a read only replica. ",
        ])
    func readOnly(topology: RedisTopology, text: String) { #expect(refusal(text, topology) == .wrongServer) }

    @Test(
        "is understood from a script as well, whatever the server's version",
        arguments: [["--min-replicas-to-write", "1"], ["--replicaof", "127.0.0.1", "1"]])
    func script(arguments: [String]) throws {
        let server = try RedisServer(arguments: arguments)
        // Like a queue's scripts, the script reads before it writes.
        let reply = try server.run("EVAL", "redis.call('TIME') return redis.call('SET', KEYS[1], 1)", "1", "key")
        guard case .error(let text) = reply else {
            Issue.record("the script may write: \(reply)")
            return
        }
        #expect(refusal(text, Self.sentinel) == .wrongServer, "\(text)")
        let error = RedisServerError(text: text)
        #expect(error.message.hasPrefix(error.prefix + " ") && !error.message.hasSuffix(" "), "\(text)")
    }

    @Test("has the place of an error of a script itself, and not of a command in it")
    func placeOfErrors() throws {
        let server = try RedisServer(arguments: ["--maxmemory", "1"])
        func error(_ script: String) throws -> RedisServerError {
            let reply = try server.run("EVAL", script, "1", "key")
            return RedisServerError(text: try #require(reply.text))
        }
        let full = try error("redis.call('TIME') return redis.call('SET', KEYS[1], 1)")
        #expect(full.message == "OOM command not allowed when used memory > 'maxmemory'." && full.prefix == "OOM")
        let direct = try error("return redis.call('SET', KEYS[1], 1)")
        #expect(direct.prefix == "OOM" && direct.message.hasSuffix("'maxmemory'."), "\(direct)")
        #expect(
            "\(RedisError.server(direct))".hasSuffix(
                "'maxmemory': Redis is full: raise its maxmemory, or let workers drain the queues"))
        #expect(try error("return redis.call('GET', KEYS[1]) + nothing").message.contains("user_script:1"))
    }

    @Test("is stripped of a script's digest and line")
    func place() {
        let digest = String(repeating: "0a", count: 20)
        for (text, message) in [
            ("OOM not allowed. script: \(digest), on @user_script:242.", "OOM not allowed."),
            ("OOM not allowed. script: on @user_script:242.", "OOM not allowed."),
            ("ERR user_script:1: x script: \(digest), on @user_script:1.", "ERR user_script:1: x"),
            ("ERR no script: \(digest)", "ERR no script: \(digest)"),
            ("ERR script: x script: y, on @user_script:1.", "ERR script: x script: y, on @user_script:1."),
        ] { #expect(RedisServerError(text: text).message == message) }
    }

    @Test("is not detected in the output of a script's commands")
    func scriptError() {
        let text = "ERR Error running script (call to f_1): @user_script:7: WRONGTYPE Operation against a key "
        #expect(RedisServerError(text: text).message == text)
        #expect(refusal(text, Self.sentinel) == .none)
        #expect(RedisServerError(text: "ERR Error running script: -").message == "ERR Error running script: -")
    }

    @Test("is returned to the caller if there is no other server")
    func others() {
        for text in ["MOVED 7 a:1", "NOSCRIPT No matching script"] {
            #expect(refusal(text, Self.single) == .none && refusal(text, Self.sentinel) == .none, "\(text)")
        }
        for text in ["LOADING Redis is loading", "MASTERDOWN Link with MASTER is down", "NOREPLICAS Not enough good"] {
            #expect(refusal(text, Self.single) == .none && refusal(text, Self.sentinel) == .wrongServer, "\(text)")
        }
    }

    private func refusal(_ text: String, _ topology: RedisTopology) -> RedisRefusal {
        RedisRefusal(RedisServerError(text: text), topology: topology, slot: 7, sender: Self.sender)
    }
}
