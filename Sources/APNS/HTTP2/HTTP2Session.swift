import NIOCore

/// The client's side of one HTTP/2 connection (RFC 9113): bytes in, bytes out, requests submitted, events returned.
///
/// It does no I/O and has no clock. `HTTP2Session+Receiving.swift` reads what arrives; this file writes. A violation of
/// HTTP/2 by the server ends the session: it sends a GOAWAY with the error's code, reads nothing more, and is finished.
///
/// Not thread-safe: it belongs to one event loop.
final class HTTP2Session {
    enum Event: Equatable {
        /// The server's settings, the first or new ones; `nil` means no limit.
        case settings(maximumStreams: Int?)
        case goAway(lastStream: Int32, code: UInt32, debugData: ByteBuffer)
        case pingAnswered
    }

    /// A stream that has ended; its slot holds the answer.
    struct ClosedStream: Equatable {
        var slot: Int32
        /// The HTTP/2 error code; 0 is NO_ERROR.
        var code: UInt32
    }

    /// Thrown if the server makes the client queue more answers than it reads, or continues header blocks without end.
    struct Flood: Error, Equatable {}

    /// The connection's events since the owner last cleared them. Handled before ``closedStreams``, because a GOAWAY
    /// names the last stream that was processed.
    var events: [Event] = []
    /// The streams that have ended since the owner last cleared them. Separate from the events, because there is one
    /// per notification.
    var closedStreams: [ClosedStream] = []
    var slots: RequestSlots
    /// True if `apns-unique-id` is read from answers.
    var keepsUniqueIDs = false
    /// The server's violation of HTTP/2, if there was one.
    var complaint: String?

    /// The maximum number of bytes kept of a response's body; APNs' bodies are under 100 bytes.
    static let maximumBodySize = 16 * 1024
    /// The maximum size in bytes of a response's header fields, including those of interim responses.
    static let maximumHeaderSize: Int32 = 16 * 1024
    /// The initial windows, until SETTINGS or WINDOW_UPDATE change them (RFC 9113 §6.9.2).
    static let defaultWindow = 65_535
    /// The maximum size of a frame's payload in both directions: the smallest that SETTINGS can set (RFC 9113 §6.5.2).
    static let maximumFrameSize = 16_384
    /// The maximum number of answers to PINGs and SETTINGS that wait to be written.
    static let maximumAnswers = 1000

    /// The limits that the peer sets (RFC 9113 §6.5.2, §6.9).
    struct Peer {
        var maximumStreams = Int.max
        /// The initial window of a stream, in bytes of DATA.
        var streamWindow = HTTP2Session.defaultWindow
        /// The remaining window of the connection.
        var window = HTTP2Session.defaultWindow
    }

    /// The phase of the session.
    enum Phase: Equatable {
        case open
        /// The server has sent GOAWAY: requests in flight can still finish.
        case leaving
        /// This side's GOAWAY is its last frame. Nothing more is read.
        case ended
    }

    var phase = Phase.open
    var peer = Peer()
    var control = ControlFrames()
    var encoder = HPACKEncoder()
    var reader: HTTP2Reader
    var streams: StreamTable
    /// The number of cancelled requests whose resets have not been written.
    var pendingCancels: Int { waiting.cancelled.count }

    private let authority: HeaderText
    /// Every authorization so far; the last one is for new requests.
    private var authorizations: [HeaderText] = []
    private var waiting: WaitingStreams

    /// - Parameters:
    ///   - authority: the value of `:authority`.
    ///   - maximumStreams: the maximum number of concurrent requests.
    ///   - firstStream: the stream identifier of the first request.
    init(authority: HeaderText, maximumStreams: Int, firstStream: Int32 = 1) {
        self.authority = authority
        slots = RequestSlots(capacity: maximumStreams)
        streams = StreamTable(capacity: maximumStreams)
        reader = HTTP2Reader()
        waiting = WaitingStreams(next: firstStream)
        writePreface()
    }

    /// Frees the memory, because the channel may need a while to close. The session must not be used afterwards, and
    /// none of its methods may be on the stack.
    func release() {
        phase = .ended
        slots = RequestSlots(capacity: 0)
        streams = StreamTable(capacity: 0)
        reader = HTTP2Reader()
        (closedStreams, control) = ([], ControlFrames())
    }

    // MARK: Requests

