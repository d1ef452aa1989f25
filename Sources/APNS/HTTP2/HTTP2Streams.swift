import NIOCore

/// A stream that has ended; its slot holds the answer.
struct ClosedStream: Equatable {
    var slot: Int32
    /// The HTTP/2 error code; 0 is NO_ERROR.
    var code: UInt32
}

/// A request that is blocked by a flow-control window.
struct Blockage: Equatable {
    var stream: Int32
    /// The number of bytes of the request's body that have been written.
    var written: Int
}

/// The streams of a session (RFC 9113 §5.1, §8.1): the slots of their requests, their states, and the rules for the server's frames on
/// them.
struct HTTP2Streams: ~Copyable {
    /// The initial windows, until SETTINGS or WINDOW_UPDATE change them (RFC 9113 §6.9.2).
    static let defaultWindow = 65_535

    /// The slots of all streams. A stream that has ended keeps its slot until the owner has read the answer.
    private(set) var slots: RequestSlots
    /// The streams that have ended since the owner last cleared this.
    var closed: [ClosedStream] = []
    /// The number of streams that were opened by their HEADERS and have not ended.
    private(set) var openCount = 0
    /// The highest stream whose HEADERS have been sent: higher ones are idle (RFC 9113 §5.1.1).
    private var lastOpened: Int32 = 0
    private var table: StreamTable
    var headers = HeaderBlockReader()
    /// The maximum number of bytes kept of a response's body. APNs' answers to notifications are under 100 bytes.
    var maximumBodySize = 16 * 1024

    init(capacity: Int) {
        slots = RequestSlots(capacity: capacity)
        table = StreamTable(capacity: capacity)
    }

    /// - Returns: the index of the slot; `nil` if none is free.
    mutating func insert(_ stream: Int32) -> Int32? {
        guard let index = slots.take() else { return nil }
        slots.pointer(index).pointee.stream = stream
        table.insert(stream, index, slots)
        return index
    }

    /// Returns the slot of a stream that has not ended; -1 if it has none.
    func index(of stream: Int32) -> Int32 { table.slot(of: stream, slots) }

    /// Returns the slot of a stream that has not ended; `nil` if it has none.
    func slot(of stream: Int32) -> UnsafeMutablePointer<RequestSlot>? {
        let index = index(of: stream)
        return index >= 0 ? slots.pointer(index) : nil
    }

    /// True if no stream with this identifier has been opened (RFC 9113 §5.1).
    func isIdle(_ stream: Int32) -> Bool { stream > lastOpened || stream & 1 == 0 }

    /// Records that a stream's HEADERS were sent.
    /// - Parameter window: the number of bytes of DATA that the peer allows on it.
    mutating func open(_ slot: UnsafeMutablePointer<RequestSlot>, window: Int) {
        openCount += 1
        lastOpened = slot.pointee.stream
        slot.pointee.isOpen = true
        slot.pointee.window = window
    }

    mutating func close(_ index: Int32, code: HTTP2ErrorCode) {
        let slot = slots.pointer(index)
        guard !slot.pointee.hasEnded else { return }
        forget(slot, index)
        slot.pointee.hasEnded = true
        closed.append(ClosedStream(slot: index, code: code.rawValue))
    }

    /// Sends RST_STREAM, and ends a stream.
    mutating func reset(_ index: Int32, _ code: HTTP2ErrorCode, _ control: inout ControlFrames) {
        control.reset(slots.pointer(index).pointee.stream, code)
        close(index, code: code)
    }

