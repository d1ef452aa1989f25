import TLS

/// Why a feedback service was not read to its end. What was read before it is good.
public enum FeedbackError: Error, Sendable, CustomStringConvertible {
    /// No connection could be made, or it did not last.
    case connection(APNSConnectionError)
    /// TLS could not be set up, or broke.
    case tls(TLSError)
    /// What came is not what a feedback service sends.
    case malformed(APNSEndpoint, FeedbackTuples.Malformed)
    /// It closed the connection in the middle of a tuple, of which so many bytes had come.
    case incomplete(APNSEndpoint, bytes: Int)
    /// We ended it while it was not at its end.
    case stopped(APNSEndpoint)

    /// What is wrong, where, and what to do.
    public var description: String {
        switch self {
        case .connection(let error): "\(error)"
        case .tls(let error): "\(error)"
        case .malformed(let endpoint, let error):
            "\(endpoint) does not speak the feedback service's protocol: \(error); is it a feedback service?"
        case .incomplete(let endpoint, let bytes):
            "\(endpoint) closed the connection in the middle of a tuple, after \(bytes) bytes of it"
        case .stopped(let endpoint): "\(endpoint) was not read to its end, because this process was told to end"
        }
    }
}
