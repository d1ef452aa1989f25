import NIOCore
import NIOPosix

#if canImport(Glibc)
    import Glibc
#elseif canImport(Musl)
    import Musl
#endif

/// Why no TCP connection could be made, in words: NIO's own speak of its types.
enum ConnectFailure {
    static func words(_ error: any Error) -> String {
        guard let error = error as? NIOConnectionError else { return words(ofOne: error) }
        guard !error.connectionErrors.isEmpty else { return "the name \(error.host) cannot be resolved to an address" }
        return error.connectionErrors.map { failure in
            let address = failure.target.ipAddress.map { $0.contains(":") ? "[\($0)]" : $0 } ?? "\(failure.target)"
            return "\(address): \(words(ofOne: failure.error))"
        }.joined(separator: "; ")
    }

    private static func words(ofOne error: any Error) -> String {
        switch error {
        case let error as IOError: String(cString: strerror(error.errnoCode))
        case ChannelError.connectTimeout(let time): "no answer within \(time.inWords)"
        default: "\(error)"
        }
    }
}
