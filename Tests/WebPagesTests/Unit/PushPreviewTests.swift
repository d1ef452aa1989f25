import PushJob
import Testing

@testable import WebPages

@Suite struct PushPreviewTests {
    private func preview(
        _ payload: String, type: String? = nil, topic: String? = "com.example.pizza-shop"
    ) -> PushPreview {
        PushPreview(payload: Array(payload.utf8), pushType: type, topic: topic)
    }

    private func html(_ payload: String, type: String? = nil) -> String { preview(payload, type: type).html().text }

    private func fact(_ name: String, _ preview: PushPreview) -> String? {
        preview.facts.first { $0.name == name }?.value
    }

    @Test("An alert shows the app, its texts, the badge and the custom data")
    func alert() {
        let alert = PushPreview(
            payload: Array(
                """
                {"aps":{"alert":{"title":"Your order","subtitle":"No. 7","body":"On its way"},"badge":3,
                "sound":{"name":"ding.caf","critical":1,"volume":0.5},"thread-id":"orders","category":"ORDER",
                "interruption-level":"time-sensitive","mutable-content":1},"image":"https://example.com/p.png"}
                """.utf8), pushType: "alert", topic: "com.example.pizza-shop", priority: 5, expiration: 0,
            collapseID: "order-7")
        #expect(alert.kind == .alert && alert.appName == "Pizza Shop" && alert.badge == 3 && alert.silence == nil)
        #expect(alert.alert == .init(title: "Your order", subtitle: "No. 7", body: "On its way"))
        #expect(fact("sound", alert) == "ding.caf, critical, volume 0.5")
        #expect(fact("thread", alert) == "orders" && fact("category", alert) == "ORDER")
        #expect(fact("interruption level", alert) == "time-sensitive")
        #expect(fact("service extension", alert)?.hasSuffix("https://example.com/p.png") == true)
        #expect(fact("data for the app", alert) == "image")
        #expect(fact("kept until", alert) == "not kept: delivered now or never")
        #expect(fact("replaces earlier ones of", alert) == "order-7")
        #expect(fact("priority", alert) == "5, may wait to save power")
        #expect(alert.summary() == #"alert "Your order — No. 7 — On its way" badge 3"#)
        let html = alert.html(clock: "09:41").text
        for part in ["<span>Your order</span>", ">No. 7<", ">On its way<", "class=\"badge\">3<", ">09:41<"] {
            #expect(html.contains(part))
        }
    }

