import NIOCore

/// The client's side of one HTTP/2 connection (RFC 9113): bytes in, bytes out, requests submitted, events returned.
///
/// It does no I/O and has no clock. This file writes; `HTTP2Session+Receiving.swift` reads what arrives for the connection
/// and passes what arrives for streams to ``HTTP2Streams``. A violation of HTTP/2 by the server ends the session: it sends
/// a GOAWAY with the error's code, reads nothing more, and is finished.
///
/// Not thread-safe: it belongs to one event loop.
final class HTTP2Session {
    enum Event: Equatable {
        /// The server's settings, the first or new ones; `nil` means no limit.
        case settings(maximumStreams: Int?)
        case goAway(lastStream: Int32, code: UInt32, debugData: ByteBuffer)
        case pingAnswered
    }

    /// Thrown if the server makes the client queue more answers than it reads, or continues header blocks without end.
    struct Flood: Error, Equatable {}

    /// The state of the connection that the server's frames set (RFC 9113 §6.5.2, §6.8, §6.9).
    struct Peer {
        var maximumStreams = Int.max
        /// The initial window of a stream, in bytes of DATA.
        var streamWindow = HTTP2Streams.defaultWindow
        /// The remaining window of the connection.
        var window = HTTP2Streams.defaultWindow
        /// True once its SETTINGS, which are its preface, have arrived (RFC 9113 §3.4).
        var hasSettings = false
        /// True until it has acknowledged this side's SETTINGS.
        var awaitsAcknowledgement = true
        /// The bytes of DATA received since the last WINDOW_UPDATE of the connection.
        var unacknowledged = 0
        /// The last stream named by the last GOAWAY.
        var lastStream = Int32.max
    }

    /// The phase of the session.
    enum Phase: Equatable {
        case open
        /// The server has sent GOAWAY: requests in flight can still finish.
        case leaving
        /// This side's GOAWAY is its last frame. Nothing more is read.
        case ended
    }

    /// The connection's events since the owner last cleared them. Handled before ``HTTP2Streams/closed``, because a
    /// GOAWAY names the last stream that was processed.
    var events: [Event] = []
    var streams: HTTP2Streams
    /// The server's violation of HTTP/2, if there was one.
    var complaint: String?
    var phase = Phase.open
    var peer = Peer()
    var control = ControlFrames()
    var writer: RequestWriter
    /// The beginning of an incomplete frame.
    var partial: [UInt8] = []
    /// The number of cancelled requests whose resets have not been written.
    var pendingCancels: Int { waiting.cancelled.count }

    private var waiting: WaitingStreams

    /// - Parameters:
    ///   - authority: the value of `:authority`.
    ///   - maximumStreams: the maximum number of concurrent requests.
    ///   - firstStream: the stream identifier of the first request.
    init(authority: HeaderText, maximumStreams: Int, firstStream: Int32 = 1) {
        streams = HTTP2Streams(capacity: maximumStreams)
        writer = RequestWriter(authority: authority)
        waiting = WaitingStreams(next: firstStream)
        control.writePreface()
    }

    /// Creates a session for one request that is not a notification. The fields of its answer are kept.
    /// - Parameter maximumBodySize: the maximum number of bytes of the answer's body.
    convenience init(for request: HTTP2Request, maximumBodySize: Int) {
        self.init(authority: HeaderText(request.authority), maximumStreams: 1)
        writer.request = request
        streams.headers.fields = [:]
        streams.maximumBodySize = maximumBodySize
        _ = openStream()
    }

    /// Frees the memory, because the channel may need a while to close. The session must not be used afterwards, and
    /// none of its methods may be on the stack.
    func release() {
        phase = .ended
        streams = HTTP2Streams(capacity: 0)
        (partial, control) = ([], ControlFrames())
    }

    // MARK: Requests

    /// Opens a stream for a notification. There must be a free slot.
    /// - Returns: the stream; `nil` if the session accepts no more requests, as after a GOAWAY.
    func submit(
        _ notification: consuming Notification, tag: UInt64, deadline: NIODeadline, authorization: HeaderText?
    ) -> Int32? {
        guard let slot = openStream() else { return nil }
        slot.pointee.tag = tag
        slot.pointee.notification = consume notification
        slot.pointee.deadline = deadline
        slot.pointee.authorization = writer.place(of: authorization)
        return slot.pointee.stream
    }