    /// Opens a stream for a notification. There must be a free slot.
    /// - Returns: the stream; `nil` if the session accepts no more requests, as after a GOAWAY.
    func submit(
        _ notification: consuming Notification, tag: UInt64, deadline: NIODeadline, authorization: HeaderText?
    ) -> Int32? {
        guard phase == .open, waiting.next > 0, let index = slots.take() else { return nil }
        if let authorization, authorization !== authorizations.last { authorizations.append(authorization) }
        let slot = slots.pointer(index)
        let stream = waiting.next
        // Negative after the last one.
        waiting.next &+= 2
        slot.pointee.tag = tag
        slot.pointee.notification = consume notification
        slot.pointee.deadline = deadline
        slot.pointee.authorization = authorization == nil ? -1 : authorizations.count - 1
        slot.pointee.stream = stream
        streams.insert(stream, index, slots)
        waiting.unsent.append(stream)
        return stream
    }

    /// Cancels a request. It ends when its reset is written.
    func cancel(_ index: Int32, because failure: RequestFailure) {
        let slot = slots.pointer(index)
        guard slot.pointee.failure == nil, !slot.pointee.hasEnded else { return }
        slot.pointee.failure = failure
        waiting.cancelled.append(slot.pointee.stream)
    }

    /// Frees a request's slot, and forgets its stream if that has not ended.
    func release(_ index: Int32) {
        let slot = slots.pointer(index)
        if !slot.pointee.hasEnded { forget(slot, index) }
        slots.release(index)
    }

    /// Ends a stream.
    func close(_ index: Int32, code: HTTP2ErrorCode) {
        let slot = slots.pointer(index)
        guard !slot.pointee.hasEnded else { return }
        forget(slot, index)
        slot.pointee.hasEnded = true
        closedStreams.append(ClosedStream(slot: index, code: code.rawValue))
    }

    /// Closes the requests above a stream, which will not be processed, and the unsent ones, which must not be sent
    /// (RFC 9113 §6.8).
    func closeUnprocessed(above last: Int32) {
        var index = slots.oldest
        while index >= 0 {
            let slot = slots.pointer(index)
            if slot.pointee.stream > last {
                close(index, code: .refusedStream)
            } else if !slot.pointee.isOpen, !slot.pointee.hasEnded {
                slot.pointee.failure = .goingAway(reason: nil)
                close(index, code: .cancel)
            }
            index = slot.pointee.next
        }
    }

    private func forget(_ slot: UnsafeMutablePointer<RequestSlot>, _ index: Int32) {
        streams.remove(slot.pointee.stream, index)
        if slot.pointee.isOpen { streams.openCount -= 1 }
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
        control.write(HTTP2FrameKind.ping, length: 8) { $0.update(repeating: 0, count: 8) }
    }

    /// Tells the server in a GOAWAY that this side opens no more streams and is closing.
    func goAway() { leave(.noError) }

    /// Ends the session with a GOAWAY (RFC 9113 §6.8). This side has accepted no streams, so the last is 0.
    func leave(_ code: HTTP2ErrorCode) {
        guard phase != .ended else { return }
        phase = .ended
        control.write(HTTP2FrameKind.goAway, length: 8) { bytes in
            bytes.update(repeating: 0, count: 4)
            UnsafeMutableRawPointer(bytes + 4).storeBytes(of: code.rawValue.bigEndian, as: UInt32.self)
        }
    }

    /// A request that is blocked by a flow-control window.
    struct Blockage: Equatable {
        var stream: Int32
        /// The number of bytes of its body that have been written.
        var written: Int
    }

