import TestSupport
import Testing

@testable import Redis

@Suite("A Redis URL")
struct RedisEndpointTests {
    private static func at(_ host: String, _ port: Int = 6379, _ access: RedisAccess = RedisAccess()) -> RedisEndpoint {
        RedisEndpoint(location: .host(host, port: port), access: access)
    }

    @Test(
        "is parsed",
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
    func parsing(url: String, expected: RedisEndpoint) throws { #expect(try RedisEndpoint(url: url) == expected) }

    @Test(
        "is refused with the reason",
        arguments: [
            ("", RedisURLError.scheme), ("cache:6379", .scheme), ("http://cache", .scheme),
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
        ])
    func refusal(url: String, expected: RedisURLError) { #expect(throws: expected) { try RedisEndpoint(url: url) } }

    @Test("with an unencoded password is refused without repeating any of it", arguments: ["/", "?", "#"])
    func leak(separator: String) {
        do {
            let endpoint = try RedisEndpoint(url: "redis://:sec\(separator)ret@cache:6379/0")
            Issue.record("taken for \(endpoint)")
        } catch {
            #expect(!"\(error)".contains("sec") && !"\(error)".contains("ret@"))
            #expect("\(error)".contains("percent-encode"))
        }
    }

    @Test(
        "shows everything but the password",
        arguments: [
            ("rediss://me:hunter2@cache/2", "rediss://me:***@cache:6379/2"),
            ("redis://:hunter2@[::1]", "redis://:***@[::1]:6379"),
            ("unix://me:hunter2@/run/r?db=1", "unix://me:***@/run/r?db=1"),
        ])
    func description(url: String, shown: String) throws {
        let endpoint = try RedisEndpoint(url: url)
        #expect(endpoint.description == shown)
        for text in try shownTexts(of: endpoint) + shownTexts(of: [endpoint]) { #expect(!text.contains("hunter2")) }
    }
}
