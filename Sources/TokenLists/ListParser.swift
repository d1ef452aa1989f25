import Glibc
import PrintableText
import PushJob

/// The place of the device tokens in a list.
package enum TokenListFormat: Equatable, Sendable {
    case lines
    /// A column of a table with a header (RFC 4180), by its name. The fields are separated by commas or, if the header
    /// lacks commas, by semicolons or tabs.
    case column(String)
    /// Each line is a JSON object, and this member of it is a token.
    case member(String)
}

/// Splits a list into its entries, piece by piece. Has no I/O.
struct ListParser {
    enum Entry {
        /// The text of a token, which need not be valid.
        case token(UnsafeRawBufferPointer)
        /// A line without a token, and the reason.
        case refused(String)
    }

    /// Gets an entry, and the number of its line.
    typealias Body = (Entry, Int) throws -> Void

    /// The maximum size of a token with its decoration, such as `<00fc13ad …>`, in bytes.
    private static let longestToken = 8192
    /// The maximum size of a JSON line and of a table's header, in bytes.
    private static let longestLine = 1 << 20

    private let format: TokenListFormat
    private var table: TableParser?
    /// The beginning of a line whose end has not been read yet.
    private var pending: [UInt8] = []
    private var isTooLong = false
    private var line = 1
    private var isFirst = true

    init(_ format: TokenListFormat) {
        self.format = format
        if case .column(let name) = format {
            table = TableParser(name, longestField: Self.longestToken, longestHeader: Self.longestLine)
        }
    }

    /// - Throws: ``TokenListFailure``, or the errors of `body`.
    mutating func read(_ piece: UnsafeRawBufferPointer, _ body: Body) throws {
        var piece = piece
        if isFirst, !piece.isEmpty {
            isFirst = false
            if piece.starts(with: [0xFF, 0xFE]) || piece.starts(with: [0xFE, 0xFF]) {
                throw TokenListFailure("it is encoded in UTF-16; save it as UTF-8")
            }
            if piece.starts(with: [0xEF, 0xBB, 0xBF]) { piece = UnsafeRawBufferPointer(rebasing: piece[3...]) }
        }
        if table != nil {
            try table?.read(piece, body)
            return
        }
        while let end = piece.firstLineFeed {
            try finishLine(UnsafeRawBufferPointer(rebasing: piece[..<end]), body)
            piece = UnsafeRawBufferPointer(rebasing: piece[(end + 1)...])
        }
        keep(piece)
    }

    /// - Throws: ``TokenListFailure``, or the errors of `body`.
    mutating func finish(_ body: Body) throws {
        try table?.finish(body)
        if !pending.isEmpty || isTooLong { try finishLine(UnsafeRawBufferPointer(start: nil, count: 0), body) }
    }

    private var longest: Int { if case .member = format { Self.longestLine } else { Self.longestToken } }

    private mutating func keep(_ bytes: UnsafeRawBufferPointer) {
        if pending.count + bytes.count > longest { isTooLong = true }
        if !isTooLong { pending.append(contentsOf: bytes) }
    }

    private mutating func finishLine(_ rest: UnsafeRawBufferPointer, _ body: Body) throws {
        let number = line
        line += 1
        if !pending.isEmpty || isTooLong {
            keep(rest)
            let (text, isTooLong) = (pending, isTooLong)
            pending.removeAll(keepingCapacity: true)
            self.isTooLong = false
            try text.withUnsafeBytes { try report($0, isTooLong, number, body) }
        } else {
            try report(rest, rest.count > longest, number, body)
        }
    }

    private func report(_ text: UnsafeRawBufferPointer, _ isTooLong: Bool, _ number: Int, _ body: Body) throws {
        guard !isTooLong else { return try body(.refused("it has more than \(longest) bytes"), number) }
        let text = text.trimmed
        guard !text.isEmpty else { return }
        guard case .member(let name) = format else { return try body(.token(text), number) }
        switch Self.value(of: name, in: text) {
        case .failure(let problem): try body(.refused(problem.description), number)
        case .success(let value):
            try JSONText.withCharacters(of: value, in: text) { characters in
                Result { try body(.token(characters.trimmed), number) }
            }.get()
        }
    }

