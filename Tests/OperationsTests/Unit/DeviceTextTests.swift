import NIOCore
import Testing

@testable import Operations

@Suite("The text of Redis without a device")
struct DeviceTextTests {
    private static let one = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
    private static let other = "91c013adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
    private let finder = TokenFinder([one])

    private func isIn(_ text: String) -> Bool { finder.isIn(ByteBuffer(string: text)) }

    /// Returns the rest of a job without the device; `nil` if it is removed.
    private func rest(_ text: String) -> String? {
        DeviceText.job(ByteBuffer(string: text), .withoutDevices, finder).rest.map { String(buffer: $0) }
    }

    @Test(
        "a token is found however it is written, wherever it begins",
        arguments: TokenText.forms(ofHex: one) + [
            one.uppercased(), "welcome-\(one)", "ab\(one)cd",
            "<00fc13ad ff785122 b4ad2880 9a342098 23412414 21348097 878e577c 991de8f0>",
            #"{"token":"\u0030\u0030fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"}"#,
            #"APwTrf94USK0rSiAmjQgmCNBJBQhNICXh45XfJkd6PA"#,
        ])
    func found(text: String) { #expect(isIn(text) && isIn("x \(text) y") && isIn("{\"a\":[\"\(text)\"]}")) }

    @Test(
        "other texts are not taken for the token",
        arguments: [
            "", "\\", "\\u", "\\u00", other, String(one.dropLast()), String(one.dropFirst()),
            String(one.prefix(32)) + "," + String(one.suffix(32)),
        ])
    func notFound(text: String) { #expect(!isIn(text)) }

    @Test("several tokens are found, also of different lengths")
    func several() {
        let finder = TokenFinder([Self.one, "abcdef", "ab"])
        for (text, expected) in [
            ("x\(Self.one)", true), ("zabcdefz", true), ("-AB-", true), ("a-b", false), ("", false),
        ] {
            #expect(finder.isIn(ByteBuffer(string: text)) == expected, "\(text)")
        }
    }

    @Test("a job keeps its other tokens and all other bytes")
    func job() {
        let (one, other) = (Self.one, Self.other)
        for (job, expected) in [
            (#"{"token":"\#(one)","alert":"x"}"#, nil), (#"{"tokens":["\#(one)"],"alert":"x"}"#, nil),
            ("{broken \(one)", nil),
            (
                #"{ "tokens" : [ "\#(one.uppercased())" , "\#(other)" , "\#(one)" ] , "alert" : "a\u00e9\n" }"#,
                #"{ "tokens" : ["\#(other)"] , "alert" : "a\u00e9\n" }"#
            ),
            (
                #"{"apns_worker":1,"tokens":["\#(other)","\#(one)"],"job":{"tokens":["\#(one)","x","\#(other)"]}}"#,
                #"{"apns_worker":1,"tokens":["\#(other)"],"job":{"tokens":["x","\#(other)"]}}"#
            ),
            // The notifications to the other tokens have ended.
            (#"{"apns_worker":1,"tokens":["\#(one)"],"job":{"tokens":["\#(one)","\#(other)"]}}"#, nil),
            (
                #"{"class":"P","args":[{"tokens":["\#(one)","\#(other)"]}],"jid":"1"}"#,
                #"{"class":"P","args":[{"tokens":["\#(other)"]}],"jid":"1"}"#
            ),
            (
                #"{"class":"P","args":["{\"tokens\":[\"\#(one)\",\"\#(other)\"],\"alert\":\"x\"}"]}"#,
                #"{"class":"P","args":["{\"tokens\":[\"\#(other)\"],\"alert\":\"x\"}"]}"#
            ),
        ] as [(String, String?)] { #expect(rest(job) == expected, "\(job)") }
    }

    @Test("a job that names the device in another member is removed, and the loss of other tokens is counted")
    func lost() {
        let job = #"{"id":"for-\#(Self.one)","tokens":["\#(Self.one)","\#(Self.other)","x"]}"#
        let text = DeviceText.job(ByteBuffer(string: job), .withoutDevices, finder)
        #expect(text.rest == nil && text.lost == 2)
        #expect(DeviceText.job(ByteBuffer(string: #"{"token":"\#(Self.one)"}"#), .withoutDevices, finder).lost == 0)
    }

    @Test("an export has no token of another device")
    func only() throws {
        let job = #"{"tokens":["\#(Self.other)","\#(Self.one)"],"alert":"x"}"#
        let rest = try #require(DeviceText.job(ByteBuffer(string: job), .onlyDevices, finder).rest)
        #expect(String(buffer: rest) == #"{"tokens":["\#(Self.one)"],"alert":"x"}"#)
    }

    @Test("a dead letter keeps its other tokens, with the size of its job")
    func deadLetter() {
        let (one, other) = (Self.one, Self.other)
        func rest(_ member: String) -> String? {
            DeviceText.deadLetter(ByteBuffer(string: member), .withoutDevices, finder).rest.map { String(buffer: $0) }
        }
        let job = #"{"tokens":["\#(one)","\#(other)"]}"#
        let left = #"{"tokens":["\#(other)"]}"#
        #expect(
            rest(
                #"{"v":1,"reason":"X","claim":"w","size":\#(job.utf8.count),"tokens":["\#(one)","\#(other)"]}"#
                    + "\n\(job)")
                == #"{"v":1,"reason":"X","claim":"w","size":\#(left.utf8.count),"tokens":["\#(other)"]}"# + "\n\(left)")
        #expect(rest(#"{"v":1,"size":9}"# + "\n\(job)") == #"{"v":1,"size":\#(left.utf8.count)}"# + "\n\(left)")
        #expect(rest(#"{"v":1,"tokens":["\#(one)"]}"# + "\n\(job)") == nil)
        #expect(rest(#"{"v":1}"# + "\n" + #"{"token":"\#(one)"}"#) == nil)
        #expect(rest("no dead letter \(one)") == nil)
    }

    @Test("an entry of results keeps those of other devices, with their time")
    func results() throws {
        func text(_ array: String, _ entry: String = "1795278873351-2") -> DeviceText {
            DeviceText.results(ByteBuffer(string: array), entry: entry, finder)
        }
        let array = """
            [{"outcome":"delivered","notifications":[
            {"id":"a","token":"\(Self.one)"},
            {"id":"b","token":"\(Self.other)"}]},{"id":"c","notifications":[
            {"token":"\(Self.one)"}]},{"id":"d-\(Self.one)","notifications":[
            {"token":"\(Self.other)"}]},{"outcome":"dead","notifications":[
            {}]}]
            """
        let left = text(array)
        #expect(left.results == 2)
        let rest = String(buffer: try #require(left.rest))
        #expect(
            rest
                == #"[{"time":1795278873351,"outcome":"delivered","notifications":[{"id":"b","token":"\#(Self.other)"}]},"#
                + #"{"time":1795278873351,"outcome":"dead","notifications":["# + "\n{}]}]")
        // When another device of these results is forgotten later, they keep the time of the first entry.
        #expect(text(rest, "1899999999999-0").rest.map { String(buffer: $0) } == rest)
        #expect(text("[]").rest == nil && text("").rest == nil && text("{x").rest == nil)
    }
}

@Suite("Device tokens as people write them")
struct TokenTextTests {
    private static let one = String(repeating: "ab", count: 32), other = String(repeating: "cd", count: 32)
    private static let base64 = "q6urq6urq6urq6urq6urq6urq6urq6urq6urq6urq6s="

    @Test(
        "a text is divided at lines, and between whole tokens",
        arguments: [
            ("", []), (" \n\t\r\n", []), (one, [one]), (" \(one) ", [one]), ("\(one)\n\(other)\r\n", [one, other]),
            ("\(one) \(other)", [one, other]), ("\(one)\t\(other)\u{A0}\(one)", [one, other, one]),
            ("<\(one)> <\(other)>", ["<\(one)", "<\(other)"]),
            ("<abababab abababab>", ["<abababab abababab"]), ("abababab abababab", ["abababab abababab"]),
            (base64, [base64]), ("\(base64) \(one)", [base64, one]),
        ] as [(String, [String])])
    func divided(text: String, tokens: [String]) { #expect(TokenText.divided(text) == tokens) }

    @Test(
        "a token is its hex digits, however it is written; several are left as they are",
        arguments: [
            (one, one), (one.uppercased(), one), (" \(one)\n", one), ("<\(one)>", one), ("<\(one)", one),
            (base64, one), (String(base64.dropLast()), one), ("abababab abababab", "abababababababab"),
            ("\(one) \(other)", "\(one) \(other)"), ("ab:cd", "ab:cd"),
        ])
    func normalized(text: String, token: String) { #expect(TokenText.normalized(text) == token) }
}
