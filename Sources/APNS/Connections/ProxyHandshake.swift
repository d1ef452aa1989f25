import FoundationEssentials
import NIOCore

/// The request to a proxy and the meaning of its answer, without any I/O.
///
/// Only the head of the answer is HTTP. The bytes after it belong to the tunnel (RFC 9110 §9.3.6), and Content-Length and Transfer-Encoding
/// must be ignored. An HTTP codec would have only one line to decode, and would have to return the bytes after it.
struct ProxyHandshake {
    enum Step: Equatable {
        case needsMore
        /// The tunnel is open; these bytes have already come through it.
        case connected(ByteBuffer)
        /// The reason, to be printed after the proxy's name.
        case failed(String)
    }

    /// The maximum size in bytes of all response heads together.
    static let maximumSize = 16 * 1024

    private let endpoint: APNSEndpoint
    private let credentials: HTTPProxy.Credentials?
    private var received = ByteBuffer()
    private var size = 0
    /// The number of scanned bytes of the current head; and true if its last line is empty so far.
    private var scanned = 0
    private var lineIsEmpty = false

    init(to endpoint: APNSEndpoint, credentials: HTTPProxy.Credentials?) {
        self.endpoint = endpoint
        self.credentials = credentials
    }

    var request: String {
        var lines = ["CONNECT \(endpoint) HTTP/1.1", "Host: \(endpoint)"]
        if let credentials {
            let pair = Data("\(credentials.user):\(credentials.password)".utf8)
            lines.append("Proxy-Authorization: Basic \(pair.base64EncodedString())")
        }
        return lines.joined(separator: "\r\n") + "\r\n\r\n"
    }

    mutating func receive(_ bytes: ByteBuffer) -> Step {
        var bytes = bytes
        size += bytes.readableBytes
        received.writeBuffer(&bytes)
        while true {
            guard isHTTP else { return .failed("its answer is not HTTP; is it an HTTP proxy?") }
            guard let head = takeHead() else {
                return size > Self.maximumSize
                    ? .failed("its answer has more than \(Self.maximumSize / 1024) KiB of header fields") : .needsMore
            }
            guard let (status, reason) = Self.statusLine(head) else {
                return .failed("its answer is not HTTP; is it an HTTP proxy?")
            }
            switch status {
            case 100..<200: continue
            case 200..<300: return .connected(received.slice())
            default: return .failed(refusal(status, reason))
            }
        }
    }

    /// True if the bytes received so far can begin an HTTP/1 response.
    private var isHTTP: Bool {
        zip(received.readableBytesView, "HTTP/1.".utf8).allSatisfy { $0 == $1 }
    }

    /// Removes and returns everything up to the first empty line. Line ends may lack the CR (RFC 9112 §2.2).
    private mutating func takeHead() -> ByteBuffer? {
        for byte in received.readableBytesView.dropFirst(scanned) {
            scanned += 1
            if byte == UInt8(ascii: "\n") {
                if lineIsEmpty {
                    defer { (scanned, lineIsEmpty) = (0, false) }
                    return received.readSlice(length: scanned)
                }
                lineIsEmpty = true
            } else if byte != UInt8(ascii: "\r") {
                lineIsEmpty = false
            }
        }
        return nil
    }

    private static func statusLine(_ head: ByteBuffer) -> (status: Int, reason: String)? {
        let line = head.readableBytesView.prefix { $0 != UInt8(ascii: "\r") && $0 != UInt8(ascii: "\n") }
        let parts = line.split(separator: UInt8(ascii: " "), maxSplits: 2, omittingEmptySubsequences: false)
        guard parts.count >= 2, parts[0].count == "HTTP/1.1".utf8.count, parts[1].count == 3,
            parts[1].allSatisfy({ $0 &- 0x30 < 10 })
        else { return nil }
        let status = parts[1].reduce(0) { $0 * 10 + Int($1 - 0x30) }
        // The proxy's text is untrusted: the log gets at most 80 characters of printable ASCII.
        let words = (parts.count > 2 ? parts[2] : []).prefix(80).filter { (0x20..<0x7F).contains($0) }
        return status >= 100 ? (status, String(decoding: words, as: UTF8.self)) : nil
    }

    private func refusal(_ status: Int, _ reason: String) -> String {
        let answer = reason.isEmpty ? "it answered \(status)" : "it answered \(status) (\(reason))"
        return switch status {
        case 407 where credentials == nil: "\(answer): it requires a user and a password, but none are configured"
        case 407:
            "\(answer): it rejects the configured user and password, or does not support Basic authentication"
        case 401, 403:
            "\(answer): it does not allow connections to \(endpoint)"
                + (credentials == nil ? "" : ", or does not accept the user and password that were sent")
        case 405: "\(answer): it does not allow connections to \(endpoint)"
        case 502, 503, 504: "\(answer): it cannot reach \(endpoint)"
        default: "\(answer) to CONNECT"
        }
    }
}
