import APNS
import Glibc
import NIOCore
import TLS

/// One connection to the binary gateway. It connects a TLS channel and a ``GatewayConnectionState``, which makes the decisions. Belongs to
/// its channel's event loop.
public final class GatewayConnection: ChannelInboundHandler, PooledConnection {
    public typealias InboundIn = ByteBuffer
    public typealias OutboundOut = ByteBuffer

    private(set) var state: GatewayConnectionState
    let endpoint: APNSEndpoint
    /// True if this side closed the connection.
    private(set) var isGivenUp = false
    /// True once an error packet has arrived.
    private(set) var hasAnswer = false

    public var membership = PoolMembership()
    private var owner: GatewayPool?
    private var context: ChannelHandlerContext?
    private let written = WrittenBytes()
    private var input = ByteBuffer()
    private var output = ByteBuffer()
    private var flushTimer: Scheduled<Void>?
    private var failure: (any Error)?
    private var isClosing = false

    init(_ state: GatewayConnectionState, owner: GatewayPool) {
        self.state = state
        self.owner = owner
        endpoint = owner.endpoint
    }

    // MARK: The pool's view

    public var isConnecting: Bool { state.phase == .connecting }
    public var isUsable: Bool { state.isUsable }
    public var isDraining: Bool { state.phase == .draining }
    public var load: (inFlight: Int, limit: Int) { (state.window.count, state.options.windowCount) }
    public var lastUsed: NIODeadline { state.lastUsed }
    public var endsAsExpected: Bool { state.isRetired || (state.isProven && hasAnswer) }

    public func hasWorked(lasted: Bool) -> Bool { state.isProven || (lasted && !state.hasSent) }

    public func install(on channel: any Channel, secure: () throws -> Void) throws {
        try channel.pipeline.syncOperations.addHandler(self)
        try secure()
        // The counter is below TLS, or below the proxy's handler until TLS replaces it.
        try channel.pipeline.syncOperations.addHandler(written, position: .first)
    }

    public func retire(reason _: String) {
        if isConnecting { close(APNSConnectionError.shutdown(endpoint)) } else { drain() }
    }

    // MARK: Sending

    /// Sends a notification with the next batch. There must be capacity.
    func submit(_ notification: consuming Notification, tag: UInt64) {
        let estimate =
            notification.payload.readableBytes + notification.deviceToken.hex.readableBytes / 2
            + GatewayFrame.overhead
        if output.readableBytes > 0, output.readableBytes + estimate > state.options.batchBytes { flush() }
        let before = output.readableBytes
        let token = notification.deviceToken
        state.options.frame.write(notification, identifier: state.window.next, into: &output)
        state.send(tag: tag, size: output.readableBytes - before, token: token)
        if output.readableBytes >= state.options.batchBytes { return flush() }
        scheduleFlush()
    }

    private func scheduleFlush() {
        guard flushTimer == nil, let context else { return }
        flushTimer = context.eventLoop.assumeIsolated().scheduleTask(in: .milliseconds(Int64(state.options.batchTime)))
        {
            self.flush()
        }
    }

    private func flush() {
        flushTimer?.cancel()
        flushTimer = nil
        guard output.readableBytes > 0, let context, state.phase == .open || state.phase == .draining, !hasAnswer else {
            return
        }
        context.writeAndFlush(wrapOutboundOut(output), promise: nil)
        // Once the write has completed, the memory is no longer shared and is reused.
        output.clear()
        state.left(position: written.position, now: context.eventLoop.now)
    }

    /// Stops sending, and closes when the outcome of everything sent is known.
    func drain() {
        let wasOpen = state.phase == .open
        let barrier = state.drain()
        if let barrier { state.options.frame.writeBarrier(identifier: barrier, into: &output) }
        flush()
        if wasOpen { owner?.connectionChanged(self) }
        closeIfDrained()
    }

    func confirm(after time: TimeAmount) { state.confirm(after: time) }

    // MARK: The channel

    public func handlerAdded(context: ChannelHandlerContext) { self.context = context }

