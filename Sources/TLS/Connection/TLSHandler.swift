import NIOCore

/// TLS for one channel: ciphertext on the network's side, plaintext on the application's.
///
/// Writes before the end of the handshake are buffered. At its end, the handler fires ``TLSHandshakeCompleted``. The writes of one flush
/// become as few records as possible, and one write of the channel. A failure fires `errorCaught` once with a ``TLSError``, fails the
/// pending writes and closes the channel.
///
/// If the peer closes its side with close_notify, the channel is closed. If the channel allows remote half-closure, the handler fires
/// `ChannelEvent.inputClosed` instead, and writing can continue.
public final class TLSHandler: ChannelDuplexHandler {
    public typealias InboundIn = ByteBuffer
    public typealias InboundOut = ByteBuffer
    public typealias OutboundIn = ByteBuffer
    public typealias OutboundOut = ByteBuffer

    private var session: TLSSession?
    private let setupError: TLSError?
    private let isClient: Bool
    private let closeTimeout: TimeAmount

    private var state = ConnectionState()
    private var queue = OutboundQueue()
    private var closePromise: EventLoopPromise<Void>?
    private var closeTimer: Scheduled<Void>?
    /// True if downstream has requested data and has not received any.
    private var readIsWanted = false
    private var transportFailed = false
    /// The number of bytes received since this side's last record.
    private var ignored = 0

    /// The number of bytes that a peer may send after this side's last record. Further bytes close the connection before the timeout,
    /// because reading a flood costs time.
    private static let maximumIgnored = 1 << 20

    /// Creates the client's side.
    /// - Parameters:
    ///   - host: The server's name or IP address. The certificate must be for it; a name is also sent as SNI. An invalid host fails when the channel becomes active.
    ///   - closeTimeout: The time to wait after close_notify for the peer to close as well. Closing at once could make
    ///     the kernel discard the last data sent.
    public convenience init(client context: TLSContext, host: String, closeTimeout: TimeAmount = .seconds(1)) {
        self.init(context, host: host, closeTimeout: closeTimeout)
    }

    /// Creates the server's side.
    /// - Parameter closeTimeout: The time to wait after close_notify for the peer to close as well.
    public convenience init(server context: TLSContext, closeTimeout: TimeAmount = .seconds(1)) {
        self.init(context, host: nil, closeTimeout: closeTimeout)
    }

    private init(_ context: TLSContext, host: String?, closeTimeout: TimeAmount) {
        self.isClient = host != nil
        self.closeTimeout = closeTimeout
        do throws(TLSError) {
            self.session = try TLSSession(context, host: host)
            self.setupError = nil
        } catch {
            self.setupError = error
        }
    }

    // MARK: The channel's life

    public func handlerAdded(context: ChannelHandlerContext) {
        if context.channel.isActive { start(context) }
    }

    /// Fails the writes that will not be sent.
    public func handlerRemoved(context: ChannelHandlerContext) {
        queue.fail(ChannelError.ioOnClosedChannel)
        closeTimer?.cancel()
        session = nil
    }

    public func channelActive(context: ChannelHandlerContext) {
        start(context)
        context.fireChannelActive()
    }

    /// Ends the connection, and reports a truncation if there was no close_notify.
    public func channelInactive(context: ChannelHandlerContext) {
        transportEnded(context)
        state.finish()
        queue.fail(ChannelError.ioOnClosedChannel)
        closeTimer?.cancel()
        closePromise?.succeed()
        closePromise = nil
        context.fireChannelInactive()
    }

    /// Records that the transport has reported an error, so that a truncation is not reported as well.
    public func errorCaught(context: ChannelHandlerContext, error: any Error) {
        transportFailed = true
        queue.fail(error)
        context.fireErrorCaught(error)
    }

