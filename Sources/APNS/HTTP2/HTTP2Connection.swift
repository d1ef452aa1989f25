import NIOCore
import TLS

/// The owner of a connection. Called on the connection's event loop.
protocol HTTP2ConnectionOwner: AnyObject {
    /// Called when ``HTTP2ConnectionState/freeStreams`` may have changed; once per read.
    func connectionChanged(_ connection: HTTP2Connection)
    /// Called when the connection should be replaced, while it still accepts requests.
    func connectionWearsOut(_ connection: HTTP2Connection)
    /// Called before the completion of a request that the server refused, or did not answer by its deadline.
    func connection(
        _ connection: HTTP2Connection, didNotAnswer apnsID: APNSID?, deadline: NIODeadline, isRefusal: Bool)
    /// The number of the newest connection. Later ones have higher numbers.
    var newestConnection: Int { get }
    /// Called after the completion of a request whose answer means that APNs accepts nothing more on this connection.
    func connectionIsRefused(_ connection: HTTP2Connection, reason: String)
    /// Called when a request has completed. Its stream is free again.
    func connection(_ connection: HTTP2Connection, completed tag: UInt64, with result: RequestResult)
    /// Called before the connection closes because a router or firewall forgot it while it was idle.
    func connectionIsStale(_ connection: HTTP2Connection)
    /// Called when the connection has closed, after all its requests have completed.
    func connectionClosed(_ connection: HTTP2Connection, error: any Error)
}

/// One HTTP/2 connection to APNs. It connects a TLS channel, an ``HTTP2Session`` and an ``HTTP2ConnectionState``, which makes the
/// decisions. Belongs to its channel's event loop.
///
/// Requests submitted during one tick of the event loop are sent in one write.
public final class HTTP2Connection: ChannelDuplexHandler {
    public typealias InboundIn = ByteBuffer
    public typealias OutboundIn = ByteBuffer
    public typealias OutboundOut = ByteBuffer

    let id: Int
    var state: HTTP2ConnectionState
    let endpoint: APNSEndpoint

    let session: HTTP2Session
    public var membership = PoolMembership()
    var record = ConnectionRecord()
    /// Not weak: a weak reference would cost as much per completion as a header field. Released when the connection ends.
    var owner: (any HTTP2ConnectionOwner)?
    var context: ChannelHandlerContext?
    private var pacing = ReadPacing()
    private var output = ByteBuffer()
    private var isFlushScheduled = false
    private var isFlushing = false
    /// True during a read, whose end flushes all output.
    private var isReading = false
    private var isClosing = false

    /// The maximum number of bytes in one write. The next write waits until the channel is writable: the channel's buffer has no limit.
    static let writeSize = 256 * 1024

    init(
        id: Int, endpoint: APNSEndpoint, firstStream: Int32 = 1, limits: HTTP2Limits,
        owner: any HTTP2ConnectionOwner
    ) {
        self.id = id
        self.endpoint = endpoint
        self.owner = owner
        state = HTTP2ConnectionState(limits)
        session = HTTP2Session(
            authority: HeaderText(endpoint.authority), maximumStreams: limits.maximumStreams, firstStream: firstStream)
    }

    /// Opens a stream for a notification.
    /// - Parameters:
    ///   - tag: returned with the result.
    ///   - deadline: the time to cancel the request.
    ///   - authorization: the provider token's header; `nil` if the credential is a certificate.
    /// - Returns: `false` if no stream can be opened now; the notification was then not accepted.
    func submit(
        _ notification: consuming Notification, tag: UInt64, deadline: NIODeadline, authorization: HeaderText?
    ) -> Bool {
        guard state.freeStreams > 0 else { return false }
        if state.inFlight == 0, let now = context?.eventLoop.now, state.wakes(now: now) { session.ping() }
        guard
            let stream = session.submit(
                consume notification, tag: tag, deadline: deadline, authorization: authorization)
        else {
            // The session accepts no more requests. Those in flight can still finish.
            state.drain(reason: "the connection accepts no more streams")
            owner?.connectionChanged(self)
            return false
        }
        let wearsOut = state.submitted(stream: stream)
        scheduleFlush()
        if wearsOut { owner?.connectionWearsOut(self) }
        return true
    }

