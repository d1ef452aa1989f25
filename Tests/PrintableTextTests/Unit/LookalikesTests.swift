import PrintableText
import Testing

@Suite("Names that look alike")
struct LookalikesTests {
    @Test(
        "A name is shown with the code points of what can't be seen.",
        arguments: [
            ("sale ", "sale⟨U+0020⟩"), (" sale", "⟨U+0020⟩sale"), ("sale\u{A0}", "sale⟨U+00A0⟩"),
            ("a\u{A0}b", "a⟨U+00A0⟩b"), ("a  b", "a⟨U+0020⟩⟨U+0020⟩b"), ("\u{FEFF}sale", "⟨U+FEFF⟩sale"),
            ("sale\u{200F}", "sale⟨U+200F⟩"), ("sa\u{200B}le", "sa⟨U+200B⟩le"), ("sa\u{AD}le", "sa⟨U+00AD⟩le"),
            ("sa\u{200D}le", "sa⟨U+200D⟩le"), ("sale\n", "sale⟨U+000A⟩"), ("cafe\u{301}", "cafe⟨U+0301⟩"),
            ("\u{2126}", "⟨U+2126⟩"), ("\u{212B}", "⟨U+212B⟩"),
            ("\u{1112}\u{1161}\u{11AB}", "\u{1112}⟨U+1161⟩⟨U+11AB⟩"),
            ("\u{438}\u{306}", "\u{438}⟨U+0306⟩"),
        ])
    func hidden(name: String, shown: String) {
        #expect(name.hasHiddenCharacters && Array(name.shown.utf8) == Array(shown.utf8), "\(name.shown)")
    }

    @Test(
        "Other names are shown as they are.",
        arguments: [
            "sale", "spring sale", "caf\u{E9}", "\u{3A9}", "Привет \u{439}", "春の セール", "Xuân Lộc \u{1EAD}",
            // Unicode has no single character for these letters with their marks.
            "\u{1EB9}\u{301}", "q\u{301}", "हिन्दी", "ไทยที่", "שָׁלוֹם", "한글", "می\u{200C}خواهم", "❤\u{FE0F} sale",
            "👩\u{200D}👩\u{200D}👧", "", "a-b_c.d/e",
        ])
    func plain(name: String) {
        #expect(!name.hasHiddenCharacters && Array(name.shown.utf8) == Array(name.utf8), "\(name.shown)")
    }

    @Test("Twins are names that look the same and have other bytes.")
    func twins() {
        let names = [
            "sale", "sale ", "sale\u{200F}", "Sale", "sales", "cafe\u{301}", "caf\u{E9}", "\u{2126}", "\u{3A9}",
        ]
        func twins(_ name: String) -> [[UInt8]] { names.twins(of: name).map { Array($0.utf8) } }
        #expect(twins("sale") == ["sale ", "sale\u{200F}"].map { Array($0.utf8) })
        #expect(twins("sale\u{A0}").count == 3 && twins("Sale").isEmpty && twins("sales").isEmpty)
        #expect(twins("caf\u{E9}") == [Array("cafe\u{301}".utf8)] && twins("\u{2126}") == [Array("\u{3A9}".utf8)])
    }
}
