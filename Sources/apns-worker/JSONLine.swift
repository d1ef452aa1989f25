import FoundationEssentials

/// Values as a line of JSON.
enum JSONLine {
    /// - Parameter keys: how members are named that are not by themselves.
    static func text(
        _ value: some Encodable, keys: JSONEncoder.KeyEncodingStrategy = .useDefaultKeys
    ) throws -> String {
        let encoder = JSONEncoder()
        encoder.keyEncodingStrategy = keys
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        return String(decoding: try encoder.encode(value), as: UTF8.self)
    }
}
