import TestSupport
import Testing

@testable import Redis

@Suite("A Redis URL of several servers")
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

    @Test("of one server is unchanged", arguments: ["redis://:p@c:7/2", "unix:///run/r?db=1"])
    func single(url: String) throws { #expect(try RedisTopology(url: url) == .single(RedisEndpoint(url: url))) }

    @Test("reads a password from a file, for a user without a password or none")
    func passwordFile() throws {
        let both = RedisEndpoint(location: .host("c", port: 6379), access: RedisAccess(user: "me", passwordFile: "/p"))
        #expect(try RedisEndpoint(url: "redis://me@c?password_file=/p") == both)
        #expect(try RedisEndpoint(url: "redis://me:@c?password_file=/p") == both)
        #expect(
            try RedisEndpoint(url: "unix:///r?db=2&password_file=/p")
                == RedisEndpoint(location: .unixSocket("/r"), access: RedisAccess(passwordFile: "/p", database: 2)))
    }

    @Test(
        "is refused with the reason",
        arguments: [
            ("redis+sentinel://s1", RedisURLError.sentinelMaster), ("redis+sentinel://s1/0", .sentinelMaster),
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
        ])
    func refusal(url: String, expected: RedisURLError) { #expect(throws: expected) { try RedisTopology(url: url) } }

    @Test(
        "shows everything but the passwords",
        arguments: [
            (
                "rediss+sentinel://me:hunter2@a,b:1/2?master=m&sentinel_password=hunter2",
                "rediss+sentinel://me:***@a:26379,b:1/2?master=m"
            ),
            ("redis+cluster://:hunter2@a", "redis+cluster://:***@a:6379"),
            ("redis://me@a?password_file=/run/p", "redis://me:***@a:6379?password_file=/run/p"),
        ])
    func description(url: String, shown: String) throws {
        let topology = try RedisTopology(url: url)
        #expect(topology.description == shown)
        var texts = try shownTexts(of: topology) + shownTexts(of: [topology])
        if case .sentinel(let sentinel) = topology { texts += try shownTexts(of: sentinel) }
        if case .cluster(let cluster) = topology { texts += try shownTexts(of: cluster) }
        for text in texts { #expect(!text.contains("hunter2")) }
    }
}
