/// A value that was given, and where.
struct SettingValue: Sendable, Equatable {
    let text: String
    let place: SettingPlace
}

/// Where a value stands.
enum SettingPlace: Sendable, Equatable, CustomStringConvertible {
    case flag(String)
    case variable(String)
    case file(path: String, line: Int, name: String)
    case initial

    /// The same as a whole sentence may begin: what is wrong with a value is said of this.
    var description: String {
        switch self {
        case .flag(let name), .variable(let name): name
        case .file(let path, let line, let name): "\(path):\(line): \(name)"
        case .initial: "the default"
        }
    }

    /// Where it is from, for a column.
    var source: String {
        switch self {
        case .flag(let name), .variable(let name): name
        case .file(let path, let line, _): "\(path):\(line)"
        case .initial: "default"
        }
    }
}