    /// Closes the requests above the last stream, which the server will not process, and the unsent requests, which must not be sent any
    /// more (RFC 9113 §6.8).
    mutating func closeUnprocessed(above last: Int32) {
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

    /// Frees a slot, and forgets its stream if it has not ended.
    mutating func release(_ index: Int32) {
        let slot = slots.pointer(index)
        if !slot.pointee.hasEnded { forget(slot, index) }
        slots.release(index)
    }

    private mutating func forget(_ slot: UnsafeMutablePointer<RequestSlot>, _ index: Int32) {
        table.remove(slot.pointee.stream, index)
        if slot.pointee.isOpen { openCount -= 1 }
    }

    /// The number of requests that the server may be processing.
    var writtenCount: Int {
        var (count, index) = (0, slots.oldest)
        while index >= 0 {
            let slot = slots.pointer(index)
            if slot.pointee.isWritten, !slot.pointee.hasEnded { count += 1 }
            index = slot.pointee.next
        }
        return count
    }

    /// Moves the deadlines of all requests, but not beyond `latest`.
    func moveDeadlines(by time: TimeAmount, latest: NIODeadline) {
        var index = slots.oldest
        while index >= 0 {
            let slot = slots.pointer(index)
            slot.pointee.deadline = min(slot.pointee.deadline + time, latest)
            index = slot.pointee.next
        }
    }

    // MARK: DATA (§6.1)

    /// Reads DATA. Ignores it if the stream has ended.
    mutating func readData(
        _ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>, _ control: inout ControlFrames
    ) throws(HTTP2Violation) {
        let index = index(of: header.stream)
        guard index >= 0 else { return }
        let slot = slots.pointer(index)
        let content = try header.content(of: payload)
        // §8.1: header fields come first.
        guard slot.pointee.status > 0 else { throw .stream(.protocolError, slot: index) }
        slot.pointee.unacknowledged += header.length
        guard slot.pointee.unacknowledged <= Self.defaultWindow else {
            throw .stream(.flowControlError, slot: index)
        }
        slot.pointee.bodySize += Int64(content.count)
        guard slot.pointee.contentLength < 0 || slot.pointee.bodySize <= slot.pointee.contentLength else {
            throw .stream(.protocolError, slot: index)
        }
        slot.keep(content, upTo: maximumBodySize)
        if header.has(HTTP2Flag.endStream) {
            try finish(index, &control)
        } else if slot.pointee.isCut {
            reset(index, .cancel, &control)
        } else if slot.pointee.unacknowledged > Self.defaultWindow / 2 {
            control.allow(slot.pointee.unacknowledged, on: header.stream)
            slot.pointee.unacknowledged = 0
        }
    }

    /// Completes an answer.
    private mutating func finish(_ index: Int32, _ control: inout ControlFrames) throws(HTTP2Violation) {
        let slot = slots.pointer(index)
        guard slot.isWhole else { throw .stream(.protocolError, slot: index) }
        // §8.1: the server needs no more of the request.
        if !slot.pointee.isWritten { control.reset(slot.pointee.stream, .cancel) }
        close(index, code: .noError)
    }

    // MARK: HEADERS (§6.2) and CONTINUATION (§6.10)

    mutating func readHeaders(
        _ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>, _ control: inout ControlFrames
    ) throws(HTTP2Violation) {
        let stream = header.stream
        guard !isIdle(stream) else {
            throw .connection(.protocolError, "it sent HEADERS on stream \(stream), which is not open")
        }
        let hasPriority = header.has(HTTP2Flag.priority)
        var fragment = try header.content(of: payload, fields: hasPriority ? 5 : 0)
        if hasPriority {
            guard fragment.count >= 5 else {
                throw .connection(.frameSizeError, "it sent HEADERS with the priority flag, but without a priority")
            }
            fragment = UnsafeBufferPointer(rebasing: fragment[5...])
        }
        let block = HeaderBlock(
            stream: stream, endsStream: header.has(HTTP2Flag.endStream),
            isTrailer: slot(of: stream).map { $0.pointee.status >= 200 } ?? false)
        try read(block, fragment, isLast: header.has(HTTP2Flag.endHeaders), &control)
    }

    mutating func readContinuation(
        _ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>, _ control: inout ControlFrames
    ) throws(HTTP2Violation) {
        try read(headers.continued(), payload, isLast: header.has(HTTP2Flag.endHeaders), &control)
    }

    /// Reads a part of a block.
    private mutating func read(
        _ block: HeaderBlock, _ fragment: UnsafeBufferPointer<UInt8>, isLast: Bool, _ control: inout ControlFrames
    ) throws(HTTP2Violation) {
        // The owner may have released the slot since the previous part.
        let index = index(of: block.stream)
        let slot = index >= 0 ? slots.pointer(index) : nil
        let complete = try headers.read(fragment, isLast: isLast, of: block, into: slot)
        guard let complete, index >= 0 else { return }
        guard !complete.isMalformed else { throw .stream(.protocolError, slot: index) }
        if complete.endsStream { try finish(index, &control) }
    }

    // MARK: PRIORITY (§6.3) and RST_STREAM (§6.4)

    func readPriority(_ header: HTTP2FrameHeader) throws(HTTP2Violation) {
        guard header.length == 5 else {
            let index = isIdle(header.stream) ? -1 : index(of: header.stream)
            guard index >= 0 else { throw .connection(.frameSizeError, "it sent PRIORITY with an invalid length") }
            throw .stream(.frameSizeError, slot: index)
        }
        if header.stream == 0 { throw .connection(.protocolError, "it sent PRIORITY on stream 0") }
    }

    mutating func readReset(
        _ header: HTTP2FrameHeader, _ payload: UnsafeBufferPointer<UInt8>
    ) throws(HTTP2Violation) {
        guard let code = payload.number(0), payload.count == 4 else {
            throw .connection(.frameSizeError, "it sent RST_STREAM with an invalid length")
        }
        guard !isIdle(header.stream) else {
            throw .connection(.protocolError, "it sent RST_STREAM on stream \(header.stream), which is not open")
        }
        let index = index(of: header.stream)
        if index >= 0 { close(index, code: HTTP2ErrorCode(rawValue: code)) }
    }

    // MARK: Windows (§6.9)

    /// Applies a WINDOW_UPDATE of a stream.
    mutating func widen(_ stream: Int32, by increment: Int) throws(HTTP2Violation) {
        guard !isIdle(stream) else {
            throw .connection(.protocolError, "it sent WINDOW_UPDATE on stream \(stream), which is not open")
        }
        let index = index(of: stream)
        guard index >= 0 else { return }
        guard increment > 0 else { throw .stream(.protocolError, slot: index) }
        let slot = slots.pointer(index)
        slot.pointee.window += increment
        if slot.pointee.window > HTTP2FrameHeader.maximum31Bits { throw .stream(.flowControlError, slot: index) }
    }

    /// Changes the windows of all open streams (RFC 9113 §6.9.2).
    mutating func changeWindows(by change: Int) throws(HTTP2Violation) {
        var index = slots.oldest
        while index >= 0 {
            let slot = slots.pointer(index)
            if slot.pointee.isOpen, !slot.pointee.hasEnded {
                slot.pointee.window += change
                guard slot.pointee.window <= HTTP2FrameHeader.maximum31Bits else {
                    throw .connection(.flowControlError, "it made the window of a stream larger than 2³¹-1")
                }
            }
            index = slot.pointee.next
        }
    }

    /// Returns the oldest open request that waits for a flow-control window; `nil` if there is none.
    ///
    /// Requests that wait for a free stream are excluded: answers to other requests end that wait.
    /// - Parameters:
    ///   - limit: excludes requests with a later deadline, which may just be waiting for a round trip.
    ///   - window: the connection's window.
    func blockage(dueBefore limit: NIODeadline, window: Int) -> Blockage? {
        var index = slots.oldest
        while index >= 0 {
            let slot = slots.pointer(index)
            guard slot.pointee.deadline < limit else { return nil }
            if slot.pointee.isOpen, !slot.pointee.hasEnded, !slot.pointee.isWritten, slot.pointee.failure == nil,
                slot.pointee.window <= 0 || window <= 0
            {
                return Blockage(stream: slot.pointee.stream, written: slot.pointee.bodyOffset)
            }
            index = slot.pointee.next
        }
        return nil
    }
}

/// The slots of the streams that have not ended.
///
/// Identifiers of new streams are consecutive, so each stream has a place in a table. If a stream is still open when another stream needs
/// its place, the older one moves to a dictionary.
private struct StreamTable: ~Copyable {
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