    private static func value(
        of name: String, in text: UnsafeRawBufferPointer
    ) -> Result<JSONString, TokenListFailure> {
        do throws(JSONError) {
            var scanner = JSONScanner(text)
            try scanner.begin()
            guard scanner.next == UInt8(ascii: "{") else {
                return .failure(TokenListFailure("it is not a JSON object"))
            }
            var found: JSONString?
            var more = try scanner.enterObject()
            while more {
                let member = try scanner.name()
                let isWanted = JSONText.withCharacters(of: member, in: text) { $0.elementsEqual(name.utf8) }
                if isWanted, scanner.next == UInt8(ascii: "\"") {
                    found = try scanner.string()
                } else {
                    try scanner.skipValue()
                }
                more = try scanner.nextMember()
            }
            try scanner.finish()
            return found.map { .success($0) }
                ?? .failure(TokenListFailure("its member \(name.printable) is missing, or not a string"))
        } catch {
            return .failure(TokenListFailure("it is not a JSON object: \(error)"))
        }
    }
}

/// Splits a table into its fields, and returns those of one column.
struct TableParser {
    private enum Place { case start, plain, quoted, afterQuote }

    private let name: String
    private let longestField, longestHeader: Int
    private var delimiter = UInt8(ascii: ",")
    /// The number of the wanted column, from 0; `nil` before the end of the header.
    private var wanted: Int?
    private var width = 0
    /// The beginning of the header, or of the wanted field.
    private var pending: [UInt8] = []
    private var isInQuotes = false
    private var isTooLong = false
    /// True if a field continues after its closing quotation mark.
    private var isBroken = false
    private var place = Place.start
    private var column = 0
    /// True for a line without any character.
    private var isBlank = true
    private var line = 1
    /// The number of the first line of the record.
    private var recordLine = 1

    init(_ name: String, longestField: Int, longestHeader: Int) {
        (self.name, self.longestField, self.longestHeader) = (name, longestField, longestHeader)
    }

    mutating func read(_ piece: UnsafeRawBufferPointer, _ body: ListParser.Body) throws {
        var offset = 0
        if wanted == nil {
            while offset < piece.count, wanted == nil {
                let byte = piece[offset]
                offset += 1
                if byte == UInt8(ascii: "\"") { isInQuotes.toggle() }
                if byte == UInt8(ascii: "\n") {
                    line += 1
                    if !isInQuotes, pending.contains(where: { $0 > 0x20 }) { try finishHeader() }
                }
                if wanted == nil { pending.append(byte) }
                guard pending.count <= longestHeader else {
                    throw TokenListFailure("its header has more than \(longestHeader) bytes")
                }
            }
            recordLine = line
        }
        guard let wanted else { return }
        while offset < piece.count {
            let byte = piece[offset]
            offset &+= 1
            if byte == UInt8(ascii: "\n") {
                line &+= 1
                if place != .quoted {
                    try finishRecord(wanted, body)
                    continue
                }
            } else if byte != UInt8(ascii: "\r") {
                isBlank = false
            }
            switch place {
            case .quoted where byte == UInt8(ascii: "\""): place = .afterQuote
            case .quoted: keep(byte, wanted)
            case .start where byte == UInt8(ascii: "\""): place = .quoted
            case .afterQuote where byte == UInt8(ascii: "\""):
                keep(byte, wanted)
                place = .quoted
            case .start, .plain, .afterQuote:
                if byte == delimiter {
                    column &+= 1
                    place = .start
                } else {
                    if place == .afterQuote, byte > 0x20 { isBroken = true }
                    keep(byte, wanted)
                    place = .plain
                }
            }
        }
    }

