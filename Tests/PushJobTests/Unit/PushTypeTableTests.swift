import NIOCore
import PushJob
import Testing

/// Apple's table, copied from its pages and not from our sources.
@Suite("The table of push types")
struct PushTypeTableTests {
    private typealias Members = PayloadFacts.Members

    @Test(
        "has the topic's suffix of each type, what its payload needs, and what it is sent with",
        arguments: [
            ("alert", "", [], ""), ("background", "", .contentAvailable, "5 gateway"),
            ("mdm", "", .mdm, "gateway"), ("voip", ".voip", [], "rings gateway"),
            ("complication", ".complication", [], "gateway"),
            ("fileprovider", ".pushkit.fileprovider", .containerIdentifier, "key gateway"),
            ("location", ".location-query", [], "key"),
            ("liveactivity", ".push-type.liveactivity", [.event, .timestamp], ""),
            ("pushtotalk", ".voip-ptt", [], "rings"), ("widgets", ".push-type.widgets", .contentChanged, ""),
            ("controls", ".push-type.controls", .contentChanged, ""),
            (
                "accessory", ".push-type.accessory", [.encryptedData, .sessionIdentifier, .keyID, .messageIndex], ""
            ),
        ] as [(String, String, PayloadFacts.Members, String)])
    func rows(name: String, suffix: String, required: PayloadFacts.Members, words: String) throws {
        let type = try #require(PushType(name))
        #expect(type.name == name && type.topicSuffix == suffix && type.row.required == required)
        #expect(type.row.maximumPayloadSize == (name == "voip" ? 5120 : 4096))
        let row = type.row
        let found = [
            row.priority.map { "\($0)" }, row.rings ? "rings" : nil, row.needsKey ? "key" : nil,
            row.isOfGateway && name != "alert" ? "gateway" : nil,
        ]
        #expect(found.compactMap(\.self).joined(separator: " ") == words)
        #expect(!row.source.description.isEmpty && !row.title.description.isEmpty)
        #expect((row.instead.description.isEmpty) == row.excluded.isEmpty)
    }

    @Test("the constants are the types of their names")
    func constants() {
        let constants: [PushType] = [
            .alert, .background, .complication, .controls, .fileprovider, .liveactivity, .location, .mdm, .pushtotalk,
            .voip,
            .widgets, .accessory, .other,
        ]
        #expect(
            constants.map(\.name) == [
                "alert", "background", "complication", "controls", "fileprovider", "liveactivity", "location", "mdm",
                "pushtotalk", "voip", "widgets", "accessory", "other",
            ])
        #expect(constants.map(\.place) == Array(PushType.rows.indices))
    }

    @Test("the suffix is added to a topic that lacks it, and other topics are unchanged", arguments: PushType.allCases)
    func topics(type: PushType) {
        let bare = ByteBuffer(string: "com.example.app")
        let whole = type.topic(bare)
        #expect(String(buffer: whole) == "com.example.app" + type.topicSuffix)
        #expect(type.topic(whole) == whole)
        // Takes a slice in the middle of a larger buffer, like the topic of a job.
        var slice = ByteBuffer(string: "x" + type.topicSuffix + "com.example.appy")
        slice.moveReaderIndex(forwardBy: 1 + type.topicSuffix.utf8.count)
        slice.moveWriterIndex(to: slice.writerIndex - 1)
        #expect(type.topic(slice) == whole)
        #expect(String(buffer: type.topic(ByteBuffer(string: "a"))) == "a" + type.topicSuffix)
        let other: PushType = type == .voip ? .pushtotalk : .voip
        #expect(
            String(buffer: type.topic(other.topic(bare))) == "com.example.app" + other.topicSuffix + type.topicSuffix)
        let (bundle, named) = PushType.parts(ofTopic: String(buffer: whole))
        #expect(bundle == "com.example.app" && named == (type.topicSuffix.isEmpty ? nil : type))
    }

    @Test("has no other types", arguments: ["", "Alert", "alert ", "alerts", "ale", "voip\u{0}", "other"])
    func others(name: String) {
        #expect(PushType.allCases.count == 12 && PushType.allCases.map(\.place) == Array(0..<12))
        #expect(PushType.other.place == 12 && Set(PushType.allCases.map(\.name)).count == 12)
        #expect(PushType(name) == nil)
    }
}
