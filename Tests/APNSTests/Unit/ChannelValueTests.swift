import NIOCore
import Testing

@testable import APNS

@Suite("A broadcast's address")
struct ChannelValueTests {
    @Test(
        "has the bundle identifier of the topic, without the suffix for Live Activities",
        arguments: [
            ("com.example.app", "com.example.app"),
            ("com.example.app.push-type.liveactivity", "com.example.app"),
            ("com.example.app.voip", "com.example.app.voip"), ("A-b_9", "A-b_9"), ("..a", "..a"),
        ])
    func bundleIDs(topic: String, id: String) throws {
        #expect(try BundleID(topic: topic).description == id)
        let target = try BroadcastTarget(channelID: ByteBuffer(string: "YQ=="), topic: ByteBuffer(string: topic))
        #expect(String(buffer: target.path) == "/4/broadcasts/apps/\(id)")
    }

    @Test("is not made from a topic that would change the path")
    func pathsAreSafe() throws {
        let plain = Set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._".utf8)
        for byte in UInt8(0)...0x7F where !plain.contains(byte) {
            let topic = ByteBuffer(bytes: Array("com.example".utf8) + [byte] + Array("app".utf8))
            #expect(throws: BroadcastTarget.Invalid.self) {
                try BroadcastTarget(channelID: ByteBuffer(string: "YQ=="), topic: topic)
            }
        }
        for topic in ["", ".", "..", "...", ".push-type.liveactivity", "ä", String(repeating: "a", count: 256)] {
            #expect(throws: BundleID.Invalid.self) { try BundleID(topic: topic) }
        }
    }

    @Test(
        "is not made from an invalid channel ID",
        arguments: ["", " ", "YQ==\r\nx: y", "a b", "a,b", "ä", String(repeating: "a", count: 256)])
    func channelIDs(id: String) throws {
        let error = #expect(throws: BroadcastTarget.Invalid.self) {
            try BroadcastTarget(channelID: ByteBuffer(string: id), topic: ByteBuffer(string: "com.example.app"))
        }
        #expect(error == .channelID && error?.reason == .badChannelID)
        #expect(id.isEmpty || error?.description.contains(id) == false || id == " ")
    }

    @Test("is managed at Apple's address")
    func endpoints() {
        #expect("\(APNSEndpoint.productionChannels)" == "api-manage-broadcast.push.apple.com:2196")
        #expect("\(APNSEndpoint.sandboxChannels)" == "api-manage-broadcast.sandbox.push.apple.com:2195")
    }

    @Test(
        "The name of an environment, in either case, names Apple's server for channels and not that for notifications",
        arguments: [
            ("production", "api-manage-broadcast.push.apple.com:2196"),
            ("Production", "api-manage-broadcast.push.apple.com:2196"),
            ("sandbox", "api-manage-broadcast.sandbox.push.apple.com:2195"),
            ("Development", "api-manage-broadcast.sandbox.push.apple.com:2195"),
            ("localhost:2197", "localhost:2197"), ("https://[::1]:443/", "[::1]:443"), ("localhost", "localhost:2196"),
            ("a b", nil), ("localhost:0", nil), ("", nil),
        ])
    func managementEndpoint(text: String, endpoint: String?) {
        #expect(APNSEndpoint(channelManagement: text)?.description == endpoint)
    }
}
