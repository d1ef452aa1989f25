extension StringProtocol {
    /// The text with code points in place of characters that a reader can't see, such as `sale⟨U+0020⟩`. These are invisible characters,
    /// white space other than one space between words, and characters that another normal form of the name writes differently. Nearly all
    /// names stay as they are. No code reads the result back.
    public var shown: String {
        if isPlain { return String(self) }
        let scalars = Array(unicodeScalars)
        return scalars.indices.map { Self.isHidden($0, scalars) ? scalars[$0].codePoint : String(scalars[$0]) }.joined()
    }

    /// True if the name has characters that ``shown`` replaces: it looks like another name, which was probably meant.
    public var hasHiddenCharacters: Bool {
        if isPlain { return false }
        let scalars = Array(unicodeScalars)
        return scalars.indices.contains { Self.isHidden($0, scalars) }
    }

    /// The text without the characters that ``shown`` replaces. Names that look the same have equal `seen` texts, because Swift compares
    /// strings in their normal form.
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

    fileprivate var codePoint: String { "⟨U+\(value.digits(4, radix: 16, uppercase: true))⟩" }
}

extension Sequence<String> {
    /// Returns the other names that look like this one.
    public func twins(of name: String) -> [String] {
        let seen = name.seen
        return filter { $0.seen == seen && !$0.utf8.elementsEqual(name.utf8) }
    }
}

/// A part of the composed normal form (NFC): enough for names of campaigns and apps, which may come from macOS' file names in the
/// decomposed form.
private enum NormalForm {
    /// All letters with marks. They are strings, because strings are equal in each normal form.
    private static let letters: Set<String> = {
        let ranges: [ClosedRange<UInt32>] = [0xC0...0x24F, 0x370...0x3FF, 0x400...0x4FF, 0x1E00...0x1FFF]
        return Set(ranges.joined().compactMap { Unicode.Scalar($0) }.map { String($0) })
    }()

    /// True if two characters in a row are one in the composed form.
    static func composes(_ first: Unicode.Scalar, _ second: Unicode.Scalar) -> Bool {
        // Korean: a vowel after a leading consonant, or a trailing consonant after a syllable.
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
