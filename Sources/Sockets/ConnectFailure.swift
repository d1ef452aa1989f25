import Glibc
import NIOCore
import NIOPosix

/// Errors of sockets in words. NIO's own descriptions name its functions and types.
package enum ConnectFailure {
    /// The reason for a failure to connect or to listen, or for a lost connection, without a full stop.
    package static func words(_ error: any Error) -> String {
        if let shortage = shortage(error) { return shortage }
        guard let error = error as? NIOConnectionError else { return words(ofOne: error) }
        guard !error.connectionErrors.isEmpty else { return "the name \(error.host) does not resolve to an address" }
        return error.connectionErrors.map { failure in
            let address = failure.target.ipAddress.map { $0.contains(":") ? "[\($0)]" : $0 } ?? "\(failure.target)"
            return "\(address): \(words(ofOne: failure.error))"
        }.joined(separator: "; ")
    }

    /// The same of the first address that was tried, without the address: for messages that name it already.
    package static func wordsOfFirst(_ error: any Error) -> String {
        words((error as? NIOConnectionError)?.connectionErrors.first?.error ?? error)
    }

    /// The shortage of file descriptors that an error comes from, with what to do; `nil` for any other error.
    ///
    /// The resolver's errors do not name their cause: without a descriptor it reads neither `/etc/hosts` nor the network, and
    /// reports that there is no such name.
    package static func shortage(_ error: any Error) -> String? {
        guard let error = error as? NIOConnectionError else { return shortage(ofOne: error) }
        guard !error.connectionErrors.isEmpty else { return DescriptorLimit.shortage }
        return error.connectionErrors.lazy.compactMap { shortage(ofOne: $0.error) }.first
    }

    private static func shortage(ofOne error: any Error) -> String? {
        (error as? IOError).flatMap { DescriptorLimit.shortage($0.errnoCode) }
    }

    private static func words(ofOne error: any Error) -> String {
        switch error {
        case let error as IOError: String(cString: strerror(error.errnoCode))
        case ChannelError.connectTimeout(let time): "no answer within \(time.inSeconds)"
        default: "\(error)"
        }
    }
}

extension TimeAmount {
    fileprivate var inSeconds: String {
        nanoseconds % 1_000_000_000 == 0 ? "\(nanoseconds / 1_000_000_000) s" : "\(nanoseconds / 1_000_000) ms"
    }
}
