import PrintableText

/// The settings that a command needs, in any shell, to act on the same fleet.
package struct FleetAccess: Sendable, Equatable {
    /// A setting that is not the default.
    package typealias Value = (option: String?, variable: String, text: String)

    /// Options with their values, in order.
    private var options: [String] = []
    /// The environment variables of settings that must not be in a command line, or have no option.
    private var variables: [String] = []

    /// Makes the access to a fleet for commands that need no settings.
    package init() {}

    package init(_ values: [Value]) {
        for value in values {
            if let option = value.option, !value.text.hasSecrets {
                options += Self.option(option, value.text)
            } else {
                variables.append(value.variable)
            }
        }
    }

    /// Returns a command of `apns-worker` for a shell. In a shell that lacks a variable of the command, the shell reports this and does not
    /// run the command.
    /// - Parameter name: the name of a thing, as the last word.
    package func command(_ words: [String], _ name: String? = nil) -> String {
        var all = ["apns-worker"] + words
        // A name that begins with a dash would be read as an option.
        if let name, !Self.beginsWithDash(name) { all.append(name) }
        all += options
        if let name, Self.beginsWithDash(name) { all += ["--", name] }
        return variables.map { "\($0)=${\($0):?} " }.joined() + all.map(Self.quoted).joined(separator: " ")
    }

    /// Returns an option with its value, which may begin with a dash.
    package static func option(_ option: String, _ value: String) -> [String] {
        beginsWithDash(value) ? ["\(option)=\(value)"] : [option, value]
    }

    /// Compares bytes, as the parser of commands does. To Swift, a dash before a combining mark is another character.
    private static func beginsWithDash(_ word: String) -> Bool { word.utf8.first == UInt8(ascii: "-") }

    /// Quotes a word for a shell. The word may be a name, which producers choose, so it can contain anything.
    private static func quoted(_ word: String) -> String {
        let isPlain =
            !word.isEmpty
            && word.utf8.allSatisfy {
                (0x30...0x39).contains($0) || (0x41...0x5A).contains($0) || (0x61...0x7A).contains($0)
                    || "-_.,:/@%+=".utf8.contains($0)
            }
        return isPlain
            ? word
            // Compares bytes, as the shell does.
            : "'" + String(decoding: word.utf8.flatMap { $0 == 0x27 ? Array("'\\''".utf8) : [$0] }, as: UTF8.self) + "'"
    }
}