    public func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if event is TLSHandshakeCompleted {
            state.opened(now: context.eventLoop.now)
            owner?.connectionChanged(self)
        }
        context.fireUserInboundEventTriggered(event)
    }

    public func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !hasAnswer, state.phase != .closed else { return }
        var bytes = unwrapInboundIn(data)
        input.writeBuffer(&bytes)
        do throws(GatewayPacket.UnknownCommand) {
            guard let packet = try GatewayPacket.read(from: &input) else { return }
            answered(packet)
        } catch {
            close(APNSConnectionError.protocolViolation(endpoint, "\(error)"))
        }
    }

    private func answered(_ packet: GatewayPacket) {
        hasAnswer = true
        // The unsent frames are discarded: they belong to notifications after the one that the packet names.
        output.clear()
        let before = state.window.first
        let findings = state.answered(packet)
        let progress = Int(before - 1) + findings.confirmed.count
        for tag in findings.confirmed { owner?.connection(self, completed: tag, with: .confirmed) }
        if let named = findings.named { owner?.connection(self, completed: named.tag, with: .refused(named.status)) }
        // A gateway that shuts down without having accepted anything has made no progress: notifications would be resent to it forever.
        let made = findings.named != nil || progress > 0
        let discarded = RequestResult.notProcessed(made ? .discarded : .goingAway(reason: packet.status.name))
        for tag in findings.discarded { owner?.connection(self, completed: tag, with: discarded) }
        let why = "the error packet names no notification that was sent"
        let failure = findings.uncertain.count > 1 ? RequestFailure.lostWithOthers(why) : .connectionLost(why)
        for tag in findings.uncertain { owner?.connection(self, completed: tag, with: .uncertain(failure)) }
        self.failure =
            self.failure
            ?? APNSConnectionError.closedByPeer(endpoint, whileConnecting: false, reason: packet.status.name)
        owner?.connection(self, answered: packet, progress: progress, findings: findings)
        if let context { closeChannel(context) }
    }

    public func channelWritabilityChanged(context: ChannelHandlerContext) {
        state.writability(context.channel.isWritable)
        if context.channel.isWritable {
            // Runs later, because this may have been called by our own write.
            context.eventLoop.assumeIsolated().execute { self.owner?.connectionChanged(self) }
        }
        context.fireChannelWritabilityChanged()
    }

    public func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if failure == nil {
            let isTruncation = (error as? TLSError)?.kind == .truncated
            if !isTruncation {
                failure =
                    error is TLSError || error is APNSConnectionError
                    ? error
                    : APNSConnectionError.broken(endpoint, whileConnecting: state.phase == .connecting, "\(error)")
            }
        }
        context.close(promise: nil)
    }

    public func channelInactive(context: ChannelHandlerContext) { end() }

    public func handlerRemoved(context: ChannelHandlerContext) {
        end()
        self.context = nil
    }

    // MARK: Time

    /// Confirms notifications that are old enough, and closes a dead or drained connection. Call this several times per second.
    func check(now: NIODeadline) {
        guard let context, state.phase != .connecting, state.phase != .closed else { return }
        // If the kernel does not report acknowledgements, everything written counts as acknowledged.
        let acknowledged = written.acknowledged(on: context.channel) ?? written.position
        let check = state.check(acknowledged: acknowledged, now: now)
        for tag in check.confirmed { owner?.connection(self, completed: tag, with: .confirmed) }
        if let why = check.unresponsive { return close(APNSConnectionError.unresponsive(endpoint, why)) }
        if !check.confirmed.isEmpty { owner?.connectionChanged(self) }
        closeIfDrained()
    }

    func stoodStill(for time: TimeAmount, now: NIODeadline) { state.stoodStill(for: time, now: now) }

    // MARK: Closing

    /// Closes the connection. The outcomes of the notifications in the window are unknown.
    public func close(_ reason: any Error) {
        failure = failure ?? reason
        isGivenUp = true
        guard let context else { return end() }
        end()
        closeChannel(context)
    }

    public func failed(_ error: any Error) {
        failure = error
        end()
    }

    private func closeIfDrained() {
        guard state.isDrained, let context else { return }
        closeChannel(context)
    }

    private func closeChannel(_ context: ChannelHandlerContext) {
        guard !isClosing else { return }
        isClosing = true
        owner?.connectionChanged(self)
        context.close(promise: nil)
    }

    private func end() {
        guard state.phase != .closed, let owner else { return }
        let error = failure ?? explanation
        failure = error
        flushTimer?.cancel()
        let result = state.window.count > 0 ? owner.uncertainResult(of: self) : .confirmed
        for tag in state.ended() { owner.connection(self, completed: tag, with: result) }
        self.owner = nil
        owner.connectionClosed(self, error: error)
    }

    /// The reason for the end, if no other reason was recorded.
    private var explanation: APNSConnectionError {
        switch state.phase {
        case .connecting: .closedByPeer(endpoint, whileConnecting: true, reason: nil)
        case .draining where state.isRetired: .retired(endpoint, "it was no longer needed")
        case .open where !state.isProven: .hungUp(endpoint, .beforeConfirmation)
        case .open, .draining, .closed: .closedByPeer(endpoint, whileConnecting: false, reason: nil)
        }
    }
}

/// Counts the bytes written to the socket, below TLS, and how many of them the other side's kernel has acknowledged.
///
/// The kernel buffers what is written to a dead connection. Without this count, notifications in that buffer would be confirmed by age.
final class WrittenBytes: ChannelOutboundHandler {
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// The total number of bytes written.
    private(set) var position = 0

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
        position += unwrapOutboundIn(data).readableBytes
        context.write(data, promise: promise)
    }

    /// Returns the number of bytes acknowledged by the other side's kernel; `nil` if it is unknown.
    func acknowledged(on channel: any Channel) -> Int? {
        guard let options = channel.syncOptions, let waiting = try? options.getOption(.bufferedWritableBytes),
            let queued = Self.queued(channel)
        else { return nil }
        return position - waiting - queued
    }

    /// Returns the number of bytes in the kernel's send queue, including unacknowledged bytes (`tcp(7)`, SIOCOUTQ).
    private static func queued(_ channel: any Channel) -> Int? {
        let count: CInt?? = try? channel.pipeline.syncOperations.withUnsafeTransportIfAvailable(
            of: NIOBSDSocket.Handle.self
        ) { socket in
            var count: CInt = 0
            return ioctl(socket, UInt(TIOCOUTQ), &count) == 0 ? count : nil
        }
        return count.flatMap { $0 }.map(Int.init)
    }
}
