import NIOCore
import Testing

@testable import APNS

@Suite("A proxy's answer")
struct ProxyHandshakeTests {
    private let endpoint = APNSEndpoint(host: "api.push.apple.com", port: 443)

    private func handshake(_ credentials: HTTPProxy.Credentials? = nil) -> ProxyHandshake {
        ProxyHandshake(to: endpoint, credentials: credentials)
    }

    private func outcome(
        _ answer: String, pieces size: Int, _ credentials: HTTPProxy.Credentials? = nil
    ) -> ProxyHandshake.Step {
        var handshake = handshake(credentials)
        var bytes = ByteBuffer(string: answer)
        while let piece = bytes.readSlice(length: min(size, bytes.readableBytes)), piece.readableBytes > 0 {
            let step = handshake.receive(piece)
            guard step != .needsMore else { continue }
            // The handshake has not read the rest.
            guard case .connected(var rest) = step else { return step }
            rest.writeBuffer(&bytes)
            return .connected(rest)
        }
        return .needsMore
    }

    @Test("follows a request with the host, the port, and the credentials if any")
    func request() {
        #expect(
            handshake().request
                == "CONNECT api.push.apple.com:443 HTTP/1.1\r\nHost: api.push.apple.com:443\r\n\r\n")
        // The example from RFC 7617.
        #expect(
            handshake(.init(user: "Aladdin", password: "open sesame")).request
                == "CONNECT api.push.apple.com:443 HTTP/1.1\r\nHost: api.push.apple.com:443\r\n"
                + "Proxy-Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==\r\n\r\n")
        #expect(
            ProxyHandshake(to: APNSEndpoint(host: "::1", port: 2197), credentials: nil).request
                .hasPrefix("CONNECT [::1]:2197 HTTP/1.1\r\n"))
    }

    @Test("opens the tunnel however it is split, and later bytes belong to the tunnel", arguments: 1...120)
    func connected(size: Int) {
        let heads = [
            "HTTP/1.1 200 Connection established\r\n\r\n", "HTTP/1.0 200 OK\r\nVia: x\r\n\r\n", "HTTP/1.1 200\r\n\r\n",
            "HTTP/1.1 204 \n\n", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 x\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        ]
        for head in heads {
            for rest in ["", "\u{16}\u{3}\u{1}", "\r\n\r\nHTTP/1.1 407 x\r\n\r\n"] {
                #expect(outcome(head + rest, pieces: size) == .connected(ByteBuffer(string: rest)), "\(head)")
            }
            #expect(outcome(String(head.dropLast()), pieces: size) == .needsMore)
        }
    }

    @Test(
        "reports the cause", arguments: [1, 3, 1000],
        [
            (
                "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n",
                "it answered 407 (Proxy Authentication Required): it requires a user and a password"
            ),
            ("HTTP/1.1 403 Forbidden\r\nA: b\r\n\r\nbody", "does not allow connections to api.push.apple.com:443"),
            ("HTTP/1.1 502 Bad Gateway\r\n\r\n", "it answered 502 (Bad Gateway): it cannot reach"),
            ("HTTP/1.1 504\r\n\r\n", "it answered 504: it cannot reach"),
            ("HTTP/1.1 301 Moved\r\n\r\n", "it answered 301 (Moved) to CONNECT"),
            ("HTTP/1.1 400 a\u{1B}[31mb\r\n\r\n", "it answered 400 (a[31mb) to CONNECT"),
            ("HTTP/2 200\r\n\r\n", "is not HTTP"), ("SSH-2.0-OpenSSH", "is not HTTP"),
            ("\u{5}\u{FF}", "is not HTTP"), ("\r\n\r\n", "is not HTTP"), ("HTTP/1.1 2000 x\r\n\r\n", "is not HTTP"),
            ("HTTP/1.1 20 x\r\n\r\n", "is not HTTP"), ("HTTP/1.1 +20 x\r\n\r\n", "is not HTTP"),
            ("HTTP/1.1 099 x\r\n\r\n", "is not HTTP"), ("HTTP/1.1\r\n\r\n", "is not HTTP"),
        ])
    func refused(size: Int, answer: (text: String, why: String)) {
        guard case .failed(let why) = outcome(answer.text, pieces: size) else {
            Issue.record("not refused")
            return
        }
        #expect(why.contains(answer.why), "\(why)")
    }

    @Test(
        "to credentials that it refuses mentions them without showing them",
        arguments: [
            (401, "user and password that were sent"), (403, "user and password that were sent"),
            (407, "rejects the configured user and password"),
        ])
    func refusedWithCredentials(status: Int, words: String) {
        for credentials in [nil, HTTPProxy.Credentials(user: "somebody", password: "hunter2")] {
            guard case .failed(let why) = outcome("HTTP/1.1 \(status) No\r\n\r\n", pieces: 9, credentials) else {
                Issue.record("not refused")
                return
            }
            #expect(why.contains(words) == (credentials != nil), "\(why)")
            #expect(!why.contains("hunter2") && !why.contains("somebody"))
        }
    }

    @Test(
        "is read up to a limit",
        arguments: [
            "HTTP/1.1 200 OK\r\n" + String(repeating: "A: b\r\n", count: 10_000),
            "HTTP/1.1 200 " + String(repeating: "x", count: 60_000),
            String(repeating: "HTTP/1.1 100 Continue\r\n\r\n", count: 3000),
        ])
    func endless(answer: String) {
        for size in [1, 100, 16_384] {
            #expect(outcome(answer, pieces: size) == .failed("its answer has more than 16 KiB of header fields"))
        }
    }
}
