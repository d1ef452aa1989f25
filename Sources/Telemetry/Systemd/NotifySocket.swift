import Glibc

/// The datagram socket for notices to systemd. See sd_notify(3).
public struct NotifySocket: Sendable {
    /// The reason why no notice can be sent.
    public struct Failure: Error, Equatable, CustomStringConvertible {
        /// The problem, as a sentence.
        public let description: String
    }

    private let address: [UInt8]

    /// - Parameter name: the value of `NOTIFY_SOCKET`: a path or, after an @, an abstract name.
    /// - Throws: ``Failure`` if it is neither.
    public init(_ name: String) throws {
        var bytes = Array(name.utf8)
        // A socket's path must leave space for a final zero.
        guard bytes.count > 1, bytes.count < Self.longestPath, bytes[0] == UInt8(ascii: "/") || bytes[0] == 0x40 else {
            throw Failure(
                description: "NOTIFY_SOCKET is \(name), which is neither the path of a socket nor an abstract name")
        }
        if bytes[0] == 0x40 { bytes[0] = 0 } else { bytes.append(0) }
        address = bytes
    }

    private static let longestPath = MemoryLayout.size(ofValue: sockaddr_un().sun_path)

    /// Sends a message of lines such as `READY=1`. Never blocks: a manager that does not read must not delay the service.
    /// - Throws: ``Failure``.
    public func send(_ message: String) throws {
        let type = Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue)
        let descriptor = socket(AF_UNIX, type, 0)
        guard descriptor >= 0 else { throw failure() }
        defer { close(descriptor) }
        var target = sockaddr_un()
        target.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &target.sun_path) { $0.copyBytes(from: address) }
        // An abstract name is ended by its length, not by a zero.
        let length = socklen_t(MemoryLayout<sa_family_t>.size + address.count)
        let bytes = Array(message.utf8)
        let sent = withUnsafePointer(to: &target) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                sendto(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT), $0, length)
            }
        }
        guard sent == bytes.count else { throw failure() }
    }

    private func failure() -> Failure { Failure(description: String(cString: strerror(errno))) }
}
