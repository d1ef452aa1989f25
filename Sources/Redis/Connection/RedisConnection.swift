import NIOCore
import NIOPosix
import Sockets

/// One connection to Redis: commands are written in the order of sending, and answered in the same order. Many can be in flight at once.
///
/// `@unchecked Sendable`: all state is accessed only on `eventLoop`, which every method that accesses it checks.
final class RedisConnection: LoopBound, @unchecked Sendable {
    let eventLoop: any EventLoop
    /// The server's address, for messages.
    let address: String
    /// Called once on the event loop when the connection ends, before the unanswered commands fail.
    var onClose: ((RedisError) -> Void)?

    /// Receives the messages of subscribed channels.
    var onMessage: ((RESPReply) -> Void)?

    private let channel: any Channel
    /// The address of the server; `nil` once the connection has closed.
    var remoteAddress: SocketAddress? { channel.remoteAddress }
    private(set) var pending = PendingCommands()
    private var outgoing = ByteBuffer()
    private var flushScheduled = false
    private var timer: (deadline: NIODeadline, limit: TimeLimit)?
    /// The reason why the connection has ended; `nil` while it is open.
    private(set) var ended: RedisError?

    init(channel: any Channel, address: String) {
        self.channel = channel
        self.eventLoop = channel.eventLoop
        self.address = address
    }

    /// True if commands can be sent. Only on the event loop.
    var isOpen: Bool {
        eventLoop.preconditionInEventLoop()
        return ended == nil
    }

    /// Sends a command. All commands of one tick of the event loop are sent in one write. Only on the event loop.
    ///
    /// - Parameters:
    ///   - timeout: the timeout of the answer, after which the connection is closed; `nil` for none.
    ///   - completion: called on the event loop; before `send` returns if the command cannot be sent at all.
    func send(_ command: RedisCommand, timeout: TimeAmount?, completion: @escaping RedisCommand.Completion) {
        eventLoop.preconditionInEventLoop()
        if let ended {
            completion(.failure(.notConnected(address: address, reason: reason(of: ended))))
            return
        }
        do {
            try command.encode(into: &outgoing)
        } catch {
            completion(.failure(error))
            return
        }
        let deadline = pending.append(timeout: timeout, now: eventLoop.now, completion: completion)
        if timeout != nil { startTimer(for: deadline) }
        if !flushScheduled {
            flushScheduled = true
            eventLoop.execute { self.flush() }
        }
    }

    /// Closes the connection; unanswered commands fail.
    ///
    /// - Returns: a future that succeeds when the channel has closed.
    @discardableResult
    func close(reason: String = "it was closed by this process") -> EventLoopFuture<Void> {
        eventLoop.enter { self.lost(reason) }
        return channel.closeFuture
    }

    private func flush() {
        flushScheduled = false
        guard ended == nil, outgoing.readableBytes > 0 else { return }
        pending.markSent()
        let bytes = outgoing
        outgoing = ByteBuffer()
        channel.writeAndFlush(bytes, promise: nil)
    }

    func receive(_ reply: RESPReply) {
        guard ended == nil else { return }
        if let onMessage, reply.root.count > 0, reply.root[0].string == "message" { return onMessage(reply) }
        guard let entry = pending.answered() else {
            // A server that refuses this client, for example because it has too many clients, reports that and closes.
            if let error = reply.error {
                lost("Redis answered: \(error.message)")
            } else {
                violated("a reply without a request")
            }
            return
        }
        if let error = reply.error {
            entry.completion(.failure(.server(error)))
        } else {
            entry.completion(.success(reply))
        }
    }

    func violated(_ reason: String) {
        end(.protocolViolation(address: address, reason: reason))
    }

    func lost(_ reason: String) {
        end(.connectionLost(address: address, sent: pending.count > 0, reason: reason))
    }

    /// Starts the one timer for all commands. It looks for the next deadline only when it fires, so a command needs no timer of its own.
    private func startTimer(for deadline: NIODeadline) {
        if let timer {
            guard deadline < timer.deadline else { return }
            timer.limit.cancel()
        }
        timer = (deadline, TimeLimit(at: deadline, on: eventLoop) { self.timerFired() })
    }

    private func timerFired() {
        timer = nil
        guard ended == nil else { return }
        if let overdue = pending.overdue(at: eventLoop.now), let timeout = overdue.timeout {
            end(.timeout(address: address, after: timeout))
        } else if let next = pending.nextDeadline {
            startTimer(for: next)
        }
    }

