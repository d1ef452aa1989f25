import Testing

@testable import WebPages

@Suite struct HTMLTests {
    @Test(
        "Values become text; only literals are markup",
        arguments: [
            ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
            ("\" onload=\"x", "&quot; onload=&quot;x"), ("it's & that", "it&#39;s &amp; that"), ("é 😀\n\t", "é 😀\n\t"),
            ("a\u{202E}b\u{0}c\u{2028}", "a⟨U+202E⟩b⟨U+0000⟩c⟨U+2028⟩"), ("", ""),
        ])
    func escapes(value: String, text: String) {
        let html: HTML = "<p title=\"\(value)\">\(value)</p>"
        #expect(html.text == "<p title=\"\(text)\">\(text)</p>")
        let optional: String? = value
        #expect(("\(optional)" as HTML).text == text)
    }

    @Test("Markup inside markup is kept, and nil is nothing")
    func nests() {
        let item: HTML = "<li>\("<")</li>"
        let none: HTML? = nil
        #expect(
            ("<ul>\([item, item])\(none)\(if: false, item)</ul>" as HTML).text == "<ul><li>&lt;</li><li>&lt;</li></ul>")
        #expect([item, item].joined(separator: ", ").text == "<li>&lt;</li>, <li>&lt;</li>")
        #expect(("\(3)\(-4 as Int64)" as HTML).text == "3-4")
    }

    @Test("A path encodes foreign texts, and begins with the base")
    func paths() {
        let links = Links(base: "/push")
        #expect(links.path([]) == "/push/")
        #expect(links.path(["queues", "a/b ?#é"]) == "/push/queues/a%2Fb%20%3F%23%C3%A9")
        #expect(
            links.path(["jobs"], [("state", "waiting"), ("token", nil), ("match", "a&b=c")])
                == "/push/jobs?state=waiting&match=a%26b%3Dc")
    }

    @Test(
        "A value that a form sends back stays as it is, and cannot end its attribute; text for reading shows code points"
    )
    func readBack() {
        let name = "s\u{200F}a\u{FEFF}l\u{2028}e\r\"<"
        let form: HTML =
            "<h1>\(name)</h1><input value=\"\(name)\"><textarea name=\"job\">\(name)</textarea><p title=\"\(name)\">"
        let kept = "s\u{200F}a\u{FEFF}l\u{2028}e&#13;&quot;&lt;"
        let shown = "s⟨U+200F⟩a⟨U+FEFF⟩l⟨U+2028⟩e⟨U+000D⟩&quot;&lt;"
        #expect(
            form.text
                == "<h1>\(shown)</h1><input value=\"\(kept)\"><textarea name=\"job\">\(kept)</textarea><p title=\"\(shown)\">"
        )
    }
}
