import TestSupport
import Testing

@testable import Redis

@Suite("A Redis URL")
struct RedisTopologyTests {
    static let sentinels: [(String, RedisTopology.Sentinel)] = [
        (
            "redis+sentinel://s1,s2:7,[::1]/?master=mymaster",
            RedisTopology.Sentinel(
                sentinels: [.host("s1", port: 26379), .host("s2", port: 7), .host("::1", port: 26379)],
                master: "mymaster")
        ),
        (
            "rediss+sentinel://me:p%2Cw@s1,s1/3?master=a%20b&sentinel_user=su&sentinel_password=sp",
            RedisTopology.Sentinel(
                sentinels: [.host("s1", port: 26379)], master: "a b",
                access: RedisAccess(user: "me", password: "p,w", database: 3, usesTLS: true),
                sentinelAccess: RedisAccess(user: "su", password: "sp", usesTLS: true))
        ),
        (
            "redis+sentinel://me@s1?master=m&password_file=/run/p&sentinel_password_file=/run/s",
            RedisTopology.Sentinel(
                sentinels: [.host("s1", port: 26379)], master: "m",
                access: RedisAccess(user: "me", passwordFile: "/run/p"),
                sentinelAccess: RedisAccess(passwordFile: "/run/s"))
        ),
    ]

    @Test("names Sentinels and their master", arguments: sentinels)
    func sentinel(url: String, expected: RedisTopology.Sentinel) throws {
        #expect(try RedisTopology(url: url) == .sentinel(expected))
    }

    static let clusters: [(String, RedisTopology.Cluster)] = [
        ("redis+cluster://c", RedisTopology.Cluster(nodes: [.host("c", port: 6379)])),
        ("REDIS+Cluster://a:1,b:2/0", RedisTopology.Cluster(nodes: [.host("a", port: 1), .host("b", port: 2)])),
        (
            "rediss+cluster://:pw@a,b/",
            RedisTopology.Cluster(
                nodes: [.host("a", port: 6379), .host("b", port: 6379)],
                access: RedisAccess(password: "pw", usesTLS: true))
        ),
        (
            "redis+cluster://a?password_file=/run/a%20b",
            RedisTopology.Cluster(nodes: [.host("a", port: 6379)], access: RedisAccess(passwordFile: "/run/a b"))
        ),
    ]

    @Test("names nodes of a Cluster", arguments: clusters)
    func cluster(url: String, expected: RedisTopology.Cluster) throws {
        #expect(try RedisTopology(url: url) == .cluster(expected))
    }

    private static func at(_ host: String, _ port: Int = 6379, _ access: RedisAccess = RedisAccess()) -> RedisEndpoint {
        RedisEndpoint(location: .host(host, port: port), access: access)
    }

    @Test(
        "names one server",
        arguments: [
            ("redis://cache", at("cache")), ("redis://cache:7000/3", at("cache", 7000, RedisAccess(database: 3))),
            ("REDIS://cache/", at("cache")), ("rediss://cache:1", at("cache", 1, RedisAccess(usesTLS: true))),
            ("redis://:pw@10.0.0.1:65535", at("10.0.0.1", 65535, RedisAccess(password: "pw"))),
            ("redis://me:pw@c", at("c", 6379, RedisAccess(user: "me", password: "pw"))),
            ("redis://me:@c", at("c", 6379, RedisAccess(user: "me", password: ""))),
            ("redis://:@c", at("c")), ("redis://@c", at("c")),
            ("redis://a%40b:p%2F%3a%C3%A9@c", at("c", 6379, RedisAccess(user: "a@b", password: "p/:é"))),
            ("redis://:a:b@c@d", at("d", 6379, RedisAccess(password: "a:b@c"))), ("redis://[::1]", at("::1")),
            ("redis://:p@[fe80::1]:7/2", at("fe80::1", 7, RedisAccess(password: "p", database: 2))),
            ("redis://redis_1.push-net:6379", at("redis_1.push-net")),
            ("unix:///run/redis.sock", RedisEndpoint(location: .unixSocket("/run/redis.sock"))),
            (
                "redis+unix://u:p@/run/a%20b?db=4",
                RedisEndpoint(
                    location: .unixSocket("/run/a b"), access: RedisAccess(user: "u", password: "p", database: 4))
            ),
        ])
    func single(url: String, expected: RedisEndpoint) throws {
        #expect(try RedisTopology(url: url) == .single(expected))
    }

