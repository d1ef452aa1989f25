import NIOCore
import TestSupport
import Testing

@testable import APNS

@Suite("Channel management through a proxy", .timeLimit(.minutes(10)))
struct ChannelProxyTests {
    @Test("is asked for the server's name and port, also if its answer arrives slowly", arguments: [true, false])
    func works(slowly: Bool) async throws {
        try await withPeer(script: ChannelClientTests.script([ChannelClientTests.answer(204)])) { peer in
            try await withProxy(slowly ? .connectsSlowly : .connects) { proxy in
                let client = try ChannelClientTests.client(peer) {
                    $0.endpoint.host = "localhost"
                    $0.proxy = HTTPProxy(host: "127.0.0.1", port: proxy.port)
                }
                try await client.delete(id: "YQ==")
                let heads = proxy.requests.withLockedValue { $0 }
                #expect(heads.count == 1 && heads.first?.hasPrefix("CONNECT localhost:\(peer.port) ") == true)
            }
        }
    }

    @Test(
        "is named when it refuses, closes or stays silent",
        arguments: [
            TestProxy.Behaviour.answers("HTTP/1.1 403 Forbidden\r\n\r\n", closes: false), .answers("", closes: true),
            .staysSilent,
        ])
    func fails(behaviour: TestProxy.Behaviour) async throws {
        try await withPeer { peer in
            try await withProxy(behaviour) { proxy in
                let client = try ChannelClientTests.client(peer) {
                    $0.proxy = HTTPProxy(host: "127.0.0.1", port: proxy.port)
                    $0.connectTimeout = .milliseconds(300)
                }
                let error = await #expect(throws: APNSConnectionError.self) { _ = try await client.list() }
                #expect(error?.description.contains("through") == true, "\(error as Any)")
                #expect(peer.seen.withLockedValue(\.connections) == 0)
            }
        }
    }
}
