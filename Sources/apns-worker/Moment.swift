import FoundationEssentials

/// Times as people read them.
enum Moment {
    /// Now, in milliseconds since 1970.
    static var now: Int64 { Int64(Date().timeIntervalSince1970 * 1000) }

    /// Such as `2026-11-21T15:53:52Z`.
    static func text(_ milliseconds: Int64) -> String {
        Date(timeIntervalSince1970: Double(milliseconds) / 1000).formatted(.iso8601)
    }

    /// Such as `45s`, `3m`, `2h` or `12d`.
    static func age(_ milliseconds: Int64) -> String {
        let seconds = max(0, milliseconds / 1000)
        return switch seconds {
        case ..<60: "\(seconds)s"
        case ..<3600: "\(seconds / 60)m"
        case ..<86400: "\(seconds / 3600)h"
        default: "\(seconds / 86400)d"
        }
    }
}

extension String {
    /// With spaces behind it, up to so many characters.
    func padded(to width: Int) -> String { self + String(repeating: " ", count: max(0, width - count)) }
}

/// Lines in columns, as wide as the widest of the first lines.
struct Table {
    private var widths: [Int]

    init(_ titles: [String], _ rows: [[String]]) {
        widths = titles.map(\.count)
        for row in rows {
            for (column, cell) in row.enumerated() where column < widths.count {
                widths[column] = max(widths[column], min(cell.count, 40))
            }
        }
    }

    func line(_ cells: [String]) -> String {
        let columns = cells.enumerated().map { $0 == cells.count - 1 ? $1 : $1.padded(to: widths[$0]) }
        return columns.joined(separator: "  ")
    }
}
