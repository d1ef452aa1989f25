import NIOCore
import NIOPosix
import TLS

/// Creates, reads, deletes and lists the broadcast channels of an app.
///
/// Each request has a connection of its own: there are few of them.
///
/// Source: Apple, "Sending channel management requests to APNs".
public struct ChannelClient: Sendable {
    /// How to connect, and as whom.
    public struct Configuration: Sendable {
        /// Where channels are managed, such as ``APNSEndpoint/productionChannels``.
        public var endpoint: APNSEndpoint
        /// Trust, and the client certificate where that is the credential. `h2` must be among its protocols.
        public var tls: TLSContext
        /// Signing keys: the first, and the next when APNs refuses it; none where a certificate is the credential.
        public var providerTokens: [ProviderTokenSource]
        /// The proxy to connect through.
        public var proxy: HTTPProxy?
        /// How long TCP may take, and the proxy's answer.
        public var connectTimeout = TimeAmount.seconds(10)
        /// How long TLS, the request and the answer may take together.
        public var requestTimeout = TimeAmount.seconds(30)
        /// Seconds since 1970.
        public var wallClock: @Sendable () -> Int64

        /// Takes what has no default.
        public init(
            endpoint: APNSEndpoint, tls: TLSContext, providerTokens: [ProviderTokenSource],
            wallClock: @escaping @Sendable () -> Int64
        ) {
            self.endpoint = endpoint
            self.tls = tls
            self.providerTokens = providerTokens
            self.wallClock = wallClock
        }
    }

    /// The app.
    public let bundleID: BundleID

    private let configuration: Configuration
    private let group: any EventLoopGroup

    /// - Parameter group: has the event loops to connect on.
    public init(
        bundleID: BundleID, configuration: Configuration,
        group: any EventLoopGroup = MultiThreadedEventLoopGroup.singleton
    ) {
        self.bundleID = bundleID
        self.configuration = configuration
        self.group = group
    }

    /// Creates a channel.
    /// - Throws: ``ChannelManagementError``; ``APNSConnectionError`` or `TLSError` when there was no answer. The channel may then
    ///   exist all the same, without anybody knowing its id; ``list()`` has it.
    public func create(_ policy: MessageStoragePolicy) async throws -> BroadcastChannel {
        let response = try await ask(.create(policy), expecting: 200...201)
        guard let id = ChannelRequest.created(response) else {
            throw unexpected("\(response.status) without a channel's id")
        }
        return BroadcastChannel(id: id, storagePolicy: policy)
    }

    /// Reads how a channel is configured.
    /// - Throws: ``ChannelManagementError``; ``APNSConnectionError`` or `TLSError` when there was no answer.
    public func read(id: String) async throws -> BroadcastChannel {
        try check(id)
        let response = try await ask(.read(id: id), expecting: 200...200)
        guard let channel = ChannelRequest.channel(id, response) else {
            throw unexpected("a description of the channel that cannot be read")
        }
        return channel
    }

    /// Deletes a channel; devices that listen to it hear nothing more.
    /// - Throws: ``ChannelManagementError``; ``APNSConnectionError`` or `TLSError` when there was no answer.
    public func delete(id: String) async throws {
        try check(id)
        _ = try await ask(.delete(id: id), expecting: 200...204)
    }

    /// The ids of all channels of the app.
    /// - Throws: ``ChannelManagementError``; ``APNSConnectionError`` or `TLSError` when there was no answer.
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

    private func unexpected(_ what: String) -> ChannelManagementError { .unexpected(configuration.endpoint, what) }

    // MARK: Requests

    private func ask(_ request: ChannelRequest, expecting good: ClosedRange<Int>) async throws
        -> ControlExchange.Response
    {
        var keys = configuration.providerTokens[...]
        while true {
            let key = keys.popFirst()
            let token = try key?.token(now: configuration.wallClock())
            let response = try await send(request, authorization: token.map { "bearer \($0.jwt)" })
            if good.contains(response.status) { return response }
            let refusal = refusal(response)
            guard (400...599).contains(response.status) else { throw unexpected("status \(response.status)") }
            guard refusal.isAboutKey, !keys.isEmpty else { throw ChannelManagementError.refused(refusal) }
        }
    }

    private func refusal(_ response: ControlExchange.Response) -> ChannelManagementError.Refusal {
        ChannelManagementError.Refusal(
            endpoint: configuration.endpoint,
            response: Response(
                status: response.status, body: response.body,
                retryAfter: response.headers["retry-after"].flatMap { Int($0) }),
            // Printed, so nothing but what a UUID has.
            requestID: response.headers["apns-request-id"].flatMap { APNSID($0.utf8) == nil ? nil : $0 })
    }

    private func send(_ request: ChannelRequest, authorization: String?) async throws -> ControlExchange.Response {
        let endpoint = configuration.endpoint
        let message = request.message(of: bundleID, authority: endpoint.authority, authorization: authorization)
        let eventLoop = group.next()
        let promise = eventLoop.makePromise(of: ControlExchange.Response.self)
        let dialer = Dialer(
            endpoint: endpoint, tls: configuration.tls, proxy: configuration.proxy,
            timeout: configuration.connectTimeout)
        dialer.connect(on: eventLoop).whenComplete { result in
            switch result {
            case .success(let channel): start(message, dialer, on: channel, promise)
            case .failure(let error): promise.fail(dialer.cannotConnect(error))
            }
        }
        return try await promise.futureResult.get()
    }

    /// Takes over a channel on which TCP is set up; on its event loop.
    private func start(
        _ message: ControlExchange.Request, _ dialer: Dialer, on channel: any Channel,
        _ promise: EventLoopPromise<ControlExchange.Response>
    ) {
        do {
            let handler = try ControlHandler(message, to: dialer.endpoint, promise: promise)
            try channel.pipeline.syncOperations.addHandler(handler)
            let timeout = configuration.requestTimeout
            try dialer.secure(channel, onTLS: { handler.limit(timeout, channel) })
        } catch {
            promise.fail(dialer.cannotConnect(error))
            channel.close(promise: nil)
        }
    }
}

/// The policy by which APNs stores a channel's messages for devices that are offline.
///
/// Source: Apple, "Sending channel management requests to APNs", `message-storage-policy`.
public struct MessageStoragePolicy: RawRepresentable, Hashable, Sendable {
    /// Apple's number for it.
    public var rawValue: Int

    /// Takes a number as it is.
    public init(rawValue: Int) { self.rawValue = rawValue }

    /// Nothing is kept. Such a channel takes more updates, and only those with expiration 0.
    public static let none = MessageStoragePolicy(rawValue: 0)
    /// The most recent message is kept until it expires.
    public static let mostRecent = MessageStoragePolicy(rawValue: 1)
}

/// A broadcast channel as APNs describes it.
public struct BroadcastChannel: Hashable, Sendable {
    /// The id that devices subscribe to and broadcasts are sent on: base64.
    public var id: String
    /// The messages that are stored for devices that are offline.
    public var storagePolicy: MessageStoragePolicy
    /// The push type of its messages; `LiveActivity` is the only one.
    public var pushType: String

    /// The only type of channel that there is.
    public static let liveActivity = "LiveActivity"

    /// Takes what describes a channel.
    public init(id: String, storagePolicy: MessageStoragePolicy, pushType: String = Self.liveActivity) {
        self.id = id
        self.storagePolicy = storagePolicy
        self.pushType = pushType
    }
}
