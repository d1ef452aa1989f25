/// The clock that scripts read.
package enum ClockSource: Sendable, Equatable {
    /// The clock of Redis.
    case server
    /// A key that holds the time, in milliseconds since 1970. For tests: expirations still follow the clock of Redis.
    case key(String)
}

/// The code that scripts share, in parts. The first line of a script or part names the parts that it requires:
///
///     -- require: time, count
struct ScriptParts {
    /// A mistake in a script.
    enum Mistake: Error, Equatable {
        /// A part that does not exist.
        case unknownPart(String)
    }

    /// The sources of the parts by name.
    let texts: [String: [UInt8]]

    init(_ texts: [String: [UInt8]]) {
        self.texts = texts
    }

    /// The parts in the folder `parts`.
    static func embedded(_ clock: ClockSource) -> ScriptParts {
        ScriptParts([
            "app-pause": PackageResources.app_pause_lua,
            "bury": PackageResources.bury_lua,
            "campaigns": PackageResources.campaigns_lua,
            "chunks": PackageResources.chunks_lua,
            "claims": PackageResources.claims_lua,
            "count": PackageResources.count_lua,
            "dead-bytes": PackageResources.dead_bytes_lua,
            "list": PackageResources.list_lua,
            "memory": PackageResources.memory_lua,
            "minutes": PackageResources.minutes_lua,
            "portions": PackageResources.portions_lua,
            "results": PackageResources.results_lua,
            "time": clock.part,
            "types": PackageResources.types_lua,
            "wrapper": PackageResources.wrapper_lua,
        ])
    }

    /// Returns a script after the parts that it requires. Each part occurs once, after the parts that it requires
    /// itself.
    /// - Throws: ``Mistake``.
    func assemble(_ script: [UInt8]) throws -> [UInt8] {
        var assembled: [UInt8] = []
        var added: Set<String> = []
        try add(script, to: &assembled, after: &added)
        return assembled
    }

    private func add(_ text: [UInt8], to assembled: inout [UInt8], after added: inout Set<String>) throws {
        for name in Self.requirements(of: text) where added.insert(name).inserted {
            guard let part = texts[name] else { throw Mistake.unknownPart(name) }
            try add(part, to: &assembled, after: &added)
        }
        assembled += text
    }

    /// Returns the names of the parts that a script or part requires directly.
    static func requirements(of text: [UInt8]) -> [String] {
        let line = String(decoding: text.prefix { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
        let mark = "-- require: "
        guard line.hasPrefix(mark) else { return [] }
        return line.dropFirst(mark.count).split(separator: ",").map { String($0.drop { $0 == " " }) }
    }
}

extension ClockSource {
    /// The part `time`.
    fileprivate var part: [UInt8] {
        switch self {
        case .server: PackageResources.time_lua
        case .key(let key): Array(Self.part(readingKey: key).utf8)
        }
    }

    private static func part(readingKey key: String) -> String {
        // Escaped byte by byte, so that a key can be any text.
        let literal = key.utf8.map { byte in
            "\\" + (byte < 10 ? "00" : byte < 100 ? "0" : "") + String(byte)
        }
        return """
            local function now_ms()
                return assert(tonumber(redis.call('GET', '\(literal.joined())')), 'the clock is not set')
            end

            -- The microseconds vary too: some scripts use their last digits as random numbers.
            local function now_us()
                local ms = now_ms()
                return ms * 1000 + ms % 1000
            end

            """
    }
}
