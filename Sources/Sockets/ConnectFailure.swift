import Glibc
import NIOCore
import NIOPosix

/// Readable reasons for errors of sockets. NIO's own descriptions name its functions and types.
public enum ConnectFailure {
    /// Returns the reason for a failure to connect or to listen, or for a lost connection, without a final period.
    public static func reason(_ error: any Error) -> String {
        if let shortage = shortage(error) { return shortage }
        guard let error = error as? NIOConnectionError else { return reason(ofOne: error) }
        guard !error.connectionErrors.isEmpty else { return "the host name \"\(error.host)\" does not resolve" }
        return error.connectionErrors.map { failure in
            let address = failure.target.ipAddress.map { $0.contains(":") ? "[\($0)]" : $0 } ?? "\(failure.target)"
            return "\(address): \(reason(ofOne: failure.error))"
        }.joined(separator: "; ")
    }

    /// Returns the reason for the failure at the first address tried, without the address. It is for messages that name the address.
    public static func firstReason(_ error: any Error) -> String {
        reason((error as? NIOConnectionError)?.connectionErrors.first?.error ?? error)
    }

    /// Returns the used address in words, to append to an error; empty if the host is that address. A host name can have several addresses.
    public static func place(_ address: SocketAddress?, of host: String) -> String {
        guard let used = address?.ipAddress, used != host else { return "" }
        return " (the address used is \(used))"
    }

    /// Returns the shortage of file descriptors that caused an error, with what to do; `nil` for other errors.
    ///
    /// The resolver's errors do not name this cause: without a descriptor, the resolver reads neither `/etc/hosts` nor the network, and
    /// reports that there is no such name.
    public static func shortage(_ error: any Error) -> String? {
        guard let error = error as? NIOConnectionError else { return shortage(ofOne: error) }
        guard !error.connectionErrors.isEmpty else { return DescriptorLimit.shortage }
        return error.connectionErrors.lazy.compactMap { shortage(ofOne: $0.error) }.first
    }

    private static func shortage(ofOne error: any Error) -> String? {
        (error as? IOError).flatMap { DescriptorLimit.shortage($0.errnoCode) }
    }

    private static func reason(ofOne error: any Error) -> String {
        switch error {
        case let error as IOError: String(cString: strerror(error.errnoCode))
        case ChannelError.connectTimeout(let time): "no answer within \(time.formatted)"
        default: "\(error)"
        }
    }
}

extension TimeAmount {
    /// The time for messages, in seconds or, if it has a fraction of a second, in milliseconds: `5 s`, `1500 ms`.
    public var formatted: String {
        let milliseconds = nanoseconds / 1_000_000
        return milliseconds % 1000 == 0 ? "\(milliseconds / 1000) s" : "\(milliseconds) ms"
    }
}
