extension Unicode.Scalar {
    /// Whether it could end a line, move a terminal's cursor, or turn a text's direction, so that a line with it would say
    /// something else than it seems to. What joins the parts of emoji, or of letters, does none of that.
    package var isUnprintable: Bool {
        switch value {
        case 0..<0x20, 0x7F..<0xA0, 0x061C, 0x200E, 0x200F, 0x2028...0x202E, 0x2066...0x2069, 0xFEFF: true
        default: false
        }
    }
}

extension StringProtocol {
    /// Without what is unprintable: fit for a terminal or a line of log, whoever wrote it.
    package var printable: String {
        String(String.UnicodeScalarView(unicodeScalars.filter { !$0.isUnprintable }))
    }

    /// The same with another character in its place, and not longer than that: for names which others choose, where what
    /// is missing must show.
    package func printable(replacing character: Unicode.Scalar, atMost count: Int) -> String {
        String(String.UnicodeScalarView(unicodeScalars.prefix(count).map { $0.isUnprintable ? character : $0 }))
    }
}
