import NIOCore
import TLS

/// The owner of a connection. Called on the connection's event loop.
protocol HTTP2ConnectionOwner: AnyObject {
    /// Streams may be opened, or more or fewer of them than before. Called once for all that one read brought.
    func connectionChanged(_ connection: HTTP2Connection)
    /// The connection should be replaced by another while it still takes requests.
    func connectionWearsOut(_ connection: HTTP2Connection)
    /// A request was refused by the server, or ran into its deadline. Its completion follows.
    func connection(
        _ connection: HTTP2Connection, didNotAnswer apnsID: APNSID?, deadline: NIODeadline, isRefusal: Bool)
    /// A request has ended. The connection's stream is free again.
    func connection(_ connection: HTTP2Connection, completed tag: UInt64, with result: RequestResult)
    /// The connection is gone, and all its requests have been completed.
    func connectionClosed(_ connection: HTTP2Connection, error: any Error)
}

/// One HTTP/2 connection to APNs: the thin handler between a channel that does TLS, the HTTP/2 session, and the state
/// that decides. Belongs to its channel's event loop.
///
/// Requests that are submitted during one turn of the event loop leave in one write.
final class HTTP2Connection: ChannelDuplexHandler, HandshakingConnection {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    let id: Int
    var state: HTTP2ConnectionState
    /// Where the connection goes, for messages.
    let endpoint: APNSEndpoint

    let session: HTTP2Session
    /// Held until the connection ends: a weak reference would cost as much as a header for each completion.
    var owner: (any HTTP2ConnectionOwner)?
    var context: ChannelHandlerContext?
    private var pacing = ReadPacing()
    private var output = ByteBuffer()
    private var isFlushScheduled = false
    private var isFlushing = false
    /// True if a read is being taken, at whose end everything is flushed.
    private var isReading = false
    private var isClosing = false

    /// More than this is written only when the channel has got rid of what it was given before. What the session keeps
    /// meanwhile it bounds itself, which it cannot do for what it has given away.
    static let writeSize = 256 * 1024

    init(
        id: Int, endpoint: APNSEndpoint, maximumStreams: Int, firstStream: Int32 = 1,
        limits: HTTP2ConnectionState.Limits, owner: any HTTP2ConnectionOwner
    ) {
        self.id = id
        self.endpoint = endpoint
        self.owner = owner
        state = HTTP2ConnectionState(ownStreamLimit: maximumStreams, limits: limits)
        session = HTTP2Session(
            authority: HeaderText(endpoint.authority), maximumStreams: maximumStreams, firstStream: firstStream)
    }

    var freeStreams: Int { state.freeStreams }
    var isConnecting: Bool { state.phase == .connecting }

    /// Opens a stream for a notification.
    /// - Parameters:
    ///   - tag: comes back with the result.
    ///   - deadline: when to give the request up.
    ///   - authorization: the provider token's header, for credentials that have one.
    /// - Returns: `false` where no stream may be opened now; the notification has then not been taken.
    func submit(
        _ notification: consuming Notification, tag: UInt64, deadline: NIODeadline, authorization: HeaderText?
    ) -> Bool {
        guard state.freeStreams > 0 else { return false }
        guard
            let stream = session.submit(
                consume notification, tag: tag, deadline: deadline, authorization: authorization)
        else {
            // The session is closing: what is under way may finish.
            state.drain(reason: "the connection takes no more streams")
            owner?.connectionChanged(self)
            return false
        }
        let wearsOut = state.submitted(stream: stream)
        scheduleFlush()
        if wearsOut { owner?.connectionWearsOut(self) }
        return true
    }

    /// Finishes what is under way and closes.
    func retire(reason: String) {
        guard state.phase != .closed else { return }
        state.retire(reason: reason)
        owner?.connectionChanged(self)
        closeIfDrained()
    }

    /// Gives up what has not been written, so that it can be sent on another connection at once.
    func takeBackUnwritten() {
        guard state.phase != .closed else { return }
        var index = session.slots.oldest
        while index >= 0 {
            let slot = session.slots.pointer(index)
            if !slot.pointee.isWritten { session.cancel(index, because: .unresponsive) }
            index = slot.pointee.next
        }
        flush()
        closeIfDrained()
    }

    /// Closes; what is under way ends as lost here and now. TLS may take a second to say goodbye, and what was submitted
    /// meanwhile would never be written, but be taken for it.
    func close(_ reason: any Error) {
        guard let context, state.phase != .closed else { return }
        end(reason)
        closeChannel(context)
    }

