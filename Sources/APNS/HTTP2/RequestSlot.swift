import NIOCore

/// The state of one request, in memory that does not move: nghttp2 holds pointers into it.
struct RequestSlot {
    /// The caller's name for the request.
    var tag: UInt64 = 0
    /// The HTTP/2 stream; 0 while the slot is free.
    var stream: Int32 = 0
    /// The notification that is sent. Its buffers must live until the stream is closed, for the header values and the
    /// body are read from them when nghttp2 serialises the frames, not when the request is submitted.
    var notification: Notification?
    /// `:path` of a token that is too long for the scratch memory.
    var longPath: ByteBuffer?
    /// How much of the payload has been serialised.
    var bodyOffset = 0
    /// True if the request was serialised to its end. From then on APNs may have processed it.
    var isWritten = false
    /// The response's status; 0 until it came.
    var status: Int32 = 0
    /// `Retry-After` in seconds; -1 where there was none.
    var retryAfter: Int32 = -1
    /// The response's `apns-unique-id`, if it is kept.
    var uniqueID: APNSID?
    /// The size of the response's header fields so far, as SETTINGS_MAX_HEADER_LIST_SIZE counts it.
    var headerSize: Int32 = 0
    /// The response's body, as far as it came.
    var body: ByteBuffer?
    /// True once the stream was reset because the body is longer than any of APNs': the status is the answer.
    var isCut = false
    /// The neighbours in the order of submission, which is the order of deadlines; -1 at the ends.
    var previous: Int32 = -1
    var next: Int32 = -1
    var deadline: NIODeadline = .distantFuture
    /// When a stream is cancelled by us, the answer to give for it.
    var failure: RequestFailure?

    /// The answer, if a status came.
    func response(on connection: Int = 0) -> Response? {
        guard status > 0 else { return nil }
        var response = Response(status: Int(status), body: body, retryAfter: retryAfter >= 0 ? Int(retryAfter) : nil)
        if uniqueID != nil { response.uniqueID = uniqueID }
        if status != 200, response.turnsAgainstConnection { response.connection = connection }
        return response
    }
}

/// The slots of one connection: a fixed block of them, the free ones as a stack, the used ones in order of submission.
struct RequestSlots: ~Copyable {
    /// The number of digits up to which a token's path is written to the scratch memory. Longer ones are rare, and room for
    /// them would be eight times as much memory for each request.
    static let shortToken = 200
    /// Room for what is written anew for each request: the path, the id, the expiration.
    static let scratchSize = 288

    let capacity: Int
    private let slots: UnsafeMutablePointer<RequestSlot>
    private let scratch: UnsafeMutablePointer<UInt8>
    private var free: [Int32]
    private(set) var oldest: Int32 = -1
    private var newest: Int32 = -1

    var inUse: Int { capacity - free.count }

    init(capacity: Int) {
        self.capacity = capacity
        slots = .allocate(capacity: capacity)
        slots.initialize(repeating: RequestSlot(), count: capacity)
        scratch = .allocate(capacity: capacity * Self.scratchSize)
        free = (0..<Int32(capacity)).reversed()
    }

    deinit {
        slots.deinitialize(count: capacity)
        slots.deallocate()
        scratch.deallocate()
    }

    func pointer(_ index: Int32) -> UnsafeMutablePointer<RequestSlot> {
        slots + Int(index)
    }

    func index(of pointer: UnsafeMutableRawPointer) -> Int32 {
        Int32(pointer.assumingMemoryBound(to: RequestSlot.self) - slots)
    }

    func scratch(_ index: Int32) -> UnsafeMutablePointer<UInt8> {
        scratch + Int(index) * Self.scratchSize
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

    /// Gives the slot back, releasing what it held.
    mutating func release(_ index: Int32) {
        let slot = pointer(index)
        let (previous, next) = (slot.pointee.previous, slot.pointee.next)
        if previous >= 0 { pointer(previous).pointee.next = next } else { oldest = next }
        if next >= 0 { pointer(next).pointee.previous = previous } else { newest = previous }
        slot.pointee = RequestSlot()
        free.append(index)
    }
}