    private func end(_ error: RedisError) {
        eventLoop.preconditionInEventLoop()
        guard ended == nil else { return }
        ended = error
        timer?.limit.cancel()
        timer = nil
        outgoing = ByteBuffer()
        let now = eventLoop.now
        let unanswered = pending.removeAll()
        channel.close(promise: nil)
        let onClose = self.onClose
        self.onClose = nil
        onMessage = nil
        onClose?(error)
        for (entry, sent) in unanswered {
            entry.completion(.failure(failure(of: entry, sent: sent, at: now, because: error)))
        }
    }

    private func failure(
        of entry: PendingCommands.Entry, sent: Bool, at now: NIODeadline, because error: RedisError
    ) -> RedisError {
        if sent {
            if case .protocolViolation = error { return error }
            if case .timeout = error, let timeout = entry.timeout, entry.deadline <= now {
                return .timeout(address: address, after: timeout)
            }
        }
        return .connectionLost(address: address, sent: sent, reason: reason(of: error))
    }

    private func reason(of error: RedisError) -> String {
        switch error {
        case .connectionLost(_, _, let reason), .protocolViolation(_, let reason): reason
        case .timeout(_, let after): "a command was not answered within \(after.formatted)"
        default: error.description
        }
    }
}

extension EventLoop {
    /// Runs a body on the event loop: at once if the caller is on it, otherwise later.
    func enter(_ body: @escaping @Sendable () -> Void) {
        if inEventLoop { body() } else { execute(body) }
    }
}

/// The commands of one connection that have not been answered, in the order of their answers.
struct PendingCommands {
    struct Entry {
        /// The time limit of the command; `nil` for none.
        let timeout: TimeAmount?
        let deadline: NIODeadline
        let completion: RedisCommand.Completion
    }

    private var entries = CircularBuffer<Entry>()
    /// The number of entries at the end of `entries` that are encoded but not yet written.
    private var unsent = 0

    var count: Int { entries.count }

    /// - Returns: the deadline of the answer.
    mutating func append(
        timeout: TimeAmount?, now: NIODeadline, completion: @escaping RedisCommand.Completion
    ) -> NIODeadline {
        let deadline = timeout.map { now + $0 } ?? .distantFuture
        entries.append(Entry(timeout: timeout, deadline: deadline, completion: completion))
        unsent += 1
        return deadline
    }

    /// Records that all commands appended so far have been written to the socket.
    mutating func markSent() {
        unsent = 0
    }

    /// Removes and returns the oldest sent command, to give it its answer; `nil` if there is none.
    mutating func answered() -> Entry? {
        guard entries.count > unsent else { return nil }
        return entries.popFirst()
    }

    /// Returns the command that is the longest overdue, if any.
    func overdue(at now: NIODeadline) -> Entry? {
        entries.lazy.filter { $0.deadline <= now }.min { $0.deadline < $1.deadline }
    }

    var nextDeadline: NIODeadline? {
        entries.lazy.map(\.deadline).filter { $0 < .distantFuture }.min()
    }

    /// Removes all commands, oldest first.
    mutating func removeAll() -> [(entry: Entry, sent: Bool)] {
        let sent = entries.count - unsent
        defer {
            entries.removeAll()
            unsent = 0
        }
        return entries.enumerated().map { (entry: $0.element, sent: $0.offset < sent) }
    }
}

/// Decodes the bytes of a channel into replies for a connection.
final class RedisChannelHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    /// Set to `nil` when the channel ends, to break a reference cycle: the connection keeps the channel, and the channel this handler.
    private(set) var connection: RedisConnection?
    private let decoder = RESPDecoder()

    init(connection: RedisConnection) {
        self.connection = connection
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard let connection else { return }
        unwrapInboundIn(data).withUnsafeReadableBytes { bytes in
            do throws(RESPDecoder.Violation) {
                var rest = bytes[...]
                while !rest.isEmpty && connection.isOpen {
                    try decoder.feed(UnsafeRawBufferPointer(rebasing: rest.prefix(RESPDecoder.portion)))
                    rest = rest.dropFirst(RESPDecoder.portion)
                    // A completion may close the connection; the remaining replies then have no receiver.
                    while connection.isOpen, let reply = try decoder.next() {
                        connection.receive(reply)
                    }
                }
            } catch {
                connection.violated(error.reason)
            }
        }
    }

    func channelInactive(context: ChannelHandlerContext) {
        connection?.lost("the server closed the connection")
        context.fireChannelInactive()
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        connection?.lost(RedisError.reason(of: error))
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        connection = nil
    }
}