    /// Finishes the requests in flight and closes.
    public func retire(reason: String) {
        guard state.phase != .closed else { return }
        state.retire(reason: reason)
        owner?.connectionChanged(self)
        closeIfDrained()
    }

    /// Cancels the requests that have not been written, so that they can be sent on another connection at once.
    func takeBackUnwritten() {
        guard state.phase != .closed else { return }
        var index = session.streams.slots.oldest
        while index >= 0 {
            let slot = session.streams.slots.pointer(index)
            if !slot.pointee.isWritten { session.cancel(index, because: .unresponsive) }
            index = slot.pointee.next
        }
        flush()
        closeIfDrained()
    }

    /// Closes the connection. Requests in flight are lost immediately, not when the channel has closed: TLS may need a second to send
    /// close_notify, and requests submitted in that time would count as written.
    public func close(_ reason: any Error) {
        guard let context, state.phase != .closed else { return }
        end(reason)
        closeChannel(context)
    }

    /// Cancels requests past their deadline, and pings a silent peer. Call this several times per second.
    func check(now: NIODeadline) {
        var index = session.streams.slots.oldest
        while index >= 0, session.streams.slots.pointer(index).pointee.deadline <= now {
            session.cancel(index, because: .timedOut)
            index = session.streams.slots.pointer(index).pointee.next
        }
        // A cancelled stream ends when its reset is written. Until then, its answer counts.
        if session.streams.slots.oldest != index { flush() }
        switch state.check(now: now) {
        case .nothing: break
        case .sendPing:
            session.ping()
            scheduleFlush()
        case .close(let why): close(APNSConnectionError.unresponsive(endpoint, why))
        case .closeStale(let why):
            owner?.connectionIsStale(self)
            close(APNSConnectionError.unresponsive(endpoint, why))
        }
        closeIfDrained()
    }

    /// Moves all deadlines because the process did not run for some time, and reads what has arrived.
    /// - Parameter latest: the latest deadline that a request can have now.
    func stoodStill(for time: TimeAmount, latestDeadline latest: NIODeadline, now: NIODeadline) {
        guard state.phase != .closed else { return }
        state.stoodStill(for: time, now: now)
        session.streams.moveDeadlines(by: time, latest: latest)
        // Do not wait for the end of a read's pause.
        if pacing.isPausing { context?.read() }
    }

    // MARK: The channel

