import NIOCore
public final class TLSContext: Sendable {}
public struct TLSHandshakeCompleted: Sendable { public var applicationProtocol: String? }
public final class TLSHandler: ChannelDuplexHandler {
    public typealias InboundIn = ByteBuffer
    public typealias InboundOut = ByteBuffer
    public typealias OutboundIn = ByteBuffer
    public typealias OutboundOut = ByteBuffer
    public init(client: TLSContext, host: String) {}
}