    /// Records the end of the transport's input, which is a truncation if there was no close_notify.
    public func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        guard case ChannelEvent.inputClosed? = event as? ChannelEvent else {
            return context.fireUserInboundEventTriggered(event)
        }
        // If there was a close_notify, downstream has already received this event.
        transportEnded(context)
    }

    private func start(_ context: ChannelHandlerContext) {
        guard state.start() else { return }
        guard let session else {
            return fail(context, setupError ?? TLSError(.invalidConfiguration(reason: "no session")))
        }
        if isClient {
            let end = session.startHandshake()
            if case .failure(let error)? = end { return fail(context, error) }
            sendOutput(context, promise: nil)
        }
        // Without automatic reading, nothing else requests the handshake's messages.
        context.read()
    }

    // MARK: Inbound

    public func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        if state.isIdle { start(context) }
        let input = state.input
        let ciphertext = unwrapInboundIn(data)
        if state.isParting {
            ignored += ciphertext.readableBytes
            guard ignored <= Self.maximumIgnored else { return closeTransport(context) }
        }
        guard input != .discard, let session else { return }
        var plaintext = context.channel.allocator.buffer(capacity: session.plaintextBound(ciphertext))
        let received = session.receive(ciphertext, into: &plaintext)

        if received.handshakeCompleted { completeHandshake(context, session) }
        if case .failure? = received.end {
            // `fail` sends the alert about the failure.
        } else if session.hasOutput {
            sendOutput(context, promise: nil)
        }
        if input == .decrypt, plaintext.readableBytes > 0 {
            readIsWanted = false
            context.fireChannelRead(wrapInboundOut(plaintext))
        }
        switch received.end {
        case .closeNotify?: peerClosed(context)
        case .failure(let error)?: fail(context, error)
        case nil: break
        }
    }

    /// Reads again if the ciphertext contained no data for downstream.
    public func channelReadComplete(context: ChannelHandlerContext) {
        context.fireChannelReadComplete()
        if readIsWanted || state.isHandshaking { context.read() }
    }

    /// Records that downstream waits for data.
    public func read(context: ChannelHandlerContext) {
        readIsWanted = true
        context.read()
    }

    private func completeHandshake(_ context: ChannelHandlerContext, _ session: TLSSession) {
        state.handshakeCompleted()
        context.fireUserInboundEventTriggered(session.summary())
        // Earlier writes share a write with the client's last handshake message.
        if queue.hasFlushed { encryptFlushed(context, session) }
    }

    private func peerClosed(_ context: ChannelHandlerContext) {
        let keepsOutputOpen =
            (try? context.channel.syncOptions?.getOption(ChannelOptions.allowRemoteHalfClosure)) ?? false
        switch state.peerClosed(keepsOutputOpen: keepsOutputOpen) {
        case .signalInputClosed: context.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        case .sendCloseNotifyAndClose:
            queue.fail(ChannelError.ioOnClosedChannel)
            sendCloseNotifyAndClose(context)
        case .close: closeTransport(context)
        case .ignore: break
        }
    }

    private func transportEnded(_ context: ChannelHandlerContext) {
        switch state.transportEnded() {
        case .failHandshake: failTransport(context, .closedDuringHandshake)
        case .failTruncated: failTransport(context, .truncated)
        case .close: closeTransport(context)
        case .ignore: break
        }
    }

    // MARK: Outbound

    public func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        switch state.output {
        case .keep, .encrypt: queue.append(unwrapOutboundIn(data), promise: promise)
        case .refuse: promise?.fail(ChannelError.ioOnClosedChannel)
        }
    }

    public func flush(context: ChannelHandlerContext) {
        queue.flush()
        guard state.output == .encrypt, queue.hasFlushed, let session else { return }
        encryptFlushed(context, session)
    }

    private func encryptFlushed(_ context: ChannelHandlerContext, _ session: TLSSession) {
        let (promise, error) = queue.encrypt(with: session)
        if let error {
            promise?.fail(error)
            return fail(context, error)
        }
        sendOutput(context, promise: promise)
    }

    private func sendOutput(_ context: ChannelHandlerContext, promise: EventLoopPromise<Void>?) {
        guard let session else { return }
        context.writeAndFlush(wrapOutboundOut(session.takeOutput()), promise: promise)
    }

    // MARK: Closing

    /// Sends close_notify, and waits briefly for the peer's before the transport is closed. Data that was written but
    /// not flushed is not sent. `.input` alone is not supported.
    public func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        switch mode {
        case .all: close(context, promise: promise)
        case .output: closeOutput(context, promise: promise)
        case .input: promise?.fail(ChannelError.operationUnsupported)
        }
    }

    private func close(_ context: ChannelHandlerContext, promise: EventLoopPromise<Void>?) {
        let close = state.close()
        queue.fail(ChannelError.ioOnClosedChannel)
        guard close != .immediately else { return context.close(promise: promise) }
        remember(promise)
        switch close {
        case .immediately: break
        case .sendCloseNotifyAndAwaitPeer:
            session?.sendCloseNotify()
            sendOutput(context, promise: nil)
            awaitPeer(context)
        case .sendCloseNotifyAndClose: sendCloseNotifyAndClose(context)
        case .awaitPeer: awaitPeer(context)
        }
    }

    private func closeOutput(_ context: ChannelHandlerContext, promise: EventLoopPromise<Void>?) {
        switch state.closeOutput() {
        case .sendCloseNotify:
            queue.fail(ChannelError.outputClosed)
            session?.sendCloseNotify()
            sendOutput(context, promise: nil)
            context.close(mode: .output, promise: promise)
        case .sendCloseNotifyAndClose:
            queue.fail(ChannelError.outputClosed)
            remember(promise)
            sendCloseNotifyAndClose(context)
        case .refuse: promise?.fail(ChannelError.operationUnsupported)
        }
    }

    private func sendCloseNotifyAndClose(_ context: ChannelHandlerContext) {
        session?.sendCloseNotify()
        let sent = context.eventLoop.makePromise(of: Void.self)
        sent.futureResult.assumeIsolated().whenComplete { _ in self.closeTransport(context) }
        // If the peer does not read, the close_notify may never be sent.
        awaitPeer(context)
        sendOutput(context, promise: sent)
    }

    private func awaitPeer(_ context: ChannelHandlerContext) {
        guard closeTimer == nil else { return }
        closeTimer = context.eventLoop.assumeIsolated().scheduleTask(in: closeTimeout) { self.closeTransport(context) }
        // Without automatic reading, the peer's answer would not be seen.
        context.read()
    }

    private func closeTransport(_ context: ChannelHandlerContext) {
        state.finish()
        closeTimer?.cancel()
        let promise = closePromise
        closePromise = nil
        guard context.channel.isActive else {
            promise?.succeed()
            return
        }
        context.close(promise: promise)
    }

    private func remember(_ promise: EventLoopPromise<Void>?) {
        guard let promise else { return }
        if let closePromise {
            closePromise.futureResult.cascade(to: promise)
        } else {
            closePromise = promise
        }
    }

    private func fail(_ context: ChannelHandlerContext, _ error: TLSError) {
        guard state.fail() else {
            // The connection is already closing, so only the transport is left.
            return closeTransport(context)
        }
        queue.fail(error)
        let hasAlert = session?.hasOutput ?? false
        if hasAlert { sendOutput(context, promise: nil) }
        context.fireErrorCaught(error)
        // The peer must be able to read the alert: closing with unread data would reset the connection, and the alert
        // would be lost.
        if hasAlert { awaitPeer(context) } else { closeTransport(context) }
    }

    private func failTransport(_ context: ChannelHandlerContext, _ kind: TLSError.Kind) {
        guard let error = session?.error(kind), state.fail() else { return }
        queue.fail(error)
        // The transport has already reported the reason.
        if !transportFailed { context.fireErrorCaught(error) }
        closeTransport(context)
    }
}
