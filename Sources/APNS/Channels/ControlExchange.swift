import NIOCore

/// One HTTP/2 request with any method and its whole answer, without a socket: bytes in, bytes out.
///
/// Not thread-safe: it belongs to one event loop.
struct ControlExchange {
    struct Response: Equatable, Sendable {
        var status: Int
        /// `Retry-After` in seconds.
        var retryAfter: Int?
        /// The last value of each other field.
        var headers: [String: String]
        var body: ByteBuffer
    }

    /// The reason why there is no answer.
    struct Failure: Error, Equatable, CustomStringConvertible {
        var description: String
    }

    /// In bytes; more than the longest list of channels, which has 10,000.
    static let maximumBodySize = 4 << 20

    /// The result; `nil` while the exchange is in progress.
    private(set) var result: Result<Response, Failure>?

    private let session: HTTP2Session
    private var goAwayReason: String?

    init(_ request: HTTP2Request) {
        session = HTTP2Session(for: request, maximumBodySize: Self.maximumBodySize)
    }

    /// Processes bytes from the server.
    mutating func receive(_ bytes: UnsafeRawBufferPointer) {
        guard result == nil else { return }
        var isFlood = false
        do throws(HTTP2Session.Flood) { try session.receive(bytes) } catch { isFlood = true }
        for case .goAway(_, _, let debugData) in session.events {
            goAwayReason = ResponseBody(debugData)?.reason ?? "GOAWAY"
        }
        session.events.removeAll()
        if let stream = session.streams.closed.first {
            result = answer(stream)
        } else if isFlood || session.phase == .ended {
            result = failure(session.complaint ?? "it broke HTTP/2")
        }
    }

    /// Returns the bytes to send now.
    func output() -> ByteBuffer {
        var output = ByteBuffer()
        session.takeOutput(into: &output)
        return output
    }

    /// Ends the session with a GOAWAY, which the next ``output()`` returns.
    func terminate() { session.goAway() }

    private func answer(_ stream: ClosedStream) -> Result<Response, Failure> {
        let slot = session.streams.slots.pointer(stream.slot)
        if slot.pointee.isCut { return failure("it sent an answer larger than \(Self.maximumBodySize) bytes") }
        guard stream.code == HTTP2ErrorCode.noError.rawValue, slot.pointee.status > 0, slot.isWhole else {
            let failure = slot.pointee.failure == .malformed ? RequestFailure.malformed : .reset(code: stream.code)
            return self.failure(goAwayReason.map { "it closed the connection (\($0))" } ?? failure.description)
        }
        return .success(
            Response(
                status: Int(slot.pointee.status),
                retryAfter: slot.pointee.retryAfter >= 0 ? Int(slot.pointee.retryAfter) : nil,
                headers: session.streams.headers.fields ?? [:], body: slot.pointee.body ?? ByteBuffer()))
    }

    private func failure(_ description: String) -> Result<Response, Failure> {
        .failure(Failure(description: description))
    }
}
