import Foundation

/// A TCP connection to a port of 127.0.0.1, for clients that send and read any bytes.
package final class RawConnection {
    private let descriptor: Int32
    /// The bytes that ``read()`` has read so far, as text.
    package private(set) var received = ""
    /// True once ``read()`` has seen that the peer sends nothing more.
    package private(set) var isClosed = false
    /// True once the peer has answered sent bytes with a reset, because it no longer reads.
    package private(set) var isReset = false

    /// - Throws: ``ChildProcess/Failure`` with the system's reason if the connection fails.
    package init(port: Int) throws {
        descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw Self.failure("no socket") }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(port).bigEndian
        address.sin_addr = in_addr(s_addr: UInt32(0x7F00_0001).bigEndian)
        let result = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard result == 0 else {
            let failure = Self.failure("no connection")
            close(descriptor)
            throw failure
        }
        _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
    }

    deinit { close(descriptor) }

    package struct Answer: Sendable {
        package let status: Int
        /// The status line and the header.
        package let head: String
        package let body: String
    }

    /// Sends an HTTP request. A program such as `curl` would cost a process for each of thousands of requests.
    /// - Throws: ``ChildProcess/Failure`` if no whole answer comes in time.
    package static func request(
        _ path: String, port: Int, method: String = "GET", headers: [String] = [], body: String = "",
        within limit: Duration = .seconds(30)
    ) async throws -> Answer {
        let connection = try RawConnection(port: port)
        // In HTTP/1.0, the end of the connection is the end of the answer.
        let head =
            ["\(method) \(path) HTTP/1.0", "Host: 127.0.0.1:\(port)", "Content-Length: \(body.utf8.count)"] + headers
        var rest = Array((head.joined(separator: "\r\n") + "\r\n\r\n" + body).utf8)[...]
        try await eventually("an answer to \(method) \(path)", within: limit) {
            connection.read()
            if !rest.isEmpty { rest = rest.dropFirst(connection.send(rest)) }
            return connection.isClosed
        }
        let answer = connection.received
        guard let end = answer.range(of: "\r\n\r\n"),
            let status = answer.split(separator: " ", maxSplits: 2).dropFirst().first.flatMap({ Int($0) })
        else { throw ChildProcess.Failure(description: "\(method) \(path) is answered with \(answer.prefix(200))") }
        return Answer(status: status, head: String(answer[..<end.upperBound]), body: String(answer[end.upperBound...]))
    }

    private static func failure(_ what: String) -> ChildProcess.Failure {
        ChildProcess.Failure(description: "\(what): \(String(cString: strerror(errno)))")
    }

    /// Sends as many bytes as the kernel accepts now.
    /// - Returns: the number of bytes; also 0 if the peer has closed.
    @discardableResult
    package func send(_ text: String) -> Int { send(Array(text.utf8)[...]) }

    private func send(_ bytes: ArraySlice<UInt8>) -> Int {
        let count = bytes.withUnsafeBytes { Foundation.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL)) }
        if count < 0, errno == EPIPE || errno == ECONNRESET { isReset = true }
        return max(0, count)
    }

    /// Ends the sent bytes. Bytes of the peer can still be read.
    package func closeOutput() { shutdown(descriptor, Int32(SHUT_WR)) }

    package func read() {
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while !isClosed {
            let count = recv(descriptor, &chunk, chunk.count, 0)
            if count > 0 {
                received += String(decoding: chunk[..<count], as: UTF8.self)
            } else if count == 0 {
                isClosed = true
            } else if errno == ECONNRESET {
                (isClosed, isReset) = (true, true)
            } else {
                return
            }
        }
    }

    /// Reads the bytes that have arrived.
    /// - Returns: true if the peer sends nothing more.
    package func hasEnded() -> Bool {
        read()
        return isClosed
    }

    /// Sends a byte, and reads the bytes that have arrived.
    /// - Returns: true if the peer no longer reads.
    package func isRefused() -> Bool {
        read()
        send("x")
        return isReset
    }
}
