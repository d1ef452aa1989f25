import Redis
import Testing

@Suite("A Redis URL")
struct RedisEndpointTests {
    @Test(
        "is parsed",
        arguments: [
            ("redis://cache", RedisEndpoint(location: .host("cache", port: 6379))),
            (
                "redis://cache:7000/3",
                RedisEndpoint(location: .host("cache", port: 7000), access: RedisAccess(database: 3))
            ),
            ("REDIS://cache/", RedisEndpoint(location: .host("cache", port: 6379))),
            ("rediss://cache:1", RedisEndpoint(location: .host("cache", port: 1), access: RedisAccess(usesTLS: true))),
            (
                "redis://:pw@10.0.0.1:65535",
                RedisEndpoint(location: .host("10.0.0.1", port: 65535), access: RedisAccess(password: "pw"))
            ),
            (
                "redis://me:pw@c",
                RedisEndpoint(location: .host("c", port: 6379), access: RedisAccess(user: "me", password: "pw"))
            ),
            (
                "redis://me:@c",
                RedisEndpoint(location: .host("c", port: 6379), access: RedisAccess(user: "me", password: ""))
            ),
            ("redis://:@c", RedisEndpoint(location: .host("c", port: 6379))),
            ("redis://@c", RedisEndpoint(location: .host("c", port: 6379))),
            (
                "redis://a%40b:p%2F%3a%C3%A9@c",
                RedisEndpoint(location: .host("c", port: 6379), access: RedisAccess(user: "a@b", password: "p/:é"))
            ),
            (
                "redis://:a:b@c@d",
                RedisEndpoint(location: .host("d", port: 6379), access: RedisAccess(password: "a:b@c"))
            ),
            ("redis://[::1]", RedisEndpoint(location: .host("::1", port: 6379))),
            (
                "redis://:p@[fe80::1]:7/2",
                RedisEndpoint(location: .host("fe80::1", port: 7), access: RedisAccess(password: "p", database: 2))
            ),
            ("redis://redis_1.push-net:6379", RedisEndpoint(location: .host("redis_1.push-net", port: 6379))),
            ("unix:///run/redis.sock", RedisEndpoint(location: .unixSocket("/run/redis.sock"))),
            (
                "redis+unix://u:p@/run/a%20b?db=4",
                RedisEndpoint(
                    location: .unixSocket("/run/a b"), access: RedisAccess(user: "u", password: "p", database: 4))
            ),
        ])
    func parsing(url: String, expected: RedisEndpoint) throws {
        #expect(try RedisEndpoint(url: url) == expected)
    }

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
    func refusal(url: String, expected: RedisURLError) {
        #expect(throws: expected) { try RedisEndpoint(url: url) }
    }

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
        var dumped = ""
        dump(endpoint, to: &dumped)
        for text in [dumped, String(reflecting: endpoint), "\([endpoint])", "\(Mirror(reflecting: endpoint).children)"]
        {
            #expect(!text.contains("hunter2"))
        }
    }
}
