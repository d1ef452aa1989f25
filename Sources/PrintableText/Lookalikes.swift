extension StringProtocol {
    /// The text for a reader of names, with the code points of the characters that a reader can't see, such as `sale⟨U+0020⟩`: of
    /// invisible ones, of white space that is not one space between words, and of those that another form of the name would have.
    /// It is the text itself for nearly all names, and is never read back.
    public var shown: String {
        if isPlain { return String(self) }
        let scalars = Array(unicodeScalars)
        return scalars.indices.map { Self.isHidden($0, scalars) ? scalars[$0].codePoint : String(scalars[$0]) }.joined()
    }

    /// True for a name that looks like another one, which was probably meant.
    public var hasHiddenCharacters: Bool {
        if isPlain { return false }
        let scalars = Array(unicodeScalars)
        return scalars.indices.contains { Self.isHidden($0, scalars) }
    }

    /// The text as its reader sees it, without all that ``shown`` has code points for. Names with equal texts are twins: they look
    /// the same. Swift compares strings in their normal form.
    public var seen: String {
        var seen = String.UnicodeScalarView()
        var isSpaced = false
        for scalar in unicodeScalars {
            if scalar.properties.isWhitespace {
                isSpaced = !seen.isEmpty
            } else if !scalar.isInvisible {
                if isSpaced { seen.append(" ") }
                isSpaced = false
                seen.append(scalar)
            }
        }
        return String(seen)
    }

    /// True for printable ASCII characters without spaces.
    private var isPlain: Bool { utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F } }

    private static func isHidden(_ index: Int, _ scalars: [Unicode.Scalar]) -> Bool {
        let scalar = scalars[index]
        let before = index > 0 ? scalars[index - 1] : nil
        if scalar.properties.isWhitespace {
            let after = index + 1 < scalars.count ? scalars[index + 1] : nil
            let isBetweenWords = [before, after].allSatisfy { $0?.properties.isWhitespace == false }
            return scalar != " " || !isBetweenWords
        }
        if scalar.joins, let before, !before.isASCII { return false }
        return scalar.isInvisible || NormalForm.replaces(scalar)
            || before.map { NormalForm.composes($0, scalar) } ?? false
    }
}

extension Unicode.Scalar {
    /// True for a character that shows nothing by itself, or ends a line.
    fileprivate var isInvisible: Bool {
        isUnprintable || properties.isDefaultIgnorableCodePoint || properties.generalCategory == .format
    }

    /// True for a character that joins letters or the parts of emoji, or selects their form.
    fileprivate var joins: Bool { [0x200C, 0x200D].contains(value) || (0xFE00...0xFE0F).contains(value) }

    fileprivate var codePoint: String {
        let digits = String(value, radix: 16, uppercase: true)
        return "⟨U+" + String(repeating: "0", count: max(0, 4 - digits.utf8.count)) + digits + "⟩"
    }
}

extension Sequence<String> {
    /// Returns the names that look like this one and are others.
    public func twins(of name: String) -> [String] {
        let seen = name.seen
        return filter { $0.seen == seen && !$0.utf8.elementsEqual(name.utf8) }
    }
}

/// The composed normal form (NFC), as far as names of campaigns and apps have other forms: those of macOS' file names.
private enum NormalForm {
    /// Letters with marks are among these; strings are equal in all of their forms.
    private static let letters: Set<String> = {
        let ranges: [ClosedRange<UInt32>] = [0xC0...0x24F, 0x370...0x3FF, 0x400...0x4FF, 0x1E00...0x1FFF]
        return Set(ranges.joined().compactMap { Unicode.Scalar($0) }.map { String($0) })
    }()

    /// True if two characters in a row are one in the composed form.
    static func composes(_ first: Unicode.Scalar, _ second: Unicode.Scalar) -> Bool {
        // A leading and a vowel jamo of Korean, or a syllable and a trailing one.
        if (0x1161...0x1175).contains(second.value) { return (0x1100...0x1112).contains(first.value) }
        if (0x11A8...0x11C2).contains(second.value) {
            return (0xAC00...0xD7A3).contains(first.value) || (0x1161...0x1175).contains(first.value)
        }
        guard second.properties.canonicalCombiningClass != .notReordered else { return false }
        return letters.contains(String(String.UnicodeScalarView([first, second])))
    }

    /// True for characters that have another form: Ohm, Kelvin, Ångström, and compatibility ideographs.
    static func replaces(_ scalar: Unicode.Scalar) -> Bool {
        [0x2126, 0x212A, 0x212B].contains(scalar.value) || (0xF900...0xFA0D).contains(scalar.value)
    }
}