    private func openStream() -> UnsafeMutablePointer<RequestSlot>? {
        let stream = waiting.next
        guard phase == .open, stream > 0, let index = streams.insert(stream) else { return nil }
        // Negative after the last one.
        waiting.next &+= 2
        waiting.unsent.append(stream)
        return streams.slots.pointer(index)
    }

    /// Cancels a request. It ends when its reset is written.
    func cancel(_ index: Int32, because failure: RequestFailure) {
        let slot = streams.slots.pointer(index)
        guard slot.pointee.failure == nil, !slot.pointee.hasEnded else { return }
        slot.pointee.failure = failure
        waiting.cancelled.append(slot.pointee.stream)
    }

    // MARK: The connection

    /// True if neither side has more to send.
    var isFinished: Bool {
        guard control.bytes.readableBytes == 0 else { return false }
        switch phase {
        case .open: return false
        case .leaving: return streams.openCount == 0 && pendingCancels == 0
        case .ended: return true
        }
    }

    /// Sends a PING (RFC 9113 §6.7), unless this side has sent GOAWAY.
    func ping() {
        guard phase != .ended else { return }
        control.ping()
    }

    /// Ends the session with a GOAWAY (RFC 9113 §6.8).
    func goAway(_ code: HTTP2ErrorCode = .noError) {
        guard phase != .ended else { return }
        phase = .ended
        control.goAway(code)
    }

    /// See ``HTTP2Streams/blockage(dueBefore:window:)``.
    func blockage(dueBefore limit: NIODeadline) -> Blockage? {
        streams.blockage(dueBefore: limit, window: peer.window)
    }

    // MARK: Output

    /// Appends the frames that can be sent.
    /// - Parameter limit: stops once the buffer has this many bytes.
    /// - Returns: true if there are no more frames to send now.
    @discardableResult
    func takeOutput(into buffer: inout ByteBuffer, upTo limit: Int = .max) -> Bool {
        resetCancelled()
        control.take(into: &buffer)
        guard phase != .ended else { return true }
        var place = 0
        while peer.window > 0, place < waiting.unfinished.count {
            guard buffer.readableBytes < limit else { return false }
            if let slot = streams.slot(of: waiting.unfinished[place]),
                !writer.writeBody(of: slot, window: &peer.window, into: &buffer)
            {
                // This stream's window is empty; those of others may not be.
                place += 1
            } else {
                waiting.unfinished.remove(at: place)
            }
        }
        while phase == .open, streams.openCount < peer.maximumStreams, let stream = waiting.unsent.first {
            guard buffer.readableBytes < limit else { return false }
            waiting.unsent.removeFirst()
            guard let slot = streams.slot(of: stream) else { continue }
            writer.writeHeaders(of: slot, into: &buffer)
            streams.open(slot, window: peer.streamWindow)
            if !writer.writeBody(of: slot, window: &peer.window, into: &buffer) { waiting.unfinished.append(stream) }
        }
        return true
    }

    /// Ends cancelled streams. Those that were answered in the meantime have already ended.
    private func resetCancelled() {
        guard !waiting.cancelled.isEmpty else { return }
        for stream in waiting.cancelled {
            let index = streams.index(of: stream)
            guard index >= 0 else { continue }
            // A GOAWAY of this side ends all streams, and nothing follows it.
            if phase != .ended, streams.slots.pointer(index).pointee.isOpen { control.reset(stream, .cancel) }
            streams.close(index, code: .cancel)
        }
        waiting.cancelled.removeAll(keepingCapacity: true)
    }
}

/// Streams that wait to be written.
private struct WaitingStreams {
    /// The identifier of the next request; negative after the last.
    var next: Int32
    /// Streams whose HEADERS have not been written, in order.
    var unsent = StreamQueue()
    /// Streams whose body waits for a window, in order.
    var unfinished: [Int32] = []
    /// Streams that were cancelled.
    var cancelled: [Int32] = []

    init(next: Int32) { self.next = next }
}

/// A queue of streams, in the order in which they are opened.
private struct StreamQueue {
    private var streams: [Int32] = []
    private var head = 0

    var first: Int32? { head < streams.count ? streams[head] : nil }

    mutating func append(_ stream: Int32) { streams.append(stream) }

    mutating func removeFirst() {
        head += 1
        if head == streams.count {
            streams.removeAll(keepingCapacity: true)
            head = 0
        } else if head == 4096 {
            streams.removeFirst(head)
            head = 0
        }
    }
}
