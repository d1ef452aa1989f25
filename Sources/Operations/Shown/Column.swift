import NIOCore
import PrintableText
import PushJob

/// A thing that operators and programs see: a job, a queue, a campaign.
///
/// Its columns are its only description. They determine its tables, its facts, its JSON, the help on the JSON, its schema in the API's
/// description and its table in the documentation.
package protocol Shown: ColumnValue, Sendable {
    static var columns: Columns<Self> { get }

    /// Appends the JSON object. The caller then escapes the characters that mislead people.
    func writeObject(to json: inout ByteBuffer, isDetailed: Bool)
}

/// A property of a thing: a member of its JSON, a column of a table, a fact of its page.
package struct Column<Thing>: Sendable {
    /// The name of the member; empty for a column that is not in the JSON.
    package let name: String
    /// A sentence for the readers of the JSON.
    package let meaning: String
    package let kind: ColumnKind
    package let title: String
    package let places: ColumnPlaces
    /// On pages, the title of the column whose cells show this value in their second line; `nil` if the value has its own column.
    package let under: String?
    /// True for a member that only the JSON of a single thing has, because it is large or needs a right.
    let isDetail: Bool
    package let form: ColumnForm
    let isOptional: Bool
    package let value: @Sendable (Thing) -> ShownValue
    /// The name as JSON, with its colon.
    fileprivate let key: String

    /// - Parameters:
    ///   - title: the title for people, if it is not the name in words.
    ///   - places: where people see it.
    ///   - value: returns the value; `nil` for an unknown one, which is omitted.
    package init<Value: ColumnValue>(
        _ name: String, _ meaning: String = "", as kind: ColumnKind = .plain, title: String? = nil,
        in places: ColumnPlaces = [], under: String? = nil, isDetail: Bool = false,
        _ value: @escaping @Sendable (Thing) -> Value
    ) {
        (self.name, self.meaning, self.kind, self.places, self.under) = (name, meaning, kind, places, under)
        self.title = title ?? (name == "id" ? "ID" : name.replacing("_", with: " ").capitalizedFirst)
        self.isDetail = isDetail
        (form, isOptional) = (Value.form, Value.isOptional)
        self.value = { value($0).shownValue }
        key = "\"\(name)\":"
    }

    package static func text<Value: ColumnValue>(
        _ title: String, as kind: ColumnKind = .plain, in places: ColumnPlaces, under: String? = nil,
        _ value: @escaping @Sendable (Thing) -> Value
    ) -> Column { Column("", as: kind, title: title, in: places, under: under, value) }

    func cell(_ thing: Thing, now: Int64) -> String { kind.cell(value(thing), now: now) ?? "-" }
}

package struct ColumnPlaces: OptionSet, Sendable {
    package let rawValue: Int
    package init(rawValue: Int) { self.rawValue = rawValue }

    /// The table of a command.
    package static let table = Self(rawValue: 1)
    /// The list of a page. `list` is always shown, `wide` is a line of its own on a phone, and `widest` is only on wide screens and phones.
    package static let list = Self(rawValue: 2)
    package static let wide = Self(rawValue: 8)
    package static let widest = Self(rawValue: 16)
    package static let lists: Self = [.list, .wide, .widest]
    /// The facts about a single thing.
    package static let facts = Self(rawValue: 4)
    package static let all: Self = [.table, .list, .facts]
}

/// The meaning of a value, which decides how people see it.
package enum ColumnKind: Sendable {
    /// A text, number, switch or list without a unit.
    case plain
    /// A text that is never wrapped, such as an ID.
    case key
    /// A number of things.
    case count
    /// A point in time, in milliseconds since 1970. A table shows an `age` only as the time since then.
    case time, age
    /// A duration in milliseconds.
    case duration
    /// A size, in bytes.
    case bytes
    /// Things per second.
    case rate
    /// The names of things that have pages.
    case queue, app, campaign, worker
    /// One of these words.
    case choice([String])

    /// One of the words of a type.
    package static func choice<Word: RawRepresentable<String> & CaseIterable>(_ type: Word.Type) -> ColumnKind {
        .choice(type.allCases.map(\.rawValue))
    }
}

package enum ShownValue: Sendable {
    case none
    case text(String)
    case bytes(ByteBuffer)
    case number(Int64)
    case decimal(Double)
    case flag(Bool)
    case list([ShownValue])
    case map([String: ShownValue])
    case object(any Shown)
}

