import NIOCore
import TestSupport
import Testing

@testable import APNS

@Suite("A proxy's URL")
struct HTTPProxyTests {
    private static func proxy(_ host: String, _ port: Int, _ login: (String, String)? = nil) -> HTTPProxy {
        HTTPProxy(host: host, port: port, credentials: login.map { .init(user: $0.0, password: $0.1) })
    }

    @Test(
        "is read with all its parts",
        arguments: [
            ("http://proxy.example:3128", proxy("proxy.example", 3128)),
            ("HTTP://proxy.example:3128/", proxy("proxy.example", 3128)),
            (" proxy.example:3128\n", proxy("proxy.example", 3128)),
            ("http://proxy.example", proxy("proxy.example", 80)), ("http://10.0.0.1:8080", proxy("10.0.0.1", 8080)),
            ("http://[fd00::1]:8080", proxy("fd00::1", 8080)),
            ("http://me:secret@proxy:1", proxy("proxy", 1, ("me", "secret"))),
            ("http://me@proxy:1", proxy("proxy", 1, ("me", ""))),
            ("http://m%40e:s%3Ae%2fc%25r%C3%A9t@proxy:1", proxy("proxy", 1, ("m@e", "s:e/c%rét"))),
            ("http://me:a:b@c@proxy:1", proxy("proxy", 1, ("me", "a:b@c"))),
        ])
    func read(url: String, proxy: HTTPProxy) throws { #expect(try HTTPProxy(url) == proxy) }

    @Test(
        "that is invalid is refused with the correct form, and without the password",
        arguments: [
            ("https://me:hunter2@proxy:1", "begins with http://, not https://"),
            ("socks5://me:hunter2@proxy:1", "begins with http://, not socks5://"),
            ("http://me:hunter2@", "http://host:port"),
            ("http://me:hunter2@proxy:0", "“proxy:0” is not"),
            ("http://me:hunter2@proxy:70000", "“proxy:70000” is not"),
            ("http://me:hunter2@proxy:1/path", "“proxy:1/path” is not"),
            ("http://me:hunter2@pro xy:1", "“pro xy:1” is not"),
            ("http://me:hunter2%4@proxy:1", "two hex digits"),
            ("http://me:hunter2%zz@proxy:1", "two hex digits"),
            ("http://me:hunter2%FF@proxy:1", "not UTF-8"),
            ("http://me:hunter2%0D%0A@proxy:1", "control characters"),
            ("http://m%3Ae:hunter2@proxy:1", "a colon in the user's name"),
            ("", "http://host:port"),
        ])
    func refused(url: String, why: String) {
        let error = #expect(throws: HTTPProxy.Invalid.self) { try HTTPProxy(url) }
        #expect(error?.description.contains(why) == true, "\(error as Any)")
        #expect(error?.description.contains("hunter2") == false)
    }

    @Test("is always shown without user and password")
    func shown() throws {
        let proxy = try HTTPProxy("http://somebody:hunter2@proxy:1")
        #expect("\(proxy)" == "http://proxy:1")
        for text in try shownTexts(of: proxy) + shownTexts(of: #require(proxy.credentials)) {
            #expect(!text.contains("hunter2") && !text.contains("somebody"), "\(text)")
        }
        #expect(try HTTPProxy("http://[::1]:8080").description == "http://[::1]:8080")
    }
}

@Suite("The environment's proxy")
struct EnvironmentProxyTests {
    private func proxy(
        _ environment: [String: String], _ endpoint: APNSEndpoint = .production
    ) throws(HTTPProxy.Invalid) -> HTTPProxy? { try .fromEnvironment(environment, for: endpoint) }

    @Test("is read from HTTPS_PROXY or https_proxy only")
    func variables() throws {
        #expect(try proxy([:]) == nil)
        #expect(try proxy(["HTTP_PROXY": "http://a:1", "ALL_PROXY": "http://a:1"]) == nil)
        #expect(try proxy(["https_proxy": "http://a:1"])?.host == "a")
        #expect(try proxy(["https_proxy": "http://a:1", "HTTPS_PROXY": "http://b:1"])?.host == "b")
        #expect(try proxy(["https_proxy": "http://a:1", "HTTPS_PROXY": " "])?.host == "a")
    }

    @Test("that cannot be read names the variable, not the password")
    func invalid() {
        for (name, value) in [("HTTPS_PROXY", "https://u:hunter2@x"), ("https_proxy", "http://u:hunter2@x:y")] {
            let error = #expect(throws: HTTPProxy.Invalid.self) { try proxy([name: value]) }
            #expect(error?.description.hasPrefix("\(name): ") == true)
            #expect(error?.description.contains("hunter2") == false)
        }
        let error = #expect(throws: HTTPProxy.Invalid.self) {
            try proxy(["HTTPS_PROXY": "http://a:1", "no_proxy": "a, 10.0.0.0/33"])
        }
        #expect(error?.description.hasPrefix("no_proxy: “10.0.0.0/33” is not a network") == true)
    }

    @Test(
        "is not used for what NO_PROXY names",
        arguments: [
            ("*", "api.push.apple.com", true), ("api.push.apple.com", "api.push.apple.com", true),
            ("API.Push.Apple.Com.", "api.push.apple.com", true), ("apple.com", "api.push.apple.com", true),
            (".apple.com", "api.push.apple.com", true), ("*.apple.com", "api.push.apple.com", true),
            ("pple.com", "api.push.apple.com", false), ("push.apple.com.example", "api.push.apple.com", false),
            ("api.push.apple.com:443", "api.push.apple.com", true),
            ("api.push.apple.com:2197", "api.push.apple.com", false), ("apple.com:443", "api.push.apple.com", true),
            ("localhost, apple.com", "api.push.apple.com", true), ("localhost apple.com", "api.push.apple.com", true),
            ("localhost,,", "api.push.apple.com", false), ("", "api.push.apple.com", false),
            ("127.0.0.1", "127.0.0.1", true), ("127.0.0.1", "127.0.0.2", false), ("127.0.0.1:443", "127.0.0.1", true),
            ("127.0.0.1:80", "127.0.0.1", false), ("0.0.1", "127.0.0.1", false),
            ("10.0.0.0/8", "10.255.3.4", true), ("10.0.0.0/8", "11.0.0.1", false), ("10.0.0.0/9", "10.127.0.1", true),
            ("10.0.0.0/9", "10.128.0.1", false), ("10.1.2.3/32", "10.1.2.3", true), ("0.0.0.0/0", "10.1.2.3", true),
            ("0.0.0.0/0", "api.push.apple.com", false), ("0.0.0.0/0", "::1", false),
            ("::1", "::1", true), ("[::1]", "::1", true), ("[::1]:443", "::1", true), ("[::1]:80", "::1", false),
            ("0:0:0:0:0:0:0:1", "::1", true), ("fd00::/8", "fdab::1", true), ("fd00::/8", "fe80::1", false),
            ("::ffff:10.0.0.1", "10.0.0.1", true),
        ])
    func exceptions(text: String, host: String, isExcepted: Bool) throws {
        let found = try proxy(["HTTPS_PROXY": "http://proxy:1", "NO_PROXY": text], APNSEndpoint(host: host, port: 443))
        #expect((found == nil) == isExcepted)
    }

    @Test(
        "ignores exceptions that cannot be read", arguments: ["10.0.0.0/x", "10.0.0.0/+8", "a/8", "a:b", "a:0", "a_b!"])
    func unreadable(text: String) { #expect(throws: HTTPProxy.Invalid.self) { try ProxyExceptions(text) } }
}
