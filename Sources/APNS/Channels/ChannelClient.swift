import NIOCore
import NIOPosix
import Sockets

/// Creates, reads, deletes and lists the broadcast channels of an app.
///
/// Each request opens its own connection, because requests are rare. It throws ``ChannelManagementError`` if the server refused it, and
/// ``APNSConnectionError`` or `TLSError` if there was no answer.
///
/// Source: Apple, "Sending channel management requests to APNs".
public struct ChannelClient: LoopBound {
    public let bundleID: BundleID

    /// Connects to the server, such as ``APNSEndpoint/productionChannels``. The dialer's ALPN protocols must include `h2`.
    private let dialer: Dialer
    private let providerTokens: [ProviderTokenSource]
    private let requestTimeout: TimeAmount
    private let wallClock: @Sendable () -> Int64

    /// - Parameters:
    ///   - providerTokens: one per signing key: the next key is tried if APNs refuses one. Empty if the credential is a certificate.
    ///   - requestTimeout: for TLS, the request and the answer together.
    ///   - wallClock: returns the time in seconds since 1970.
    public init(
        bundleID: BundleID, _ dialer: Dialer, providerTokens: [ProviderTokenSource],
        requestTimeout: TimeAmount = .seconds(30), wallClock: @escaping @Sendable () -> Int64
    ) {
        self.bundleID = bundleID
        self.dialer = dialer
        self.providerTokens = providerTokens
        self.requestTimeout = requestTimeout
        self.wallClock = wallClock
    }

    /// If there was no answer, the channel may exist: ``list()`` then returns its ID.
    public func create(_ policy: MessageStoragePolicy) async throws -> BroadcastChannel {
        let response = try await ask(.create(policy), expecting: 200...201)
        guard let id = ChannelRequest.created(response) else {
            throw unexpected("\(response.status) without a channel's id")
        }
        return BroadcastChannel(id: id, storagePolicy: policy)
    }

    public func read(id: String) async throws -> BroadcastChannel {
        try check(id)
        let response = try await ask(.read(id: id), expecting: 200...200)
        guard let channel = ChannelRequest.channel(id, response) else {
            throw unexpected("a description of the channel that cannot be read")
        }
        return channel
    }

    /// Deletes a channel. Devices that subscribe to it receive nothing more.
    public func delete(id: String) async throws {
        try check(id)
        _ = try await ask(.delete(id: id), expecting: 200...204)
    }

    /// Returns the IDs of all channels of the app.
    public func list() async throws -> [String] {
        let response = try await ask(.list, expecting: 200...200)
        guard let channels = ChannelRequest.channels(response) else {
            throw unexpected("a list of channels that cannot be read")
        }
        return channels
    }

    private func check(_ id: String) throws(ChannelManagementError) {
        guard BroadcastTarget.isChannelID(id.utf8) else { throw .malformedID }
    }

    private func unexpected(_ what: String) -> ChannelManagementError { .unexpected(dialer.endpoint, what) }

    // MARK: Requests

    private func ask(_ request: ChannelRequest, expecting good: ClosedRange<Int>) async throws
        -> ControlHandler.Response
    {
        var keys = providerTokens[...]
        while true {
            let key = keys.popFirst()
            let token = try key?.token(now: wallClock())
            let response = try await send(request, authorization: token.map { "bearer \($0.jwt)" })
            if good.contains(response.status) { return response }
            let refusal = refusal(response)
            guard (400...599).contains(response.status) else { throw unexpected("status \(response.status)") }
            guard refusal.isAboutKey, !keys.isEmpty else { throw ChannelManagementError.refused(refusal) }
        }
    }

    private func refusal(_ response: ControlHandler.Response) -> ChannelManagementError.Refusal {
        ChannelManagementError.Refusal(
            endpoint: dialer.endpoint,
            response: Response(
                status: response.status, body: response.body, retryAfter: response.retryAfter),
            // The ID is printed, so only a UUID is accepted.
            requestID: response.headers["apns-request-id"].flatMap { APNSID($0.utf8) == nil ? nil : $0 })
    }

    private func send(_ request: ChannelRequest, authorization: String?) async throws -> ControlHandler.Response {
        let message = request.message(
            of: bundleID, authority: dialer.endpoint.authority, authorization: authorization)
        let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
        let promise = eventLoop.makePromise(of: ControlHandler.Response.self)
        eventLoop.flatSubmit { dialer.connect(on: eventLoop) }.whenComplete { result in
            switch result {
            case .success(let channel): start(message, on: channel, promise)
            case .failure(let error): promise.fail(dialer.cannotConnect(error))
            }
        }
        return try await promise.futureResult.get()
    }

    /// Starts the request on a channel whose TCP connection is established. Call this on the channel's event loop.
    private func start(
        _ message: HTTP2Request, on channel: any Channel, _ promise: EventLoopPromise<ControlHandler.Response>
    ) {
        let address = channel.remoteAddress
        promise.futureResult.whenComplete { AddressMemory.shared.note($0, at: address) }
        do {
            let handler = ControlHandler(message, to: dialer.endpoint, promise: promise)
            try channel.pipeline.syncOperations.addHandler(handler)
            try dialer.secure(channel, onTLS: { handler.limit(requestTimeout, channel) })
        } catch {
            promise.fail(dialer.cannotConnect(error))
            channel.close(promise: nil)
        }
    }
}
