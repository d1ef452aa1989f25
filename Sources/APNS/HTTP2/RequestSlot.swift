import NIOCore

/// The state of one request, in memory that does not move.
struct RequestSlot {
    var tag: UInt64 = 0
    /// The HTTP/2 stream; 0 while the slot is free.
    var stream: Int32 = 0
    /// The index of the request's authorization in the session's list; -1 for none.
    var authorization = -1
    /// The notification, which is read when the frames are written, not when the request is submitted.
    var notification: Notification?
    /// True if HEADERS have been written.
    var isOpen = false
    /// True if the stream has ended. The slot is kept until the owner has read the answer.
    var hasEnded = false
    /// The number of bytes of DATA that the peer allows on the stream. Negative if the peer has reduced its window.
    var window = 0
    /// The number of bytes of the payload that have been written.
    var bodyOffset = 0
    /// True if the request was completely written. From then on APNs may have processed it.
    var isWritten = false
    /// The response's status; 0 until it is received.
    var status: Int32 = 0
    /// `Retry-After` in seconds; -1 if there was none.
    var retryAfter: Int32 = -1
    /// `content-length`; -1 if there was none.
    var contentLength: Int64 = -1
    var hasID = false
    /// The response's `apns-unique-id`, if it is kept.
    var uniqueID: APNSID?
    /// The size of the response's header fields so far, as SETTINGS_MAX_HEADER_LIST_SIZE counts it.
    var headerSize: Int32 = 0
    /// The bytes of the response's body so far, and the bytes of DATA since the last WINDOW_UPDATE.
    var bodySize: Int64 = 0
    var unacknowledged = 0
    /// The part of the response's body that is kept.
    var body: ByteBuffer?
    /// True if the stream was reset because the body is longer than any of APNs' bodies. The status still counts.
    var isCut = false
    /// The neighbours in the order of submission, which is also the order of deadlines; -1 at the ends.
    var previous: Int32 = -1
    var next: Int32 = -1
    var deadline: NIODeadline = .distantFuture
    /// The result to report if this side has cancelled the stream.
    var failure: RequestFailure?
}

extension UnsafeMutablePointer<RequestSlot> {
    /// True if the body is as long as `content-length` (RFC 9113 §8.1.1), unless the status has no body.
    var isWhole: Bool {
        let (length, status) = (pointee.contentLength, pointee.status)
        return length < 0 || length == pointee.bodySize || status == 204 || status == 304
    }

    /// Returns the answer of a stream that ended without an error. The body is whole, or was cut by this side. A method of the pointer,
    /// because a method of the slot would copy the whole slot.
    func response() -> Response? {
        guard pointee.status > 0, isWhole || pointee.isCut else { return nil }
        var response = Response(
            status: Int(pointee.status), body: pointee.body,
            retryAfter: pointee.retryAfter >= 0 ? Int(pointee.retryAfter) : nil)
        response.uniqueID = pointee.uniqueID
        if response.status == 200, !pointee.hasID { response.origin = pointee.bodySize > 0 ? .doubtful : .unnamed }
        return response
    }

    /// Keeps a part of the answer's body, up to the maximum.
    func keep(_ content: UnsafeBufferPointer<UInt8>, upTo maximum: Int) {
        if pointee.body == nil { pointee.body = ByteBuffer() }
        let room = Swift.max(0, maximum - (pointee.body?.readableBytes ?? 0))
        pointee.body?.writeBytes(UnsafeRawBufferPointer(content).prefix(room))
        if content.count > room { pointee.isCut = true }
    }
}

/// The slots of one connection, in a fixed block. Free slots form a stack, and used slots form a list in the order of submission.
struct RequestSlots: ~Copyable {
    let capacity: Int
    private let slots: UnsafeMutablePointer<RequestSlot>
    private var free: [Int32]
    private(set) var oldest: Int32 = -1
    private var newest: Int32 = -1

    var inUse: Int { capacity - free.count }

    init(capacity: Int) {
        self.capacity = capacity
        slots = .allocate(capacity: capacity)
        slots.initialize(repeating: RequestSlot(), count: capacity)
        free = (0..<Int32(capacity)).reversed()
    }

    deinit {
        slots.deinitialize(count: capacity)
        slots.deallocate()
    }

    func pointer(_ index: Int32) -> UnsafeMutablePointer<RequestSlot> {
        slots + Int(index)
    }

    mutating func take() -> Int32? {
        guard let index = free.popLast() else { return nil }
        let slot = pointer(index)
        slot.pointee.previous = newest
        slot.pointee.next = -1
        if newest >= 0 { pointer(newest).pointee.next = index } else { oldest = index }
        newest = index
        return index
    }

    /// Frees a slot and its contents.
    mutating func release(_ index: Int32) {
        let slot = pointer(index)
        let (previous, next) = (slot.pointee.previous, slot.pointee.next)
        if previous >= 0 { pointer(previous).pointee.next = next } else { oldest = next }
        if next >= 0 { pointer(next).pointee.previous = previous } else { newest = previous }
        slot.deinitialize(count: 1)
        slot.initialize(to: RequestSlot())
        free.append(index)
    }
}
