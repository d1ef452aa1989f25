import NIOCore
import TLS

/// Who owns a connection. Called on the connection's event loop.
protocol HTTP2ConnectionOwner: AnyObject {
    /// Streams may be opened, or more or fewer of them than before. Called once for all that one read brought.
    func connectionChanged(_ connection: HTTP2Connection)
    /// A request has ended. The connection's stream is free again.
    func connection(_ connection: HTTP2Connection, completed tag: UInt64, with result: RequestResult)
    /// The connection is gone, and all its requests have been completed.
    func connectionClosed(_ connection: HTTP2Connection, error: any Error)
}

/// One HTTP/2 connection to APNs: the thin handler between a channel that does TLS, nghttp2's session, and the state
/// that decides. Belongs to its channel's event loop.
///
/// Requests that are submitted during one turn of the event loop leave in one write.
final class HTTP2Connection: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    let id: Int
    private(set) var state: HTTP2ConnectionState
    /// Where the connection goes, for messages.
    let endpoint: APNSEndpoint

    /// The pool's notes on this connection: whether it counts as usable, since when, and whether it has ever worked.
    var isCounted = false
    var usableSince: NIODeadline?
    var isProven = false

    private let session: HTTP2Session
    /// Held until the connection ends: a weak reference would cost as much as a header for each completion.
    private var owner: (any HTTP2ConnectionOwner)?
    private var context: ChannelHandlerContext?
    private var output = ByteBuffer()
    private var isFlushScheduled = false
    /// Whether a read is being taken, at whose end everything is flushed.
    private var isReading = false
    private var isLeaving = false
    /// Every authorization this connection has sent, for nghttp2 may still hold a pointer into one.
    private var authorizations: [HeaderText] = []

    init(
        id: Int, endpoint: APNSEndpoint, maximumStreams: Int, limits: HTTP2ConnectionState.Limits,
        owner: any HTTP2ConnectionOwner
    ) throws {
        self.id = id
        self.endpoint = endpoint
        self.owner = owner
        state = HTTP2ConnectionState(ownStreamLimit: maximumStreams, limits: limits)
        session = try HTTP2Session(authority: HeaderText(endpoint.authority), maximumStreams: maximumStreams)
    }

    var freeStreams: Int { state.freeStreams }

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
        if let authorization, authorization !== authorizations.last { authorizations.append(authorization) }
        guard session.submit(notification, tag: tag, deadline: deadline, authorization: authorization) else {
            // Stream identifiers have run out, or the session is closing: what is under way may finish.
            state.drain(reason: "the connection takes no more streams")
            return false
        }
        state.submitted()
        scheduleFlush()
        return true
    }

    /// Finishes what is under way and closes.
    func drain(reason: String) {
        guard state.phase != .closed else { return }
        state.drain(reason: reason)
        closeIfDrained()
    }

    /// Closes; what is under way ends as lost here and now. TLS may take a second to say goodbye, and what was submitted
    /// meanwhile would never be written, but be taken for it.
    func close(_ reason: any Error) {
        guard let context, state.phase != .closed else { return }
        end(reason)
        leave(context)
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
        state.bytesRead(now: context.eventLoop.now)
        do throws(HTTP2Session.Failure) {
            var failure: HTTP2Session.Failure?
            bytes.withUnsafeReadableBytes { bytes in
                do throws(HTTP2Session.Failure) { try session.receive(bytes) } catch { failure = error }
            }
            if let failure { throw failure }
        } catch {
            close(APNSConnectionError.protocolViolation(endpoint, "\(error)"))
        }
        takeEvents()
    }

    func channelReadComplete(context: ChannelHandlerContext) {
        // What the owner now submits leaves with what the read itself made necessary.
        owner?.connectionChanged(self)
        isReading = false
        flush()
        closeIfDrained()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { close(error) }

    func channelInactive(context: ChannelHandlerContext) {
        end(APNSConnectionError.closedByPeer(endpoint, phase: state.phase))
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        end(APNSConnectionError.closedByPeer(endpoint, phase: state.phase))
        self.context = nil
    }

    /// The connection could not be made.
    func failed(_ error: any Error) { end(error) }

    // MARK: Frames

    private func scheduleFlush() {
        guard !isFlushScheduled, !isReading, let context else { return }
        isFlushScheduled = true
        context.eventLoop.assumeIsolated().execute { self.flush() }
    }

    private func flush() {
        isFlushScheduled = false
        guard let context, state.phase != .connecting, state.phase != .closed else { return }
        // When the last write has left, its memory is ours again and is used anew.
        output.clear()
        do throws(HTTP2Session.Failure) {
            try session.takeOutput(into: &output)
        } catch {
            return close(APNSConnectionError.protocolViolation(endpoint, "\(error)"))
        }
        if output.readableBytes > 0 { context.writeAndFlush(wrapOutboundOut(output), promise: nil) }
        takeEvents()
        guard session.isFinished else { return }
        // After a GOAWAY of either side all is well; otherwise nghttp2 has ended the session for a breach.
        if case .draining = state.phase { return leave(context) }
        close(APNSConnectionError.protocolViolation(endpoint, session.complaint ?? "nghttp2 gave the connection up"))
    }

    private func takeEvents() {
        var lastStream = Int32.max
        for event in session.events {
            switch event {
            case .settings(let maximumStreams): state.settings(maximumStreams: maximumStreams)
            case .goAway(let stream, let code, let debugData):
                goAway(lastStream: stream, code: code, debugData: debugData)
                lastStream = min(lastStream, stream)
            case .pingAnswered: break
            }
        }
        session.events.removeAll(keepingCapacity: true)
        completeClosed()
        // Only now: what was answered before the GOAWAY is answered, wherever it lies.
        if lastStream < .max { giveUp(above: lastStream) }
    }

    private func completeClosed() {
        guard !session.closedStreams.isEmpty else { return }
        // What the owner does upon a completion may close further ones; they are left for the next round.
        var closed: [HTTP2Session.ClosedStream] = []
        swap(&closed, &session.closedStreams)
        for stream in closed { complete(stream.slot, code: stream.code) }
        if session.closedStreams.isEmpty {
            closed.removeAll(keepingCapacity: true)
            swap(&closed, &session.closedStreams)
        }
    }

    private func complete(_ index: Int32, code: UInt32) {
        let slot = session.slots.pointer(index)
        guard slot.pointee.stream != 0 else { return }
        let result = state.ended(
            stream: slot.pointee.stream, code: code, isWritten: slot.pointee.isWritten,
            cancelled: slot.pointee.failure, response: slot.pointee.response())
        let tag = slot.pointee.tag
        session.slots.release(index)
        owner?.connection(self, completed: tag, with: result)
    }

    private func goAway(lastStream: Int32, code: UInt32, debugData: ByteBuffer) {
        let reason = ResponseBody(debugData)?.reason ?? (code == 0 ? nil : "HTTP/2 error code \(code)")
        state.goAway(lastStream: lastStream, reason: reason)
    }

    /// Completes what lies above the last stream that the server processes: nghttp2 has closed the streams that it had
    /// opened, but the others it would close only when those below have ended.
    private func giveUp(above lastStream: Int32) {
        var index = session.slots.oldest
        while index >= 0 {
            let slot = session.slots.pointer(index)
            let next = slot.pointee.next
            if slot.pointee.stream > lastStream {
                let result = state.lost(
                    stream: slot.pointee.stream, isWritten: slot.pointee.isWritten, status: slot.pointee.status,
                    why: "GOAWAY")
                let tag = slot.pointee.tag
                session.slots.release(index)
                owner?.connection(self, completed: tag, with: result)
            }
            index = next
        }
        owner?.connectionChanged(self)
    }

    private func closeIfDrained() {
        guard state.isDrained, !isLeaving, let context else { return }
        session.goAway()
        flush()
        leave(context)
    }

    /// Closes the channel. TLS says goodbye first, and until that is done nothing more may be sent.
    private func leave(_ context: ChannelHandlerContext) {
        guard !isLeaving else { return }
        isLeaving = true
        state.drain(reason: nil)
        owner?.connectionChanged(self)
        context.close(promise: nil)
    }

    private func end(_ error: any Error) {
        guard state.phase != .closed else { return }
        takeEvents()
        let why = "\(error)"
        while case let index = session.slots.oldest, index >= 0 {
            let slot = session.slots.pointer(index)
            let tag = slot.pointee.tag
            let result = state.lost(
                stream: slot.pointee.stream, isWritten: slot.pointee.isWritten, status: slot.pointee.status, why: why)
            session.slots.release(index)
            owner?.connection(self, completed: tag, with: result)
        }
        state.closed()
        owner?.connectionClosed(self, error: error)
        owner = nil
    }
}

extension RequestSlot {
    /// The answer, if a status came.
    func response() -> Response? {
        guard status > 0 else { return nil }
        return Response(status: Int(status), body: body, retryAfter: retryAfter >= 0 ? Int(retryAfter) : nil)
    }
}