    /// To be called a few times a second: gives up requests past their deadline, and asks a silent peer whether it is
    /// there.
    func check(now: NIODeadline) {
        var index = session.slots.oldest
        while index >= 0, session.slots.pointer(index).pointee.deadline <= now {
            session.cancel(index, because: .timedOut)
            index = session.slots.pointer(index).pointee.next
        }
        // Writing the resets is what closes the streams; until then a request that is answered is answered.
        if session.slots.oldest != index { flush() }
        switch state.check(now: now) {
        case .nothing: break
        case .sendPing:
            session.ping()
            scheduleFlush()
        case .close(let why): close(APNSConnectionError.unresponsive(endpoint, why))
        }
        closeIfDrained()
    }

    // MARK: The channel

    func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
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

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard state.phase != .closed else { return }
        isReading = true
        let bytes = unwrapInboundIn(data)
        state.bytesRead(bytes.readableBytes, now: context.eventLoop.now)
        var isFlood = false
        bytes.withUnsafeReadableBytes { bytes in
            do throws(HTTP2Session.Flood) { try session.receive(bytes) } catch { isFlood = true }
        }
        if isFlood { close(APNSConnectionError.flooded(endpoint, session.complaint ?? "")) }
        takeEvents()
        guard state.phase != .closed, let flood = state.flood else { return }
        close(APNSConnectionError.flooded(endpoint, "\(flood / 1024) KiB came that belong to no answer"))
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        // What the owner now submits leaves with what the read itself made necessary.
        owner?.connectionChanged(self)
        isReading = false
        flush()
        closeIfDrained()
        pacing.hasRead(answers: state.answers, inFlight: state.inFlight)
    }

    /// Reads on, now or after a pause.
    ///
    /// While a read is put off, another is wanted only when a write fails: for what is still there, before the channel closes.
    func read(context: ChannelHandlerContext) {
        guard pacing.pause > .zero, !pacing.isPausing else { return context.read() }
        pacing.isPausing = true
        context.eventLoop.assumeIsolated().scheduleTask(in: pacing.pause) {
            self.pacing.isPausing = false
            self.context?.read()
        }
    }

    func channelWritabilityChanged(context: ChannelHandlerContext) {
        let isWritable = context.channel.isWritable
        state.writability(isWritable, now: context.eventLoop.now)
        if isWritable {
            // Not here: this may be called by our own write.
            context.eventLoop.assumeIsolated().execute {
                self.owner?.connectionChanged(self)
                self.flush()
            }
        }
        context.fireChannelWritabilityChanged()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        close(APNSConnectionError.ended(endpoint, state, by: error))
    }

    func channelInactive(context: ChannelHandlerContext) { endedByPeer() }

    func handlerRemoved(context: ChannelHandlerContext) {
        endedByPeer()
        self.context = nil
    }

    private func endedByPeer() {
        if isClosing, state.isRetired, case .draining(let reason) = state.phase {
            return end(APNSConnectionError.retired(endpoint, reason ?? "it was not needed"))
        }
        end(APNSConnectionError.closedByPeer(endpoint, state))
    }

    /// The connection could not be made.
    func failed(_ error: any Error) { end(error) }

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
        // A request is given up in time whether or not the server reads; there are no more resets than streams.
        while !isComplete, context.channel.isWritable || session.pendingCancels > 0 {
            // When the last write has left, its memory is ours again and is used anew.
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

    /// Closes the channel. TLS says goodbye first, and until that is done nothing more may be sent.
    private func closeChannel(_ context: ChannelHandlerContext) {
        guard !isClosing else { return }
        isClosing = true
        state.drain(reason: nil)
        owner?.connectionChanged(self)
        context.close(promise: nil)
    }
}

/// Decides how long to wait before the next read. While many requests are in flight and their answers come one by one, each read
/// costs as much as several answers, so it is made when some of them should be there.
struct ReadPacing {
    /// With fewer requests in flight, every answer is read at once.
    static let minimumInFlight = 64
    /// The shortest pause apart from zero, and the longest.
    static let pauses = TimeAmount.microseconds(125)...TimeAmount.milliseconds(4)
    /// A read should bring one answer for so many requests in flight: then the pause is about this part of the time that
    /// answers take.
    private static let share = 4

    private(set) var pause = TimeAmount.zero
    /// True while a read is put off.
    var isPausing = false
    private var answers = 0

    /// Notes the end of a read.
    /// - Parameters:
    ///   - answers: the number of answers that ever came.
    ///   - inFlight: the number of requests in flight now.
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
