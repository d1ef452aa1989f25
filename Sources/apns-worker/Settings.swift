import ArgumentParser
import FoundationEssentials

/// A setting that a flag or an environment variable gives, the flag first.
enum Setting {
    static func text(_ flag: String?, _ variable: String) -> String? {
        let environment = ProcessInfo.processInfo.environment
        if let flag { return flag }
        // An empty variable is how compose files and shells say "not set".
        if let value = environment[variable], !value.isEmpty { return value }
        return nil
    }

    static func number(_ flag: Int?, _ variable: String, in range: ClosedRange<Int>) throws -> Int? {
        var value = flag
        if flag == nil, let text = text(nil, variable) {
            guard let number = Int(text) else {
                throw ValidationError("\(variable) is not a whole number; it has to be one from \(range)")
            }
            value = number
        }
        guard let value else { return nil }
        guard range.contains(value) else {
            throw ValidationError("\(variable) (or its flag) is \(value); it has to be from \(range)")
        }
        return value
    }
}
