import COpenSSL

/// The simulator's own certificates cannot be made, or not be written.
public struct SimulatedAuthorityError: Error, Equatable, Sendable, CustomStringConvertible {
    /// What is wrong, where, and what to do.
    public let description: String

    init(_ description: String) { self.description = description }

    /// OpenSSL refused something that should work.
    init(openSSL what: String) {
        var text = [CChar](repeating: 0, count: 256)
        ERR_error_string_n(ERR_get_error(), &text, text.count)
        ERR_clear_error()
        let reason = String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
        self.init("OpenSSL could not \(what): \(reason)")
    }
}
