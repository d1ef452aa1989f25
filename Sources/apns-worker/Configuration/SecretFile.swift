import APNS

/// A setting whose value is what a file holds, as mounted secrets do.
enum SecretFile {
    struct Unusable: Error, CustomStringConvertible {
        let description: String
    }

    /// The file's text without the line feed that editors put at its end.
    static func text(_ path: String) throws(Unusable) -> String {
        var bytes: [UInt8]
        do throws(SecretSource.Unreadable) {
            bytes = try SecretSource.file(path).read()
        } catch {
            throw Unusable(description: error.description)
        }
        while bytes.last == UInt8(ascii: "\n") || bytes.last == UInt8(ascii: "\r") { bytes.removeLast() }
        guard let text = String(validating: bytes, as: UTF8.self), !text.isEmpty else {
            throw Unusable(description: "\(path) holds no text; put the secret there")
        }
        return text
    }
}