    @Test("reads a password from a file, for a user without a password or none")
    func passwordFile() throws {
        let both = RedisEndpoint(location: .host("c", port: 6379), access: RedisAccess(user: "me", passwordFile: "/p"))
        #expect(try RedisTopology(url: "redis://me@c?password_file=/p") == .single(both))
        #expect(try RedisTopology(url: "redis://me:@c?password_file=/p") == .single(both))
        let socket = RedisEndpoint(location: .unixSocket("/r"), access: RedisAccess(passwordFile: "/p", database: 2))
        #expect(try RedisTopology(url: "unix:///r?db=2&password_file=/p") == .single(socket))
    }

    static let refusals: [(String, RedisURLError)] = [
        ("redis+sentinel://s1", .sentinelMaster), ("redis+sentinel://s1/0", .sentinelMaster),
        ("redis+sentinel://s1?master=", .query), ("redis+sentinel://s1?master=a&master=b", .query),
        ("redis+sentinel://s1?master=a&", .query), ("redis+sentinel://s1?slave=a", .query),
        ("redis+sentinel://?master=a", .host), ("redis+sentinel://a,,b?master=a", .host),
        ("redis+sentinel://a:x?master=a", .port), ("redis+sentinel://a/b?master=a", .database),
        ("redis+sentinel://me@a?master=a", .userWithoutPassword),
        ("redis+sentinel://a?master=a&sentinel_user=u", .sentinelUser),
        ("redis+sentinel://a?master=a&sentinel_password=u&sentinel_password_file=/f", .passwordTwice),
        ("redis+sentinel://:p@a?master=a&password_file=/f", .passwordTwice),
        ("redis+cluster://a/1", .clusterDatabase), ("redis+cluster://a,b:0", .port),
        ("redis+cluster://a,", .host), ("redis+cluster://a?master=m", .query), ("redis+cluster://a#b", .query),
        ("redis+sentinels://a", .scheme), ("redis://a,b", .host),
        ("", .scheme), ("cache:6379", .scheme), ("http://cache", .scheme),
        ("redis://", .host), ("redis:///1", .host), ("redis://:6379", .host), ("redis://[::1", .host),
        ("redis://[::1]x", .host), ("redis://[zz]", .host), ("redis://a b", .host), ("redis://a\r\nb", .host),
        ("redis://c:", .port), ("redis://c:0", .port), ("redis://c:65536", .port), ("redis://c:+1", .port),
        ("redis://c:99999999999999999999", .port), ("redis://[::1]:x", .port),
        ("redis://c/x", .database), ("redis://c/-1", .database), ("redis://c/1/2", .database),
        ("redis://secret@c", .userWithoutPassword),
        ("redis://:%zz@c", .percentEncoding), ("redis://:%4@c", .percentEncoding),
        ("redis://:%ff@c", .percentEncoding), ("redis://:%+1@c", .percentEncoding),
        ("unix://relative", .socketPath), ("unix:///", .socketPath), ("unix://host/path", .socketPath),
        ("redis://c?db=1", .query), ("redis://c#1", .query), ("unix:///a?x=1", .query),
    ]

    @Test("is refused with the reason", arguments: refusals)
    func refusal(url: String, expected: RedisURLError) { #expect(throws: expected) { try RedisTopology(url: url) } }

    @Test("with an unencoded password is refused without repeating any of it", arguments: ["/", "?", "#"])
    func leak(separator: String) {
        do {
            let topology = try RedisTopology(url: "redis://:sec\(separator)ret@cache:6379/0")
            Issue.record("taken for \(topology)")
        } catch {
            #expect(!"\(error)".contains("sec") && !"\(error)".contains("ret@"))
            #expect("\(error)".contains("percent-encode"))
        }
    }

    @Test(
        "shows everything but the passwords",
        arguments: [
            (
                "rediss+sentinel://me:hunter2@a,b:1/2?master=m&sentinel_password=hunter2",
                "rediss+sentinel://me:***@a:26379,b:1/2?master=m"
            ),
            ("redis+cluster://:hunter2@a", "redis+cluster://:***@a:6379"),
            ("redis://me@a?password_file=/run/p", "redis://me:***@a:6379?password_file=/run/p"),
            ("rediss://me:hunter2@cache/2", "rediss://me:***@cache:6379/2"),
            ("redis://:hunter2@[::1]", "redis://:***@[::1]:6379"),
            ("unix://me:hunter2@/run/r?db=1", "unix://me:***@/run/r?db=1"),
        ])
    func description(url: String, shown: String) throws {
        let topology = try RedisTopology(url: url)
        #expect(topology.description == shown)
        var texts = try shownTexts(of: topology) + shownTexts(of: [topology])
        if case .single(let endpoint) = topology { texts += try shownTexts(of: endpoint) }
        if case .sentinel(let sentinel) = topology { texts += try shownTexts(of: sentinel) }
        if case .cluster(let cluster) = topology { texts += try shownTexts(of: cluster) }
        for text in texts { #expect(!text.contains("hunter2")) }
    }
}
