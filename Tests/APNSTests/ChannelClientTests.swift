import NIOCore
import TestSupport
import Testing

@testable import APNS

/// Requests and answers of Apple's "Sending channel management requests to APNs".
@Suite("Channel management", .timeLimit(.minutes(10)))
struct ChannelClientTests {
    private static let id = "dHN0LXNyY2gtY2hubA=="

    static func client(
        _ peer: ScriptedPeer, keys: Int = 1, timeout: TimeAmount = .seconds(60),
        _ change: (inout Dialer) throws -> Void = { _ in }
    ) throws -> ChannelClient {
        let sources = try (0..<keys).map { number in
            try ProviderTokenSource(key: .example(), keyID: "ABC123DEF\(number)", teamID: "TEAM123456")
        }
        var dialer = Dialer(
            endpoint: APNSEndpoint(host: "127.0.0.1", port: peer.port),
            tls: try TestCertificates.client(protocols: ["h2"]))
        try change(&dialer)
        return ChannelClient(
            bundleID: try BundleID(topic: "com.example.app"), dialer, providerTokens: sources,
            requestTimeout: timeout, wallClock: { 1_792_800_000 })
    }

    static func answer(_ status: Int, _ fields: [(String, String)] = [], ends: Bool = true) -> HTTP2Frame {
        .answer(1, status: status, fields: fields, ends: ends)
    }

    static func answer(_ status: Int, body: String, _ fields: [(String, String)] = []) -> [HTTP2Frame] {
        [answer(status, fields, ends: false), .data(1, body)]
    }

    /// Answers each complete request with these frames.
    static func script(_ frames: [HTTP2Frame]) -> ScriptedPeer.Script {
        { connection, event in
            switch event {
            case .connected: connection.send(.settings())
            case .frame(let frame) where frame.endsStream && [.headers, .data].contains(frame.kind):
                connection.send(bytes: frames.flatMap(\.bytes))
            case .frame: break
            }
        }
    }

    private func request(of peer: ScriptedPeer) throws -> (fields: [String], body: String) {
        let frames = peer.seen.withLockedValue(\.frames)
        let fields = try #require(frames.first { $0.kind == .headers }).headers
            .filter { $0.name != "authorization" && $0.name != ":authority" }.map(\.description)
        let body = frames.filter { $0.kind == .data }.flatMap(\.payload)
        return (fields, String(decoding: body, as: UTF8.self))
    }

    private static func fields(_ method: String, _ path: String, _ more: String...) -> [String] {
        [":method: \(method)", ":scheme: https", ":path: /1/apps/com.example.app/\(path)"] + more
    }

    @Test("creates a channel, whose id comes in a header field")
    func create() async throws {
        try await withPeer(script: Self.script([Self.answer(201, [("apns-channel-id", Self.id)])])) { peer in
            let channel = try await Self.client(peer).create(.mostRecent)
            #expect(channel == BroadcastChannel(id: Self.id, storagePolicy: .mostRecent))
            let request = try request(of: peer)
            #expect(request.fields == Self.fields("POST", "channels", "content-type: application/json"))
            #expect(request.body == #"{"message-storage-policy":1,"push-type":"LiveActivity"}"#)
            let authorization = peer.seen.withLockedValue(\.frames).flatMap(\.headers)
                .first { $0.name == "authorization" }
            #expect(authorization?.value.hasPrefix("bearer ey") == true)
            #expect(authorization?.isNeverIndexed == true)
        }
    }

    @Test("reads a channel, also byte by byte and with unknown members in the answer")
    func read() async throws {
        let body = #" {"push-type":"LiveActivity", "new":[1], "message-storage-policy":0}"#
        let frames = [HTTP2Frame.answer(1, status: 103, ends: false), Self.answer(200, ends: false), .data(1, body)]
        let script: ScriptedPeer.Script = { connection, event in
            switch event {
            case .connected: connection.send(.settings())
            case .frame(let frame) where frame.kind == .headers:
                for byte in frames.flatMap(\.bytes) { connection.send(bytes: [byte]) }
            case .frame: break
            }
        }
        try await withPeer(script: script) { peer in
            let channel = try await Self.client(peer).read(id: Self.id)
            #expect(channel == BroadcastChannel(id: Self.id, storagePolicy: .none))
            #expect(try request(of: peer).fields == Self.fields("GET", "channels", "apns-channel-id: \(Self.id)"))
        }
    }

