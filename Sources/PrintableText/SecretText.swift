import Glibc

extension String {
    /// The text without parts that look like secrets: PEM blocks, passwords in URLs, and long base64 with capitals, small letters and
    /// digits (a key, a certificate or a provider token). This is only the last defence: code must not print a text that it knows to be a
    /// secret.
    public var withoutSecrets: String {
        guard utf8.count >= 12 else { return self }
        var bytes = Array(utf8)
        var isChanged = SecretText.hidePEM(in: &bytes)
        if SecretText.hidePasswords(in: &bytes) { isChanged = true }
        if SecretText.hideRuns(in: &bytes) { isChanged = true }
        return isChanged ? String(decoding: bytes, as: UTF8.self) : self
    }

    public var hasSecrets: Bool { withoutSecrets != self }
}

private enum SecretText {
    static let hidden = Array("(hidden)".utf8)

    static func hidePEM(in bytes: inout [UInt8]) -> Bool {
        var isChanged = false
        while let start = bytes[...].range(of: "-----BEGIN")?.lowerBound {
            // Hides up to the end of the block. If the block is cut off, hides the rest of the text.
            var stop = bytes.endIndex
            if let last = bytes[start...].range(of: "-----END") {
                let label = bytes[last.upperBound...].range(of: "-----")
                stop = label?.upperBound ?? bytes.endIndex
            }
            bytes.replaceSubrange(start..<stop, with: hidden)
            isChanged = true
        }
        return isChanged
    }

    /// Hides the passwords in `scheme://user:password@host` and `password=…`, and in a text that consists of `user:password@host`.
    static func hidePasswords(in bytes: inout [UInt8]) -> Bool {
        var isChanged = false
        func hide(_ range: Range<Int>) {
            let stars = Array("***".utf8)
            guard !range.isEmpty, Array(bytes[range]) != stars else { return }
            bytes.replaceSubrange(range, with: stars)
            isChanged = true
        }
        // Ends at white space or a quote: a password that should have been escaped may have any other character.
        func word(from start: Int) -> ArraySlice<UInt8> {
            bytes[start...].prefix { $0 > 0x20 && ![0x22, 0x27, 0x60].contains($0) }
        }
        var from = 0
        while let range = bytes[from...].range(of: "://") {
            from = range.upperBound
            let rest = word(from: from)
            if let at = rest.lastIndex(of: UInt8(ascii: "@")), let colon = rest[..<at].firstIndex(of: UInt8(ascii: ":"))
            {
                hide((colon + 1)..<at)
            }
        }
        from = 0
        while let range = bytes[from...].range(of: "password=") {
            from = range.upperBound
            hide(from..<word(from: from).prefix { $0 != UInt8(ascii: "&") }.endIndex)
        }
        if word(from: 0).count == bytes.count, bytes[...].range(of: "://") == nil,
            let at = bytes.lastIndex(of: UInt8(ascii: "@")), let colon = bytes[..<at].firstIndex(of: UInt8(ascii: ":"))
        {
            hide((colon + 1)..<at)
        }
        return isChanged
    }

    /// The minimum length in bytes of base64 that counts as a secret.
    private static let base64 = 40

    static func hideRuns(in bytes: inout [UInt8]) -> Bool {
        var isChanged = false
        var start = 0
        while start < bytes.count {
            guard isOfBase64(bytes[start]) else {
                start += 1
                continue
            }
            let end = bytes[start...].firstIndex { !isOfBase64($0) } ?? bytes.count
            if end - start >= base64, isSecret(bytes[start..<end]) {
                bytes.replaceSubrange(start..<end, with: hidden)
                isChanged = true
                start += hidden.count
            } else {
                start = end
            }
        }
        return isChanged
    }

    private static func isSecret(_ run: ArraySlice<UInt8>) -> Bool {
        let parts = run.split { [UInt8(ascii: "/"), UInt8(ascii: "-"), UInt8(ascii: "_")].contains($0) }
        if parts.contains(where: { $0.count >= base64 && isMixed($0) }) { return true }
        // Base64 has one of these separators in about every 32 characters. A path or a UUID has one in about every ten.
        return run.first != UInt8(ascii: "/") && isMixed(run) && (parts.count - 1) * 25 <= run.count
    }

    /// Returns true for the mixture of random base64, which names do not have: of 64 characters, 26 are capitals, 26 small letters, and ten
    /// digits.
    private static func isMixed(_ run: ArraySlice<UInt8>) -> Bool {
        let (capitals, small, digits) = (
            run.count { $0 &- 0x41 < 26 }, run.count { $0 &- 0x61 < 26 }, run.count(where: isDigit)
        )
        return min(capitals, small) * 8 >= run.count && digits * 20 >= run.count
    }

    private static func isDigit(_ byte: UInt8) -> Bool { byte &- 0x30 < 10 }

    private static func isOfBase64(_ byte: UInt8) -> Bool {
        isDigit(byte) || (byte | 0x20) &- 0x61 < 26 || [0x2B, 0x2D, 0x2F, 0x3D, 0x5F].contains(byte)
    }
}

/// Checks values that should be paths of files. If an operator confuses two settings, the value is the secret itself.
public enum PathText {
    /// The endings of the files that settings name.
    private static let endings: Set<Substring> = [
        "p8", "pem", "p12", "pfx", "crt", "cer", "key", "der", "ca", "txt", "pass", "json", "yaml", "yml",
    ]

    /// Returns true if the file exists, or if the text can only be a path.
    public static func isPath(_ text: String) -> Bool {
        guard !text.isEmpty, !text.utf8.contains(0) else { return false }
        var facts = stat()
        if lstat(text, &facts) == 0 { return true }
        guard !text.hasSecrets, !text.contains("-----"), text.utf8.count <= 1024,
            text.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F })
        else { return false }
        let parts = text.split(separator: "/")
        if parts.count > 1, ["/", "./", "../"].contains(where: text.hasPrefix) { return true }
        if let name = parts.last, let dot = name.lastIndex(of: "."), endings.contains(name[name.index(after: dot)...]) {
            return true
        }
        return parts.count > 1 && stat(String(parts[0]), &facts) == 0 && facts.st_mode & S_IFMT == S_IFDIR
    }

    /// Returns the text for a message if it is a path, and otherwise a description that hides it.
    public static func shown(_ text: String) -> String {
        isPath(text) ? text : "a text that is not the path of a file, and is not shown, because it may be a secret"
    }
}
