import APNS
import Testing

@Suite("An APNs endpoint")
struct APNSEndpointTests {
    @Test(
        "is read from a name, a host, or a host and port",
        arguments: [
            ("production", "api.push.apple.com", 443), ("sandbox", "api.sandbox.push.apple.com", 443),
            ("development", "api.sandbox.push.apple.com", 443), ("Sandbox", "api.sandbox.push.apple.com", 443),
            ("PRODUCTION", "api.push.apple.com", 443), ("Development", "api.sandbox.push.apple.com", 443),
            ("localhost", "localhost", 443),
            ("localhost:2197", "localhost", 2197), ("https://localhost:8443", "localhost", 8443),
            ("https://api.push.apple.com/", "api.push.apple.com", 443), ("127.0.0.1:1", "127.0.0.1", 1),
            ("[::1]", "::1", 443), ("[::1]:65535", "::1", 65535),
        ])
    func read(text: String, host: String, port: Int) {
        #expect(APNSEndpoint(text) == APNSEndpoint(host: host, port: port))
    }

    @Test(
        "is not read from anything else",
        arguments: [
            "", ":443", "host:", "host:0", "host:65536", "host:x", "host:+443", "host:-1", "[::1", "[::1]443", "[]",
            "[::1]:", "[::1]:x", "::1", "a:b:443", "http://host", "host/path", "https://host/3/device", "a b", "a\r\nb",
            "https://", "user@host",
        ])
    func refused(text: String) { #expect(APNSEndpoint(text) == nil) }

    @Test(
        "names Apple's environment by the host, whatever the port, and manages its channels there",
        arguments: [
            ("api.push.apple.com:2197", "production", APNSEndpoint.productionChannels),
            ("API.push.apple.com", "production", .productionChannels),
            ("api.sandbox.push.apple.com:2197", "sandbox", .sandboxChannels),
            ("api.development.push.apple.com", "sandbox", .sandboxChannels),
            ("api.development.push.apple.com:2197", "sandbox", .sandboxChannels),
            ("localhost:2197", "localhost:2197", APNSEndpoint(host: "localhost", port: 2197)),
        ])
    func environments(text: String, environment: String, channels: APNSEndpoint) throws {
        let endpoint = try #require(APNSEndpoint(text))
        #expect(endpoint.environment == environment)
        #expect(endpoint.channelManagement == channels)
    }

    @Test("gives the authority without HTTPS's own port, and brackets for IPv6")
    func authority() {
        #expect(APNSEndpoint.production.authority == "api.push.apple.com")
        #expect(APNSEndpoint(host: "localhost", port: 8443).authority == "localhost:8443")
        #expect(APNSEndpoint(host: "::1", port: 8443).authority == "[::1]:8443")
        #expect("\(APNSEndpoint(host: "::1", port: 443))" == "[::1]:443")
    }
}
