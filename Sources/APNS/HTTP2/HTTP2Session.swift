import NIOCore

/// The client's side of one HTTP/2 connection (RFC 9113). Its owner submits requests, passes bytes in and out, and reads events.
///
/// It does no I/O and has no clock. ``HTTP2Peer`` has the state of the connection, and ``HTTP2Streams`` the state of the streams. If the
/// server violates HTTP/2, the session sends a GOAWAY with the error's code, reads nothing more, and is finished.
///
/// Not thread-safe: it belongs to one event loop.
final class HTTP2Session {
    enum Event: Equatable {
        /// The server has sent SETTINGS; `nil` means no limit.
        case settings(maximumStreams: Int?)
        case goAway(lastStream: Int32, code: UInt32, debugData: ByteBuffer)
    }

    enum Phase: Equatable {
        case open
        /// The server has sent GOAWAY: requests in flight can still finish.
        case leaving
        /// This side's GOAWAY is its last frame. Nothing more is read.
        case ended
    }

    /// The connection's events since the owner last cleared them. The owner handles them before ``HTTP2Streams/closed``, because a GOAWAY
    /// names the last stream that was processed.
    var events: [Event] = []
    var streams: HTTP2Streams
    /// The server's violation of HTTP/2, if there was one.
    private(set) var complaint: String?
    /// True after ``HTTP2Violation/flood(_:)``. The owner must close the connection without waiting for the server to read.
    private(set) var isFlooded = false
    private(set) var phase = Phase.open
    private(set) var peer = HTTP2Peer()
    private(set) var control = ControlFrames()
    private(set) var writer: RequestWriter
    /// The beginning of an incomplete frame.
    private(set) var partial: [UInt8] = []
    /// The number of cancelled requests whose resets have not been written.
    var pendingCancels: Int { cancelled.count }

    /// The identifier of the next request; negative after the last.
    private var nextStream: Int32
    /// Streams whose HEADERS have not been written, in order.
    private var unsent = CircularBuffer<Int32>()
    /// Streams whose body waits for a window, in order.
    private var unfinished: [Int32] = []
    private var cancelled: [Int32] = []

    /// - Parameter maximumStreams: the maximum number of concurrent requests.
    init(authority: HeaderText, maximumStreams: Int, firstStream: Int32 = 1) {
        streams = HTTP2Streams(capacity: maximumStreams)
        writer = RequestWriter(authority: authority)
        nextStream = firstStream
        control.writePreface()
    }

    /// A session for one request that is not a notification. It keeps all fields of the answer.
    /// - Parameter maximumBodySize: the maximum number of bytes of the answer's body.
    convenience init(for request: HTTP2Request, maximumBodySize: Int) {
        self.init(authority: HeaderText(request.authority), maximumStreams: 1)
        writer.request = request
        streams.headers.fields = [:]
        streams.maximumBodySize = maximumBodySize
        _ = openStream()
    }

    /// Frees the memory, because the channel may need a while to close. Afterwards the session must not be used. None of its methods may be
    /// on the stack.
    func release() {
        phase = .ended
        streams = HTTP2Streams(capacity: 0)
        (partial, control) = ([], ControlFrames())
    }

    // MARK: Requests