    @Test("deletes a channel")
    func delete() async throws {
        try await withPeer(script: Self.script([Self.answer(204)])) { peer in
            try await Self.client(peer).delete(id: Self.id)
            #expect(try request(of: peer).fields == Self.fields("DELETE", "channels", "apns-channel-id: \(Self.id)"))
        }
    }

    @Test("lists as many channels as an app may have, over as many frames and windows as that takes")
    func list() async throws {
        let ids = (0..<10_000).map { "channel\(10_000 + $0)0123456789abcdef==" }
        let body = "{\"channels\":[" + ids.map { "\"\($0)\"" }.joined(separator: ",") + "]}"
        try await withPeer(script: Windowed.script([Self.answer(200, ends: false)], body: Array(body.utf8))) { peer in
            let listed = try await Self.client(peer).list()
            #expect(listed == ids)
            #expect(try request(of: peer).fields == Self.fields("GET", "all-channels"))
        }
    }

    @Test("reports the reason of a refusal and the ID that Apple needs to find the request")
    func refusal() async throws {
        let requestID = "6f9619ff-8b86-d011-b42d-00c04fc964ff"
        let frames = Self.answer(
            400, body: #"{"reason":"CannotCreateChannelConfig"}"#, [("apns-request-id", requestID)])
        try await withPeer(script: Self.script(frames)) { peer in
            let error = await #expect(throws: ChannelManagementError.self) {
                try await Self.client(peer, keys: 2).create(.none)
            }
            guard case .refused(let refusal) = error else {
                Issue.record("not \(String(describing: error))")
                return
            }
            #expect(refusal.response == Response(status: 400, reason: .cannotCreateChannelConfig))
            #expect(refusal.requestID == requestID)
            let text = try #require(error?.description)
            #expect(text.contains("CannotCreateChannelConfig") && text.contains(requestID))
            // Another key would not help.
            #expect(peer.seen.withLockedValue(\.connections) == 1)
        }
    }

    @Test("explains every reason in its own words, without APNs' body")
    func everyReason() {
        for reason in APNSReason.allCases {
            let response = Response(status: reason.status, reason: reason)
            let refusal = ChannelManagementError.Refusal(endpoint: .productionChannels, response: response)
            #expect(!refusal.advice.isEmpty)
            #expect("\(ChannelManagementError.refused(refusal))".contains(reason.rawValue))
        }
    }

    @Test("continues with the next signing key when APNs refuses one")
    func nextKey() async throws {
        let refused = Self.answer(403, body: #"{"reason":"InvalidProviderToken"}"#)
        let script: ScriptedPeer.Script = { connection, event in
            Self.script(connection.number == 1 ? refused : [Self.answer(204)])(connection, event)
        }
        try await withPeer(script: script) { peer in
            try await Self.client(peer, keys: 2).delete(id: Self.id)
            #expect(peer.seen.withLockedValue(\.connections) == 2)
        }
        try await withPeer(script: Self.script(refused)) { peer in
            await #expect(throws: ChannelManagementError.self) { try await Self.client(peer, keys: 1).list() }
            #expect(peer.seen.withLockedValue(\.connections) == 1)
        }
    }

    @Test("sends nothing for an invalid channel ID", arguments: ["", "a b", "x\r\ny: z"])
    func malformedID(id: String) async throws {
        try await withPeer { peer in
            let client = try Self.client(peer)
            await #expect(throws: ChannelManagementError.malformedID) { try await client.read(id: id) }
            await #expect(throws: ChannelManagementError.malformedID) { try await client.delete(id: id) }
            #expect(peer.seen.withLockedValue(\.connections) == 0)
        }
    }

    // MARK: Answers that APNs does not give

    struct Oddity: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var frames: [HTTP2Frame]
    }