/// The form of a column's values, for their description.
package indirect enum ColumnForm: Sendable {
    case text, number, decimal, flag
    case list(ColumnForm)
    case map(ColumnForm)
    case object(ShownMembers)
}

package protocol ColumnValue {
    var shownValue: ShownValue { get }
    static var form: ColumnForm { get }
    static var isOptional: Bool { get }
}

extension ColumnValue { package static var isOptional: Bool { false } }

extension Shown {
    package var shownValue: ShownValue { .object(self) }
    package static var form: ColumnForm { .object(columns.members) }
}

extension String: ColumnValue {
    package var shownValue: ShownValue { .text(self) }
    package static var form: ColumnForm { .text }
}

extension ByteBuffer: ColumnValue {
    package var shownValue: ShownValue { .bytes(self) }
    package static var form: ColumnForm { .text }
}

extension Int: ColumnValue {
    package var shownValue: ShownValue { .number(Int64(self)) }
    package static var form: ColumnForm { .number }
}

extension Int64: ColumnValue {
    package var shownValue: ShownValue { .number(self) }
    package static var form: ColumnForm { .number }
}

extension Double: ColumnValue {
    package var shownValue: ShownValue { isFinite ? .decimal(self) : .none }
    package static var form: ColumnForm { .decimal }
}

extension Bool: ColumnValue {
    package var shownValue: ShownValue { .flag(self) }
    package static var form: ColumnForm { .flag }
}

extension Array: ColumnValue where Element: ColumnValue {
    package var shownValue: ShownValue { .list(map(\.shownValue)) }
    package static var form: ColumnForm { .list(Element.form) }
}

extension Dictionary: ColumnValue where Key == String, Value: ColumnValue {
    package var shownValue: ShownValue { .map(mapValues(\.shownValue)) }
    package static var form: ColumnForm { .map(Value.form) }
}

extension Optional: ColumnValue where Wrapped: ColumnValue {
    package var shownValue: ShownValue { self?.shownValue ?? .none }
    package static var form: ColumnForm { Wrapped.form }
    package static var isOptional: Bool { true }
}

package struct Columns<Thing>: Sendable {
    /// The columns in the order in which people see them.
    package let all: [Column<Thing>]
    /// The columns of the JSON, in its order.
    fileprivate let inJSON: [Column<Thing>]
    package let members: ShownMembers

    /// - Parameters:
    ///   - name: the name in the API's description, such as `DeadLetter`.
    ///   - commands: the commands that print it with `--json`.
    ///   - isSorted: false to order the members as the columns; true to order them by name.
    ///   - isOpen: true if an object can have further members.
    package init(
        _ name: String, _ meaning: String, commands: [String] = [], isSorted: Bool = true, isOpen: Bool = false,
        _ all: [Column<Thing>]
    ) {
        self.all = all
        let named = all.filter { !$0.name.isEmpty }
        inJSON = isSorted ? named.sorted { $0.name < $1.name } : named
        members = ShownMembers(
            name: name, meaning: meaning, commands: commands, isOpen: isOpen,
            all: named.map { column in
                ShownMembers.Member(
                    name: column.name, meaning: column.meaning, kind: column.kind, form: column.form,
                    isOptional: column.isOptional || column.isDetail)
            })
    }

    package func shown(in places: ColumnPlaces) -> [Column<Thing>] {
        all.filter { !$0.places.isDisjoint(with: places) }
    }
}

// MARK: JSON

extension Shown {
    /// Appends a JSON object.
    /// - Parameter isDetailed: true to include the members that only single things have.
    package func writeJSON(to json: inout ByteBuffer, isDetailed: Bool = false) {
        let start = json.writerIndex
        writeObject(to: &json, isDetailed: isDetailed)
        JSONLine.escape(&json, from: start)
    }

    package func json(isDetailed: Bool = false) -> String {
        var json = ByteBuffer()
        writeJSON(to: &json, isDetailed: isDetailed)
        return String(buffer: json)
    }

    package func writeObject(to json: inout ByteBuffer, isDetailed: Bool) {
        json.writeStaticString("{")
        var isFirst = true
        for column in Self.columns.inJSON where isDetailed || !column.isDetail {
            let value = column.value(self)
            if case .none = value { continue }
            if !isFirst { json.writeStaticString(",") }
            isFirst = false
            json.writeString(column.key)
            value.write(to: &json, isDetailed: isDetailed)
        }
        json.writeStaticString("}")
    }
}