    @Test("A plain string is the body, under the app's name")
    func body() {
        let alert = preview(#"{"aps":{"alert":"Hello 😀"}}"#)
        #expect(alert.alert == .init(body: "Hello 😀"))
        #expect(alert.html().text.contains("<span>Pizza Shop</span>"))
        #expect(alert.summary() == #"alert "Hello 😀""#)
        #expect(preview(#"{"aps":{"alert":"Hello"}}"#, topic: nil).appName == "App")
    }

    @Test("A localized text shows its key and its arguments, and the key precedes the text")
    func localized() {
        let alert = preview(
            #"""
            {"aps":{"alert":{"title":"x","title-loc-key":"GAME","title-loc-args":["Jenna",3],"loc-key":"PLAY","body":"y"}}}
            """#)
        #expect(alert.alert == .init(title: "GAME (Jenna, 3)", body: "PLAY"))
        #expect(fact("localized", alert) != nil)
        let activity = preview(
            #"{"aps":{"event":"update","alert":{"title":{"loc-key":"T","loc-args":["1"]},"body":{"loc-key":"B"}}}}"#,
            type: "liveactivity")
        #expect(activity.alert == .init(title: "T (1)", body: "B"))
    }

    @Test(
        "A Live Activity shows its event, state and attributes",
        arguments: [("start", "starts"), ("update", "updates"), ("end", "ends"), ("pause", "has no known event")])
    func activity(event: String, words: String) {
        let activity = preview(
            """
            {"aps":{"timestamp":1700000000,"event":"\(event)","content-state":{"driver":"Anne","stops":[1,{"a":null}]},
            "attributes-type":"Delivery","attributes":{"order":7},"stale-date":1700003600,"dismissal-date":1700007200}}
            """, type: "liveactivity")
        #expect(activity.kind == .liveactivity && activity.event == event)
        #expect(
            activity.state == [.init(name: "driver", value: "Anne"), .init(name: "stops", value: #"[1, {"a": null}]"#)])
        #expect(activity.attributes == [.init(name: "order", value: "7")])
        #expect(fact("stale from", activity) == "2023-11-14 23:13:20 UTC")
        #expect(fact("removed at", activity) == "2023-11-15 00:13:20 UTC")
        #expect(fact("attributes type", activity) == "Delivery")
        #expect(activity.html().text.contains("Live Activity \(words)"))
        #expect(activity.summary() == "liveactivity \(event)")
    }

    @Test(
        "a push without a banner is described as such",
        arguments: [
            ("background", #"{"aps":{"content-available":1}}"#, "the app runs in the background"),
            ("voip", #"{"aps":{}}"#, "incoming call"), ("pushtotalk", #"{"aps":{}}"#, "Push to Talk"),
            ("location", "{}", "asks the app's extension for the location"), ("fileprovider", "{}", "file provider"),
            ("complication", "{}", "complication"), ("controls", #"{"aps":{"content-changed":true}}"#, "controls"),
            ("widgets", #"{"aps":{"content-changed":true}}"#, "widgets"), ("mdm", #"{"mdm":"X"}"#, "MDM server"),
            ("accessory", "{}", "accessory"), ("alert", #"{"aps":{"badge":0}}"#, "removes the badge"),
            ("alert", #"{"aps":{"badge":4,"sound":"default"}}"#, "sets the badge and plays a sound"),
            ("alert", #"{"aps":{}}"#, "aps has no alert"), ("alert", #"{"aps":{"alert":{}}}"#, "the alert has no text"),
            ("alert", #"{"aps":{"alert":7}}"#, "alert is a number, not a string or an object"),
            ("alert", #"{"aps":{"alert":null}}"#, "aps has no alert"),
            ("alert", #"{"aps":[1]}"#, "aps is an array, not an object"), ("alert", #"{"a":1}"#, "aps is missing"),
        ])
    func silent(type: String, payload: String, words: String) {
        let silent = preview(payload, type: type)
        #expect(silent.kind.name == type)
        #expect(silent.silence?.contains(words) == true, "\(silent.silence ?? "")")
        #expect(silent.html().text.contains("banner silent"))
    }

    @Test(
        "Without a push type the topic and the payload determine the kind",
        arguments: [
            ("com.example.app.voip", "{}", PushType.voip), ("com.example.app.voip-ptt", "{}", .pushtotalk),
            ("com.example.app.push-type.liveactivity", "{}", .liveactivity),
            ("com.example.app", #"{"mdm":"x"}"#, .mdm),
            ("com.example.app", #"{"aps":{"event":"end","content-state":{}}}"#, .liveactivity),
            ("com.example.app", #"{"aps":{"content-available":1}}"#, .background),
            ("com.example.app", #"{"aps":{"content-available":1,"sound":"x"}}"#, .alert),
            ("com.example.app", #"{"aps":{"content-changed":true}}"#, .widgets), ("", "null", .alert),
        ])
    func kinds(topic: String, payload: String, kind: PushType) {
        #expect(preview(payload, topic: topic).kind == kind)
        #expect(preview(payload, topic: topic).appName == "App")
    }

    @Test(
        "A payload of any content has a preview without its markup",
        arguments: [
            "", " ", "null", "7", "\"<b>\"", "[]", "{", "{\"aps\":", "\u{FEFF}{}", #"{"aps":"<script>"}"#,
            #"{"aps":{"alert":["<script>"]}}"#, #"{"aps":{"alert":{"title":{"<script>":"<script>"},"body":[1]}}}"#,
            #"{"aps":{"alert":"\u202e<script>\u0000"}}"#, #"{"aps":{"alert":"\ud800"}}"#,
            #"{"aps":{"alert":"x","badge":1e400,"sound":[],"thread-id":{},"category":null}}"#,
            #"{"aps":{"badge":"<script>"}}"#,
            #"{"aps":{"event":"<script>","content-state":"<script>","stale-date":"x"}}"#,
            #"{"aps":{"event":"end","content-state":{"<script>":"<script>"},"attributes":[1],"stale-date":1e300}}"#,
            #"{"<script>":1,"aps":{"alert":"a","alert":"<script>"},"aps":{"alert":"<script>"}}"#,
            "{\"aps\":{\"alert\":\"" + String(repeating: "<script>", count: 640) + "\"}}",
            String(repeating: "[", count: 2500),
            String(repeating: "{\"a\":", count: 700) + "1" + String(repeating: "}", count: 700),
            "{\"aps\":{\"content-state\":" + String(repeating: "[", count: 61) + String(repeating: "]", count: 61)
                + ",\"event\":\"update\"}}", "{\"aps\":{\"alert\":\"\u{202E}\u{2066}x\"}}",
        ])
    func hostile(payload: String) {
        for type in [nil, "alert", "liveactivity", "background", "<script>", ""] {
            let preview = PushPreview(
                payload: Array(payload.utf8), pushType: type, topic: "<script>.\u{202E}", priority: .max,
                expiration: .min, collapseID: "<script>")
            let html = preview.html(clock: "<script>").text + preview.banner().text
            #expect(!html.contains("<script"))
            #expect(!html.unicodeScalars.contains { $0 == "\u{202E}" || $0 == "\u{0}" || $0 == "\u{2066}" })
            #expect(preview.summary().count < 250)
        }
        #expect(!("\(PayloadText.pretty(Array(payload.utf8)))" as HTML).text.contains("<script"))
        _ = PayloadText.contains("script", in: Array(payload.utf8))
    }

    @Test("Bytes that are not UTF-8 have a preview")
    func notUTF8() {
        let preview = PushPreview(payload: [0x7B, 0x22, 0xFF, 0x22, 0x3A, 0x31, 0x7D], pushType: nil, topic: nil)
        #expect(preview.silence?.contains("not valid JSON") == true)
        #expect(PayloadText.pretty([0xFF]) == "\u{FFFD}")
    }

    @Test("A payload is printed with a line per value, with unchanged numbers and escapes")
    func pretty() {
        let payload = #"{"aps":{"alert":"a\"b\\","badge":1.50e0 , "x":[ ],"y":{}},"list":[1,"{[,:",null]}"#
        #expect(
            PayloadText.pretty(Array(payload.utf8)) == #"""
                {
                  "aps": {
                    "alert": "a\"b\\",
                    "badge": 1.50e0,
                    "x": [],
                    "y": {}
                  },
                  "list": [
                    1,
                    "{[,:",
                    null
                  ]
                }
                """#)
        #expect(PayloadText.pretty(Array("{\"a\":".utf8)) == "{\"a\":")
    }

    @Test("A search finds texts in either case, also if written with escapes")
    func search() {
        let payload = Array(#"{"aps":{"alert":"Gr\u00fc\u00dfe an BOB"},"id":"o-7"}"#.utf8)
        for wanted in ["Grüße", "bob", "O-7", "", "aps", "an bo"] { #expect(PayloadText.contains(wanted, in: payload)) }
        for wanted in ["x-7", "alert bob", "Grüsse"] { #expect(!PayloadText.contains(wanted, in: payload)) }
        #expect(!PayloadText.contains("a", in: []))
    }

    @Test(
        "Times are in UTC, and impossible ones are numbers",
        arguments: [
            (0, "1970-01-01 00:00:00 UTC"), (1_700_000_000, "2023-11-14 22:13:20 UTC"), (-1, "-1"),
            (253_402_300_800, "253402300800"),
        ] as [(Int64, String)])
    func times(seconds: Int64, text: String) {
        #expect(EpochTime.text(seconds: seconds) == text)
        #expect(EpochTime.clock(milliseconds: 1_700_000_000_007) == "22:13:20.007")
        #expect(EpochTime.clock(milliseconds: -1) == "23:59:59.999")
    }
}