    /// Returns the oldest open request of which more could be written if the server granted a window; `nil` if there is
    /// none.
    ///
    /// Excludes requests that wait for a free stream, because the answers to others end that wait.
    /// - Parameter limit: only requests with an earlier deadline are considered: younger ones may just be waiting for a
    ///   round trip.
    func blockage(dueBefore limit: NIODeadline) -> Blockage? {
        var index = slots.oldest
        while index >= 0 {
            let slot = slots.pointer(index)
            guard slot.pointee.deadline < limit else { return nil }
            if slot.pointee.isOpen, !slot.pointee.hasEnded, !slot.pointee.isWritten, slot.pointee.failure == nil,
                slot.pointee.window <= 0 || peer.window <= 0
            {
                return Blockage(stream: slot.pointee.stream, written: slot.pointee.bodyOffset)
            }
            index = slot.pointee.next
        }
        return nil
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
            if let slot = slot(of: waiting.unfinished[place]), !writeBody(of: slot, into: &buffer) {
                // This stream's window is empty; those of others may not be.
                place += 1
            } else {
                waiting.unfinished.remove(at: place)
            }
        }
        while phase == .open, streams.openCount < peer.maximumStreams, let stream = waiting.unsent.first {
            guard buffer.readableBytes < limit else { return false }
            waiting.unsent.removeFirst()
            guard let slot = slot(of: stream) else { continue }
            writeHeaders(of: slot, into: &buffer)
            if !writeBody(of: slot, into: &buffer) { waiting.unfinished.append(stream) }
        }
        return true
    }

    func slot(of stream: Int32) -> UnsafeMutablePointer<RequestSlot>? {
        let index = streams.slot(of: stream, slots)
        return index >= 0 ? slots.pointer(index) : nil
    }

    /// Ends cancelled streams. Those that were answered in the meantime have already ended.
    private func resetCancelled() {
        guard !waiting.cancelled.isEmpty else { return }
        for stream in waiting.cancelled {
            let index = streams.slot(of: stream, slots)
            guard index >= 0 else { continue }
            // A GOAWAY of this side ends all streams, and nothing follows it.
            if phase != .ended, slots.pointer(index).pointee.isOpen { reset(stream, .cancel) }
            close(index, code: .cancel)
        }
        waiting.cancelled.removeAll(keepingCapacity: true)
    }

    /// Sends RST_STREAM (RFC 9113 §6.4).
    func reset(_ stream: Int32, _ code: HTTP2ErrorCode) {
        control.write(HTTP2FrameKind.resetStream, stream: stream, length: 4) { bytes in
            UnsafeMutableRawPointer(bytes).storeBytes(of: code.rawValue.bigEndian, as: UInt32.self)
        }
    }

    /// Grants the server more DATA (RFC 9113 §6.9).
    func allow(_ bytes: Int, on stream: Int32) {
        control.write(HTTP2FrameKind.windowUpdate, stream: stream, length: 4) { target in
            UnsafeMutableRawPointer(target).storeBytes(of: UInt32(bytes).bigEndian, as: UInt32.self)
        }
    }

    /// Writes the client's preface and SETTINGS (RFC 9113 §3.4): no pushes, and a limit on header fields.
    private func writePreface() {
        control.bytes.writeStaticString("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        let settings = [
            (HTTP2Setting.enablePush, UInt32(0)), (HTTP2Setting.maximumHeaderListSize, UInt32(Self.maximumHeaderSize)),
        ]
        control.write(HTTP2FrameKind.settings, length: 6 * settings.count) { bytes in
            for (place, setting) in settings.enumerated() {
                let target = UnsafeMutableRawPointer(bytes + 6 * place)
                target.storeBytes(of: setting.0.bigEndian, as: UInt16.self)
                target.storeBytes(of: setting.1.bigEndian, toByteOffset: 2, as: UInt32.self)
            }
        }
    }

    /// Writes HEADERS, and CONTINUATION if they do not fit in one frame (RFC 9113 §6.2, §6.10).
    private func writeHeaders(of slot: UnsafeMutablePointer<RequestSlot>, into buffer: inout ByteBuffer) {
        let stream = slot.pointee.stream
        let place = slot.pointee.authorization
        let authorization = place >= 0 ? authorizations[place].bytes : nil
        let bound = RequestHeaders.bound(slot, authority: authority.bytes, authorization: authorization)
        let start = buffer.writerIndex
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: HTTP2FrameHeader.size + bound) { bytes in
            guard let base = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self) else { return 0 }
            var writer = ByteWriter(at: base + HTTP2FrameHeader.size)
            encoder.begin(&writer)
            RequestHeaders.write(
                slot, authority: authority.bytes, authorization: authorization, &encoder, &writer)
            let length = writer.at - base - HTTP2FrameHeader.size
            HTTP2FrameHeader(HTTP2FrameKind.headers, length: length, flags: HTTP2Flag.endHeaders, stream: stream)
                .write(to: base)
            return HTTP2FrameHeader.size + length
        }
        if buffer.writerIndex - start - HTTP2FrameHeader.size > Self.maximumFrameSize {
            splitHeaders(stream, from: start, &buffer)
        }
        streams.opened(stream)
        slot.pointee.isOpen = true
        slot.pointee.window = peer.streamWindow
    }

    private func splitHeaders(_ stream: Int32, from start: Int, _ buffer: inout ByteBuffer) {
        let from = start + HTTP2FrameHeader.size
        guard var block = buffer.getSlice(at: from, length: buffer.writerIndex - from) else { return }
        buffer.moveWriterIndex(to: start)
        var kind = HTTP2FrameKind.headers
        while let part = block.readSlice(length: min(block.readableBytes, Self.maximumFrameSize)),
            part.readableBytes > 0
        {
            let header = HTTP2FrameHeader(
                kind, length: part.readableBytes, flags: block.readableBytes == 0 ? HTTP2Flag.endHeaders : 0,
                stream: stream)
            write(header, into: &buffer)
            buffer.writeImmutableBuffer(part)
            kind = HTTP2FrameKind.continuation
        }
    }

    private func write(_ header: HTTP2FrameHeader, into buffer: inout ByteBuffer) {
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: HTTP2FrameHeader.size) { bytes in
            if let start = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self) { header.write(to: start) }
            return HTTP2FrameHeader.size
        }
    }

    /// Writes DATA as far as both windows allow (RFC 9113 §6.1, §6.9).
    /// - Returns: true if the request is completely written.
    private func writeBody(of slot: UnsafeMutablePointer<RequestSlot>, into buffer: inout ByteBuffer) -> Bool {
        guard let size = slot.pointee.notification?.payload.readableBytes else { return true }
        repeat {
            let offset = slot.pointee.bodyOffset
            let rest = size - offset
            let count = max(0, min(rest, slot.pointee.window, peer.window, Self.maximumFrameSize))
            guard count > 0 || rest == 0 else { return false }
            let isEnd = count == rest
            write(
                HTTP2FrameHeader(
                    HTTP2FrameKind.data, length: count, flags: isEnd ? HTTP2Flag.endStream : 0,
                    stream: slot.pointee.stream),
                into: &buffer)
            slot.pointee.notification?.payload.withUnsafeReadableBytes { payload in
                _ = buffer.writeBytes(UnsafeRawBufferPointer(rebasing: payload[offset..<offset + count]))
            }
            slot.pointee.bodyOffset = offset + count
            slot.pointee.window -= count
            peer.window -= count
            slot.pointee.isWritten = isEnd
        } while !slot.pointee.isWritten
        return true
    }
}

