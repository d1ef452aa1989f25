import NIOCore

/// The encoding and decoding of one connection, without the connection, to measure it by itself.
package final class RequestFraming {
    private let session: HTTP2Session
    private let authorization: HeaderText

    /// - Parameters:
    ///   - authority: the value of `:authority`.
    ///   - providerToken: a signed provider token.
    ///   - maximumStreams: the maximum number of open requests.
    package init(authority: String, providerToken: String, maximumStreams: Int) {
        session = HTTP2Session(authority: HeaderText(authority), maximumStreams: maximumStreams)
        authorization = HeaderText("bearer \(providerToken)")
    }

    /// Opens a stream for a notification.
    /// - Returns: false if no stream is free.
    package func submit(_ notification: Notification) -> Bool {
        session.submit(notification, tag: 0, deadline: .distantFuture, authorization: authorization) != nil
    }

    /// Appends the frames that can be sent.
    package func takeOutput(into buffer: inout ByteBuffer) { session.takeOutput(into: &buffer) }

    /// Reads bytes from the server.
    /// - Returns: the number of requests answered with 200. The streams of all completed requests are free again.
    package func receive(_ bytes: ByteBuffer) -> Int {
        bytes.withUnsafeReadableBytes { bytes in try? session.receive(bytes) }
        var answered = 0
        for stream in session.streams.closed {
            if session.streams.slots.pointer(stream.slot).response()?.status == 200 { answered += 1 }
            session.streams.release(stream.slot)
        }
        session.events.removeAll(keepingCapacity: true)
        session.streams.closed.removeAll(keepingCapacity: true)
        return answered
    }
}