    /// Opens a stream for a notification.
    /// - Returns: the stream; `nil` if no slot is free, or the session accepts no more requests, as after a GOAWAY.
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
        let stream = nextStream
        guard phase == .open, stream > 0, let index = streams.insert(stream) else { return nil }
        // The identifier becomes negative after the last one.
        nextStream &+= 2
        unsent.append(stream)
        return streams.slots.pointer(index)
    }

    /// Cancels a request. It ends when its reset is written.
    func cancel(_ index: Int32, because failure: RequestFailure) {
        let slot = streams.slots.pointer(index)
        guard slot.pointee.failure == nil, !slot.pointee.hasEnded else { return }
        slot.pointee.failure = failure
        cancelled.append(slot.pointee.stream)
    }

    // MARK: The connection

    /// True if neither side has more frames to send.
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
        while peer.window > 0, place < unfinished.count {
            guard buffer.readableBytes < limit else { return false }
            if let slot = streams.slot(of: unfinished[place]),
                !writer.writeBody(of: slot, window: &peer.window, into: &buffer)
            {
                // The window of this stream is empty, but other streams may have windows.
                place += 1
            } else {
                unfinished.remove(at: place)
            }
        }
        while phase == .open, streams.openCount < peer.maximumStreams, let stream = unsent.first {
            guard buffer.readableBytes < limit else { return false }
            unsent.removeFirst()
            guard let slot = streams.slot(of: stream) else { continue }
            writer.writeHeaders(of: slot, into: &buffer)
            streams.open(slot, window: peer.streamWindow)
            if !writer.writeBody(of: slot, window: &peer.window, into: &buffer) { unfinished.append(stream) }
        }
        return true
    }

    /// Ends cancelled streams, except streams that were answered in the meantime.
    private func resetCancelled() {
        guard !cancelled.isEmpty else { return }
        for stream in cancelled {
            let index = streams.index(of: stream)
            guard index >= 0 else { continue }
            // Nothing may follow a GOAWAY of this side, which ends all streams.
            if phase != .ended, streams.slots.pointer(index).pointee.isOpen { control.reset(stream, .cancel) }
            streams.close(index, code: .cancel)
        }
        cancelled.removeAll(keepingCapacity: true)
    }

    // MARK: Input

    /// Reads bytes from the server. The results are in ``events`` and ``streams``.
    func receive(_ bytes: UnsafeRawBufferPointer) {
        guard phase != .ended, let start = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self) else { return }
        guard !partial.isEmpty else {
            let used = readFrames(start, bytes.count)
            if used < bytes.count, phase != .ended {
                partial.append(contentsOf: UnsafeRawBufferPointer(rebasing: bytes[used...]))
            }
            return
        }
        var all: [UInt8] = []
        swap(&all, &partial)
        all.append(contentsOf: bytes)
        let used = all.withUnsafeBufferPointer { all in all.baseAddress.map { readFrames($0, all.count) } ?? 0 }
        all.removeFirst(used)
        if phase != .ended { partial = all }
    }

    /// Reads complete frames.
    /// - Returns: the number of bytes read.
    private func readFrames(_ start: UnsafePointer<UInt8>, _ count: Int) -> Int {
        var offset = 0
        while count - offset >= HTTP2FrameHeader.size {
            let header = HTTP2FrameHeader(start + offset)
            let end = offset + HTTP2FrameHeader.size + header.length
            do throws(HTTP2Violation) {
                try check(header)
                guard end <= count else { return offset }
                try read(
                    header, UnsafeBufferPointer(start: start + offset + HTTP2FrameHeader.size, count: header.length))
            } catch {
                record(error)
            }
            guard phase != .ended else { return count }
            offset = end
        }
        return offset
    }

    /// Ends the session or the stream that the violation concerns.
    private func record(_ violation: HTTP2Violation) {
        switch violation {
        case .connection(let code, let text):
            complaint = complaint ?? text
            goAway(code)
        case .stream(let code, let index):
            let slot = streams.slots.pointer(index)
            slot.pointee.failure = slot.pointee.failure ?? .malformed
            streams.reset(index, code, &control)
        case .flood(let text):
            complaint = complaint ?? text
            (isFlooded, phase) = (true, .ended)
        }
    }

    /// Checks a frame's header (§3.4, §4.2, §4.3, §6.10).
    private func check(_ header: HTTP2FrameHeader) throws(HTTP2Violation) {
        if !peer.hasSettings, header.kind != HTTP2FrameKind.settings || header.has(HTTP2Flag.acknowledgement) {
            throw .connection(.protocolError, "its first frame is not SETTINGS")
        }
        let maximum = HTTP2FrameHeader.maximumLength
        guard header.length <= maximum else {
            throw .connection(.frameSizeError, "it sent a frame of \(header.length) bytes, more than \(maximum)")
        }
        if let block = streams.headers.incomplete,
            header.kind != HTTP2FrameKind.continuation || header.stream != block.stream
        {
            throw .connection(.protocolError, "it sent another frame between HEADERS and CONTINUATION")
        }
    }

    private func read(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) throws(HTTP2Violation) {
        switch header.kind {
        case HTTP2FrameKind.data: try readData(header, payload)
        case HTTP2FrameKind.headers: try streams.readHeaders(header, payload, &control)
        case HTTP2FrameKind.priority: try streams.readPriority(header)
        case HTTP2FrameKind.resetStream: try streams.readReset(header, payload)
        case HTTP2FrameKind.settings: try readSettings(header, payload)
        // §8.4: this side has disabled pushes.
        case HTTP2FrameKind.pushPromise: throw .connection(.protocolError, "it sent PUSH_PROMISE")
        case HTTP2FrameKind.ping: try readPing(header, payload)
        case HTTP2FrameKind.goAway: try readGoAway(header, payload)
        case HTTP2FrameKind.windowUpdate: try readWindowUpdate(header, payload)
        case HTTP2FrameKind.continuation: try streams.readContinuation(header, payload, &control)
        // §5.5: unknown frames are ignored.
        default: break
        }
    }

    private func readData(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) throws(HTTP2Violation) {
        let stream = header.stream
        guard !streams.isIdle(stream) else {
            throw .connection(.protocolError, "it sent DATA on stream \(stream), which is not open")
        }
        try peer.received(header.length, &control)
        try streams.readData(header, payload, &control)
    }

    private func readSettings(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) throws(HTTP2Violation)
    {
        guard try peer.readSettings(header, payload, &streams, &writer.encoder, &control) else { return }
        let limit = peer.maximumStreams
        events.append(.settings(maximumStreams: limit > Int(Int32.max) ? nil : limit))
    }

    private func readPing(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) throws(HTTP2Violation) {
        guard header.length == 8 else { throw .connection(.frameSizeError, "it sent PING with an invalid length") }
        guard header.stream == 0 else { throw .connection(.protocolError, "it sent PING on stream \(header.stream)") }
        if !header.has(HTTP2Flag.acknowledgement) { try control.answer(HTTP2FrameKind.ping, payload: payload) }
    }

    private func readGoAway(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>) throws(HTTP2Violation) {
        let (last, code) = try peer.readGoAway(header, payload)
        if phase == .open { phase = .leaving }
        let debugData = UnsafeRawBufferPointer(payload).dropFirst(8).prefix(ResponseBody.maximumSize)
        events.append(.goAway(lastStream: last, code: code, debugData: ByteBuffer(bytes: debugData)))
        streams.closeUnprocessed(above: last)
    }

    private func readWindowUpdate(_ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>)
        throws(HTTP2Violation)
    {
        guard let number = payload.number(0), payload.count == 4 else {
            throw .connection(.frameSizeError, "it sent WINDOW_UPDATE with an invalid length")
        }
        let increment = Int(number) & HTTP2FrameHeader.maximum31Bits
        if header.stream == 0 {
            try peer.widen(by: increment)
        } else {
            try streams.widen(header.stream, by: increment)
        }
    }
}
