import HTTPTypes
import Hummingbird
import HummingbirdCore
import Logging
import NIOCore
import NIOHTTP1
import NIOPosix
import ServiceLifecycle
import Sockets
import TLS

/// A port that cannot be listened on.
package struct HTTPPortFailure: Error, Equatable, Sendable, CustomStringConvertible {
    /// The port, the reason, and what to do.
    package let description: String
}

/// A port for people and their tools: HTTP/1.1, unencrypted or over TLS.
///
/// Its file descriptors are limited, and it stays reachable whatever its clients do. Each request must arrive within a time limit. When the
/// port is full, a new connection replaces the connection that has waited longest for its client.
package struct HTTPPort: Sendable {
    package let port: Int
    private let services: ServiceGroup
    private let running: Task<Void, any Error>
    private let stopping: PortStop

    /// The timeout of requests in flight when the port is stopped.
    private static let grace = Duration.seconds(2)

    /// Starts to listen.
    /// - Parameters:
    ///   - name: the port's name in messages.
    ///   - port: 0 to choose a free one.
    ///   - eventLoop: the event loop of all connections.
    ///   - tls: the server's side of TLS; `nil` for an unencrypted port.
    ///   - logger: logs a warning when the port is full, at most once per minute.
    /// - Throws: ``HTTPPortFailure``.
    package static func listen<Routes: HTTPResponderBuilder>(
        _ name: String, host: String, port: Int, limits: PortLimits = PortLimits(), on eventLoop: any EventLoop,
        router: Routes, tls: Renewable<TLSContext>? = nil, logger: Logger? = nil
    ) async throws -> HTTPPort
    where Routes.Responder.Context: InitializableFromSource<ApplicationRequestContextSource> {
        // The logger is silent, because errors are reported to the client, in the answer.
        var silent = Logger(label: "http-port") { StreamLogHandler.standardError(label: $0) }
        silent.logLevel = .critical
        let maximum = limits.connections(descriptors: DescriptorLimit.current)
        let table = try await eventLoop.submit {
            NIOLoopBound(
                PortTable(name, limits, maximum: maximum, on: eventLoop, logger: logger), eventLoop: eventLoop)
        }.get()
        let stopping = PortStop()
        let (ports, listening) = AsyncThrowingStream.makeStream(of: Int.self)
        let application = Application(
            router: router,
            server: .init { GuardedChannel(responder: $0, limits: limits, table: table, tls: tls, stopping: stopping) },
            configuration: ApplicationConfiguration(address: .hostname(host, port: port), serverName: nil),
            onServerRunning: { channel in listening.yield(channel.localAddress?.port ?? port) },
            eventLoopGroupProvider: .shared(eventLoop), logger: silent)
        var configuration = ServiceGroupConfiguration(services: [application], logger: silent)
        configuration.maximumGracefulShutdownDuration = grace
        let services = ServiceGroup(configuration: configuration)
        let running = Task {
            do {
                try await services.run()
                listening.finish()
            } catch {
                listening.finish(throwing: error)
                throw error
            }
        }
        do {
            for try await port in ports {
                return HTTPPort(port: port, services: services, running: running, stopping: stopping)
            }
        } catch {
            throw HTTPPortFailure(
                description: "the \(name) cannot listen on \(host):\(port): \(ConnectFailure.reason(error)). "
                    + "Choose another port; 0 chooses a free one")
        }
        throw HTTPPortFailure(description: "the \(name) \(host):\(port) ended before it was open")
    }

    /// Answers the requests in flight, then closes the port.
    package func stop() async throws {
        stopping.request()
        await services.triggerGracefulShutdown()
        try await running.value
    }
}

/// The HTTP/1.1 connections of a port, subject to its limits.
private struct GuardedChannel: ServerChildChannel {
    private let http: HTTP1Channel
    private let table: NIOLoopBound<PortTable>
    private let tls: Renewable<TLSContext>?
    private let stopping: PortStop

    init(
        responder: @escaping HTTPChannelHandler.Responder, limits: PortLimits, table: NIOLoopBound<PortTable>,
        tls: Renewable<TLSContext>?, stopping: PortStop
    ) {
        let decoder = HTTP1Channel.Configuration.DecoderConfiguration(
            maxHeaderFieldSize: limits.headBytes, maxHeaderListSize: limits.headBytes, maxHeaderFieldCount: 100)
        http = HTTP1Channel(
            responder: responder,
            configuration: .init(additionalChannelHandlers: [RequestWatch()], httpDecoderConfiguration: decoder))
        self.table = table
        self.tls = tls
        self.stopping = stopping
    }

    func setup(channel: any Channel, logger: Logger) -> EventLoopFuture<HTTP1Channel.Value> {
        do {
            try table.value.add(channel)
            if let tls { try channel.pipeline.syncOperations.addHandler(TLSHandler(server: tls.current)) }
        } catch {
            return channel.eventLoop.makeFailedFuture(error)
        }
        return http.setup(channel: channel, logger: logger).flatMapThrowing { [stopping] value in
            let pipeline = channel.pipeline.syncOperations
            let decoder = try pipeline.handler(type: ByteToMessageHandler<HTTPRequestDecoder>.self)
            try pipeline.addHandler(ClientExpectations(stopping), position: .after(decoder))
            return value
        }
    }

    func handle(value: HTTP1Channel.Value, logger: Logger) async {
        await http.handle(value: value, logger: logger)
    }
}

extension Response {
    /// Returns an answer in JSON.
    /// - Parameter bytes: JSON, without a final line feed. The answer adds one, so that a terminal's next prompt begins
    ///   on a new line.
    package static func json(bytes: some Sequence<UInt8>, status: HTTPResponse.Status = .ok) -> Response {
        Response(
            status: status, headers: [.contentType: "application/json"],
            body: ResponseBody(byteBuffer: ByteBuffer(bytes: Array(bytes) + [0x0A])))
    }
}