    static let oddities: [Oddity] = [
        Oddity(testDescription: "a redirect", frames: [answer(301)]),
        Oddity(testDescription: "another success", frames: [answer(200)]),
        Oddity(testDescription: "a list of something else", frames: answer(200, body: "[1]")),
        Oddity(testDescription: "a page", frames: answer(200, body: "<html>")),
    ]

    @Test("rejects an invalid answer", arguments: oddities)
    func oddAnswers(oddity: Oddity) async throws {
        try await withPeer(script: Self.script(oddity.frames)) { peer in
            let client = try Self.client(peer)
            await expectUnexpected { _ = try await client.create(.none) }
            await expectUnexpected { _ = try await client.read(id: Self.id) }
            await expectUnexpected { _ = try await client.list() }
        }
    }

    private func expectUnexpected(_ body: () async throws -> Void) async {
        let error = await #expect(throws: ChannelManagementError.self) { try await body() }
        guard case .unexpected = error else {
            Issue.record("not \(String(describing: error))")
            return
        }
    }

    @Test("leaves invalid IDs out of a list, because it goes to a terminal")
    func strangeIDs() async throws {
        let frames = Self.answer(200, body: #"{"channels":["YQ==","\u001b[2J","a b",""]}"#)
        try await withPeer(script: Self.script(frames)) { peer in
            let listed = try await Self.client(peer).list()
            #expect(listed == ["YQ=="])
        }
    }

    /// ``HTTP2SessionTests`` tests the other rules of the protocol.
    static let breaches: [Oddity] = [
        Oddity(testDescription: "a reset", frames: [.reset(1, code: 2)]),
        Oddity(testDescription: "a reset half-way", frames: [answer(200, ends: false), .reset(1, code: 8)]),
        Oddity(testDescription: "GOAWAY", frames: [.goAway(lastStream: 0, debugData: #"{"reason":"Shutdown"}"#)]),
        Oddity(testDescription: "DATA on stream 0", frames: [.data(0, "x")]),
        Oddity(testDescription: "a status that is none", frames: [answer(0)]),
    ]

    @Test("reports a server that disconnects or violates the protocol", arguments: breaches)
    func breaksProtocol(breach: Oddity) async throws {
        try await withPeer(script: Self.script(breach.frames)) { peer in
            let error = await #expect(throws: APNSConnectionError.self) { try await Self.client(peer).list() }
            #expect(error?.description.contains("127.0.0.1:\(peer.port)") == true)
            #expect(breach.testDescription != "GOAWAY" || error?.description.contains("Shutdown") == true)
        }
    }

    @Test("stops reading an answer that is larger than any list")
    func endlessBody() async throws {
        let body = [UInt8](repeating: 0x20, count: ControlHandler.maximumBodySize + 1)
        try await withPeer(script: Windowed.script([Self.answer(200, ends: false)], body: body)) { peer in
            let error = await #expect(throws: APNSConnectionError.self) { try await Self.client(peer).list() }
            #expect(error?.description.contains("larger than") == true)
        }
    }

    @Test("reports a server that never answers, at any stage")
    func silence() async throws {
        for (transport, says) in [(ScriptedPeer.Transport.tls, "no answer"), (.staysSilent, "TLS was not set up")] {
            try await withPeer(transport: transport) { peer in
                let error = await #expect(throws: APNSConnectionError.self) {
                    try await Self.client(peer, timeout: .milliseconds(300)).list()
                }
                #expect(error?.description.contains("does not respond: \(says)") == true, "\(error as Any)")
            }
        }
    }

    @Test("reports a server that closes the connection or does not support HTTP/2")
    func hangsUp() async throws {
        try await withPeer(transport: .hangsUp) { peer in
            await #expect(throws: (any Error).self) { try await Self.client(peer).list() }
        }
        try await withPeer(script: { connection, event in
            if case .frame(let frame) = event, frame.kind == .headers { connection.close() }
        }) { peer in
            let error = await #expect(throws: APNSConnectionError.self) { try await Self.client(peer).list() }
            #expect(error?.description.contains("without an answer") == true)
        }
        try await withPeer(protocols: ["http/1.1"]) { peer in
            await #expect(throws: (any Error).self) { try await Self.client(peer).list() }
        }
    }
}