/// The slots of the streams that have not ended.
///
/// Identifiers of new streams are consecutive, so each has its own place in a table. A stream that is still open when
/// its place is needed again moves to a dictionary.
struct StreamTable: ~Copyable {
    /// The number of streams whose HEADERS have been sent and that have not ended.
    var openCount = 0
    /// The highest stream whose HEADERS have been sent: higher ones are idle (RFC 9113 §5.1.1).
    private(set) var lastOpened: Int32 = 0
    private let places: UnsafeMutablePointer<Int32>
    private let mask: Int32
    private var old: [Int32: Int32] = [:]

    init(capacity: Int) {
        var count: Int32 = 64
        while Int(count) < 2 * capacity, count < 1 << 20 { count *= 2 }
        mask = count - 1
        places = .allocate(capacity: Int(count))
        places.initialize(repeating: -1, count: Int(count))
    }

    deinit { places.deallocate() }

    private func place(of stream: Int32) -> UnsafeMutablePointer<Int32> { places + Int((stream >> 1) & mask) }

    mutating func insert(_ stream: Int32, _ slot: Int32, _ slots: borrowing RequestSlots) {
        let place = place(of: stream)
        if place.pointee >= 0 { old[slots.pointer(place.pointee).pointee.stream] = place.pointee }
        place.pointee = slot
    }

    /// Records that a stream's HEADERS were sent.
    mutating func opened(_ stream: Int32) {
        openCount += 1
        lastOpened = stream
    }

    /// Returns the slot of a stream; -1 if it has none.
    func slot(of stream: Int32, _ slots: borrowing RequestSlots) -> Int32 {
        let index = place(of: stream).pointee
        if index >= 0, slots.pointer(index).pointee.stream == stream { return index }
        return old.isEmpty ? -1 : old[stream] ?? -1
    }

    mutating func remove(_ stream: Int32, _ slot: Int32) {
        let place = place(of: stream)
        if place.pointee == slot { place.pointee = -1 } else { old[stream] = nil }
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

/// Frames that are sent before requests.
struct ControlFrames {
    fileprivate(set) var bytes = ByteBuffer()
    /// The answers to PINGs and SETTINGS among them.
    var answers = 0

    mutating func write(
        _ kind: UInt8, flags: UInt8 = 0, stream: Int32 = 0, length: Int,
        _ fill: (UnsafeMutablePointer<UInt8>) -> Void = { _ in }
    ) {
        bytes.writeWithUnsafeMutableBytes(minimumWritableBytes: HTTP2FrameHeader.size + length) { room in
            guard let start = room.baseAddress?.assumingMemoryBound(to: UInt8.self) else { return 0 }
            HTTP2FrameHeader(kind, length: length, flags: flags, stream: stream).write(to: start)
            fill(start + HTTP2FrameHeader.size)
            return HTTP2FrameHeader.size + length
        }
    }

    fileprivate mutating func take(into buffer: inout ByteBuffer) {
        guard bytes.readableBytes > 0 else { return }
        buffer.writeBuffer(&bytes)
        bytes.clear()
        answers = 0
    }
}