extension ShownValue {
    fileprivate func write(to json: inout ByteBuffer, isDetailed: Bool) {
        switch self {
        case .none: json.writeStaticString("null")
        case .text(let text): json.writeJSONString(text)
        case .bytes(let bytes): json.writeJSONString(bytes)
        case .number(let number): json.writeString("\(number)")
        case .decimal(let number):
            let text = "\(number)"
            json.writeString(text.hasSuffix(".0") ? String(text.dropLast(2)) : text)
        case .flag(let flag): json.writeString(flag ? "true" : "false")
        case .list(let values):
            json.writeStaticString("[")
            for (index, value) in values.enumerated() {
                if index > 0 { json.writeStaticString(",") }
                value.write(to: &json, isDetailed: isDetailed)
            }
            json.writeStaticString("]")
        case .map(let values):
            json.writeStaticString("{")
            for (index, value) in values.sorted(by: { $0.key < $1.key }).enumerated() {
                if index > 0 { json.writeStaticString(",") }
                json.writeJSONString(value.key)
                json.writeStaticString(":")
                value.value.write(to: &json, isDetailed: isDetailed)
            }
            json.writeStaticString("}")
        case .object(let thing): thing.writeObject(to: &json, isDetailed: isDetailed)
        }
    }
}

// MARK: For people

extension ColumnKind {
    /// Returns the text of a table's cell, which is printable; `nil` for an unknown value.
    func cell(_ value: ShownValue, now: Int64) -> String? {
        switch (self, value) {
        case (.time, .number(let time)): Moment.text(time)
        case (.age, .number(let time)): Moment.age(now.since(time))
        default: text(value, now: now)
        }
    }

    /// Returns the text of a fact, which is printable; `nil` for an unknown value.
    package func text(_ value: ShownValue, now: Int64) -> String? {
        switch (self, value) {
        case (_, .none): nil
        case (.time, .number(let time)), (.age, .number(let time)):
            time > now
                ? "\(Moment.text(time)), in \(Moment.age(time.since(now - 999)))"
                : "\(Moment.text(time)), \(Moment.age(now.since(time))) ago"
        case (.duration, .number(let milliseconds)): Words.duration(milliseconds)
        case (.bytes, .number(let bytes)): Words.bytes(Int(bytes))
        case (.count, .number(let number)): Words.number(Int(number))
        case (.rate, .decimal(let rate)): Words.rate(rate)
        case (_, .text(let text)): text.printable
        case (_, .bytes(let bytes)): String(buffer: bytes).printable
        case (_, .number(let number)): "\(number)"
        case (_, .decimal(let number)): "\(number)"
        case (_, .flag(let flag)): flag ? "yes" : "no"
        case (_, .list(let values)):
            values.isEmpty ? nil : values.compactMap { text($0, now: now) }.joined(separator: " ")
        case (_, .map(let values)):
            values.sorted { $0.key < $1.key }.compactMap { name, value in
                text(value, now: now).map { "\(name.printable)=\($0)" }
            }.joined(separator: " ")
        case (_, .object): nil
        }
    }
}

extension Shown {
    /// The titles of a command's table.
    package static func titles(hasQueue: Bool = true) -> [String] {
        tableColumns(hasQueue).map { $0.title.uppercased() }
    }

    /// Returns the cells of a table's row.
    package func cells(now: Int64, hasQueue: Bool = true) -> [String] {
        let columns = Self.tableColumns(hasQueue)
        return columns.enumerated().map { index, column in
            let cell = column.cell(self, now: now)
            return index == columns.count - 1 ? cell : String(cell.prefix(255))
        }
    }

    /// Returns the text of a column; `nil` if the value is unknown or is not a text.
    package func value(of name: String) -> String? {
        switch Self.columns.all.first(where: { $0.name == name })?.value(self) {
        case .text(let text): text
        case .bytes(let bytes): String(buffer: bytes)
        default: nil
        }
    }

    private static func tableColumns(_ hasQueue: Bool) -> [Column<Self>] {
        columns.shown(in: .table).filter { hasQueue || $0.name != "queue" }
    }

    /// Returns the known facts, one per line.
    /// - Parameter more: further facts, which are printable.
    package func page(now: Int64, and more: [(name: String, value: String)] = []) -> String {
        let facts = Self.columns.shown(in: .facts).compactMap { column in
            column.kind.text(column.value(self), now: now).map { (name: column.title.lowercased(), value: $0) }
        }
        let width = ((facts + more).map(\.name.count).max() ?? 0) + 2
        return (facts + more).map { $0.name.padded(to: width) + $0.value + "\n" }.joined()
    }
}