    mutating func finish(_ body: ListParser.Body) throws {
        if wanted == nil {
            guard !isInQuotes else { throw TokenListFailure("a quoted name in its header does not end") }
            try finishHeader()
        }
        guard place != .quoted else {
            throw TokenListFailure("the quoted field that begins in line \(recordLine) does not end")
        }
        if let wanted, !isBlank { try finishRecord(wanted, body) }
    }

    private mutating func keep(_ byte: UInt8, _ wanted: Int) {
        guard column == wanted else { return }
        if pending.count < longestField { pending.append(byte) } else { isTooLong = true }
    }

    private mutating func finishRecord(_ wanted: Int, _ body: ListParser.Body) throws {
        let (line, columns, isBlank, isTooLong, isBroken) = (recordLine, column, isBlank, isTooLong, isBroken)
        // The last line may have no line feed.
        let last = max(line, self.line - 1)
        (recordLine, column, place, self.isBlank, self.isTooLong) = (self.line, 0, .start, true, false)
        self.isBroken = false
        defer { pending.removeAll(keepingCapacity: true) }
        if isBlank { return }
        guard !isBroken else {
            let lines = last > line ? "; it hides the lines to \(last)" : ""
            return try body(.refused("a quoted field continues after its closing quotation mark\(lines)"), line)
        }
        if isTooLong { return try body(.refused("its token has more than \(longestField) bytes"), line) }
        guard columns + 1 == width else {
            return try body(.refused("it has \(columns + 1) columns, and the header \(width)"), line)
        }
        try pending.withUnsafeBytes { try body(.token($0.trimmed), line) }
    }

    private mutating func finishHeader() throws {
        for candidate in [UInt8(ascii: ","), UInt8(ascii: ";"), UInt8(ascii: "\t")] where pending.contains(candidate) {
            delimiter = candidate
            break
        }
        let names = Self.names(pending, delimiter)
        guard let index = names.firstIndex(of: name) else {
            let meant = name.nearest(of: names).map { "; did you mean \($0.printable)?" }
            let known = names.prefix(20).map(\.printable).joined(separator: ", ")
            throw TokenListFailure("it has no column \(name.printable)\(meant ?? "; its header is: \(known)")")
        }
        guard names.count(where: { $0 == name }) == 1 else {
            throw TokenListFailure("it has several columns \(name.printable); name each of them differently")
        }
        (wanted, width) = (index, names.count)
        pending.removeAll(keepingCapacity: true)
    }

    private static func names(_ header: [UInt8], _ delimiter: UInt8) -> [String] {
        var (names, name, isInQuotes, afterQuote) = ([String](), [UInt8](), false, false)
        for byte in header {
            if byte == UInt8(ascii: "\"") {
                // Two quotation marks in a quoted name mean one.
                if !isInQuotes, afterQuote { name.append(byte) }
                isInQuotes.toggle()
                afterQuote = !isInQuotes
                continue
            }
            afterQuote = false
            if byte == delimiter, !isInQuotes {
                names.append(String(decoding: name, as: UTF8.self).trimmed)
                name = []
            } else {
                name.append(byte)
            }
        }
        return names + [String(decoding: name, as: UTF8.self).trimmed]
    }
}

extension UnsafeRawBufferPointer {
    fileprivate var firstLineFeed: Int? {
        guard let baseAddress, let found = memchr(baseAddress, 10, count) else { return nil }
        return UnsafeRawPointer(found) - baseAddress
    }

    /// The bytes without white space and control characters at both ends.
    fileprivate var trimmed: UnsafeRawBufferPointer {
        var (start, end) = (0, count)
        while start < end, self[start] <= 0x20 { start += 1 }
        while start < end, self[end - 1] <= 0x20 { end -= 1 }
        return UnsafeRawBufferPointer(rebasing: self[start..<end])
    }
}
