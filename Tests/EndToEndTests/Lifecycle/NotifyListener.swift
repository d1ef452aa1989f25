import Foundation
import TestSupport

/// The socket to which services send messages for systemd (sd_notify).
final class NotifyListener {
    let name: String
    private let descriptor: Int32
    private let path: String?
    /// The lines of each datagram.
    private(set) var messages: [[String]] = []

    /// - Parameter isAbstract: true for a socket without a file.
    init(isAbstract: Bool = false) throws {
        let unique = UUID().uuidString
        path = isAbstract ? nil : "/tmp/notify-\(unique)"
        name = path ?? "@notify-\(unique)"
        descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw ChildProcess.Failure(description: "no socket to be had") }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        var bytes = Array(name.utf8)
        if isAbstract { bytes[0] = 0 }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
        let length = socklen_t(MemoryLayout<sa_family_t>.size + bytes.count + (isAbstract ? 0 : 1))
        let bound = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(descriptor, $0, length) }
        }
        guard bound == 0 else { throw ChildProcess.Failure(description: "cannot bind \(name)") }
    }

    deinit {
        close(descriptor)
        if let path { unlink(path) }
    }

    func read() {
        var buffer = [UInt8](repeating: 0, count: 65_536)
        while true {
            let count = recv(descriptor, &buffer, buffer.count, Int32(MSG_DONTWAIT))
            guard count > 0 else { return }
            let text = String(decoding: buffer[..<count], as: UTF8.self)
            messages.append(text.split(separator: "\n").map(String.init))
        }
    }

    var lines: [String] {
        read()
        return messages.flatMap { $0 }
    }

    /// The lines that report a change of state.
    var changes: [String] {
        lines.filter { $0 != "WATCHDOG=1" && !$0.hasPrefix("MONOTONIC_USEC=") && !$0.hasPrefix("STATUS=") }
    }

    /// The status texts, in order.
    var statuses: [String] { lines.filter { $0.hasPrefix("STATUS=") }.map { String($0.dropFirst(7)) } }

    var watchdogs: Int { lines.count { $0 == "WATCHDOG=1" } }
}