    public func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        state.handshakeStarted(now: context.eventLoop.now)
    }

    public func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if let handshake = event as? TLSHandshakeCompleted {
            guard handshake.applicationProtocol == "h2" else {
                return close(APNSConnectionError.noHTTP2(endpoint, offered: handshake.applicationProtocol))
            }
            state.handshakeCompleted(now: context.eventLoop.now)
            owner?.connectionChanged(self)
            flush()
        }
        context.fireUserInboundEventTriggered(event)
    }

    public func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard state.phase != .closed else { return }
        isReading = true
        let bytes = unwrapInboundIn(data)
        state.bytesRead(bytes.readableBytes, now: context.eventLoop.now)
        bytes.withUnsafeReadableBytes { session.receive($0) }
        if session.isFlooded { close(APNSConnectionError.flooded(endpoint, session.complaint ?? "")) }
        takeEvents()
        guard state.phase != .closed, let flood = state.flood else { return }
        close(APNSConnectionError.flooded(endpoint, "\(flood / 1024) KiB arrived that belong to no answer"))
    }

    public func channelReadComplete(context: ChannelHandlerContext) {
        // Called before the flush: requests that the owner submits now share a write with the frames caused by the read.
        owner?.connectionChanged(self)
        isReading = false
        flush()
        closeIfDrained()
        pacing.hasRead(answers: state.answers, inFlight: state.inFlight)
    }

    /// Reads now or after a pause.
    ///
    /// During a pause, NIO requests another read only if a write fails, to get the remaining data before the channel closes. That read is
    /// not delayed.
    public func read(context: ChannelHandlerContext) {
        guard pacing.pause > .zero, !pacing.isPausing else { return context.read() }
        pacing.isPausing = true
        context.eventLoop.assumeIsolated().scheduleTask(in: pacing.pause) {
            self.pacing.isPausing = false
            self.context?.read()
        }
    }

    public func channelWritabilityChanged(context: ChannelHandlerContext) {
        let isWritable = context.channel.isWritable
        state.writability(isWritable, now: context.eventLoop.now)
        if isWritable {
            // Runs later, because this may have been called by our own write.
            context.eventLoop.assumeIsolated().execute {
                self.owner?.connectionChanged(self)
                self.flush()
            }
        }
        context.fireChannelWritabilityChanged()
    }

    public func errorCaught(context: ChannelHandlerContext, error: any Error) {
        close(state.meaning(of: error, endpoint))
    }

    public func channelInactive(context: ChannelHandlerContext) { endedByPeer() }

    public func handlerRemoved(context: ChannelHandlerContext) {
        endedByPeer()
        self.context = nil
    }

    private func endedByPeer() {
        if isClosing, state.isRetired, case .draining(let reason) = state.phase {
            return end(APNSConnectionError.retired(endpoint, reason ?? "it was no longer needed"))
        }
        end(state.closedByPeer(endpoint))
    }

    public func failed(_ error: any Error) { end(error) }

    // MARK: Writing

    private func scheduleFlush() {
        guard !isFlushScheduled, !isReading, let context else { return }
        isFlushScheduled = true
        context.eventLoop.assumeIsolated().execute { self.flush() }
    }

    private func flush() {
        isFlushScheduled = false
        guard !isFlushing, let context, state.phase != .connecting, state.phase != .closed else { return }
        isFlushing = true
        write(context)
        isFlushing = false
        takeEvents()
        guard session.isFinished else { return }
        if let complaint = session.complaint {
            return close(APNSConnectionError.protocolViolation(endpoint, complaint))
        }
        closeChannel(context)
    }

    private func write(_ context: ChannelHandlerContext) {
        var isComplete = false
        // Resets are written even if the server does not read, so that cancelled requests end in time. There is at most one per stream.
        while !isComplete, context.channel.isWritable || session.pendingCancels > 0 {
            // Once the last write has completed, the memory is no longer shared and is reused.
            output.clear()
            isComplete = session.takeOutput(into: &output, upTo: Self.writeSize)
            if output.readableBytes > 0 { context.writeAndFlush(wrapOutboundOut(output), promise: nil) }
        }
    }

    // MARK: Closing

    private func closeIfDrained() {
        guard state.isDrained, !isClosing, let context else { return }
        session.goAway()
        flush()
        closeChannel(context)
    }

    /// Closes the channel. TLS first sends close_notify, and nothing else may be sent until that is done.
    private func closeChannel(_ context: ChannelHandlerContext) {
        guard !isClosing else { return }
        isClosing = true
        state.drain(reason: nil)
        owner?.connectionChanged(self)
        context.close(promise: nil)
    }
}

// MARK: Completing requests

extension HTTP2Connection {
    func takeEvents() {
        var isGoingAway = false
        for event in session.events {
            switch event {
            case .settings(let maximumStreams): state.settings(maximumStreams: maximumStreams)
            case .goAway(let stream, let code, let debugData):
                goAway(lastStream: stream, code: code, debugData: debugData)
                isGoingAway = true
            }
        }
        session.events.removeAll(keepingCapacity: true)
        completeClosed()
        if isGoingAway { owner?.connectionChanged(self) }
    }

    private func completeClosed() {
        guard !session.streams.closed.isEmpty else { return }
        // A completion may make the owner close further streams. The next call completes these.
        var closed: [ClosedStream] = []
        swap(&closed, &session.streams.closed)
        for stream in closed { complete(stream.slot, code: stream.code) }
        if session.streams.closed.isEmpty {
            closed.removeAll(keepingCapacity: true)
            swap(&closed, &session.streams.closed)
        }
    }

    private func complete(_ index: Int32, code: UInt32) {
        let slot = session.streams.slots.pointer(index)
        guard slot.pointee.stream != 0 else { return }
        // This side reset the stream because the body is too long. The header fields were valid, so the answer counts.
        let isCut = slot.pointee.isCut && code == HTTP2ErrorCode.cancel.rawValue
        var result = state.ended(
            stream: slot.pointee.stream, code: isCut ? 0 : code, isWritten: slot.pointee.isWritten,
            cancelled: slot.pointee.failure, response: slot.response())
        let tag = slot.pointee.tag
        var refusal: String?
        switch result {
        case .response where slot.pointee.status == 200: break
        case .response(var response) where response.turnsAgainstConnection:
            response.connection = .init(number: id, newest: owner?.newestConnection ?? id)
            refusal = response.reasonText
            result = .response(response)
        case .uncertain(.timedOut), .notProcessed(.timedOut), .notProcessed(.refusedStream):
            owner?.connection(
                self, didNotAnswer: slot.pointee.notification?.apnsID, deadline: slot.pointee.deadline,
                isRefusal: result == .notProcessed(.refusedStream))
        default: break
        }
        session.streams.release(index)
        owner?.connection(self, completed: tag, with: result)
        if let refusal { owner?.connectionIsRefused(self, reason: refusal) }
    }

    private func goAway(lastStream: Int32, code: UInt32, debugData: ByteBuffer) {
        let reason = ResponseBody(debugData)?.reason
        state.goAway(lastStream: lastStream, reason: reason ?? (code == 0 ? nil : "HTTP/2 error code \(code)"))
    }

    private func lose(_ index: Int32, _ failure: RequestFailure? = nil, why: String) {
        let slot = session.streams.slots.pointer(index)
        let tag = slot.pointee.tag
        let result = state.lost(
            stream: slot.pointee.stream, isWritten: slot.pointee.isWritten, failure: failure, why: why)
        session.streams.release(index)
        owner?.connection(self, completed: tag, with: result)
    }

    /// Ends all requests in flight, and reports the end of the connection to the owner.
    func end(_ error: any Error) {
        guard state.phase != .closed else { return }
        takeEvents()
        let why = "\(error)"
        // The requests on a stale connection are not suspected of being the cause.
        let failure: RequestFailure =
            state.isStale
            ? .stale(why) : session.streams.writtenCount > 1 ? .lostWithOthers(why) : .connectionLost(why)
        while case let index = session.streams.slots.oldest, index >= 0 { lose(index, failure, why: why) }
        state.closed()
        owner?.connectionClosed(self, error: error)
        owner = nil
        // Frees half a megabyte that would otherwise be kept until the peer closes. Runs later, because a method of the session may
        // be on the stack.
        context?.eventLoop.assumeIsolated().execute { self.session.release() }
    }
}

extension HTTP2Connection: PooledConnection {
    public var isConnecting: Bool { state.phase == .connecting }
    public var isUsable: Bool { state.isUsable }
    public var isDraining: Bool { if case .draining = state.phase { true } else { false } }
    public var load: (inFlight: Int, limit: Int) { (state.inFlight, state.streamLimit) }
    public var lastUsed: NIODeadline { state.lastUsed }
    public var endsAsExpected: Bool { state.isRetired }

    /// The higher, the sooner this connection gets a request; 0 if it has no free stream.
    var preference: Int { record.isSuspect ? min(state.freeStreams, 1) : state.freeStreams }

    public func hasWorked(lasted: Bool) -> Bool { state.hasAnswered || lasted || state.isStale }

    public func install(on channel: any Channel, secure: () throws -> Void) throws {
        try channel.pipeline.syncOperations.addHandler(self)
        try secure()
    }

}

/// Decides how long to wait before the next read. While many requests are in flight and their answers arrive one by one, a read costs as
/// much as several answers. So the read waits until several answers should have arrived.
struct ReadPacing {
    /// With fewer requests in flight, every answer is read at once.
    static let minimumInFlight = 64
    /// The shortest pause other than zero, and the longest.
    static let pauses = TimeAmount.microseconds(125)...TimeAmount.milliseconds(4)
    /// A read should return at least one answer per this many requests in flight. So a pause is about a quarter of the time for an answer.
    private static let share = 4

    private(set) var pause = TimeAmount.zero
    /// True while a read is deferred.
    var isPausing = false
    private var answers = 0

    /// Records the end of a read.
    /// - Parameters:
    ///   - answers: the total number of answers received.
    ///   - inFlight: the number of requests in flight.
    mutating func hasRead(answers: Int, inFlight: Int) {
        let new = answers - self.answers
        self.answers = answers
        if inFlight < Self.minimumInFlight {
            pause = .zero
        } else if new * Self.share < inFlight {
            pause = min(max(pause + pause, Self.pauses.lowerBound), Self.pauses.upperBound)
        } else if new * Self.share > 2 * inFlight {
            pause = pause > Self.pauses.lowerBound ? .nanoseconds(pause.nanoseconds / 2) : .zero
        }
    }
}
