import Sockets

/// The parts of a Redis URL. Errors never repeat its text.
enum RedisURLText {
    /// Splits off `?query`.
    static func splitQuery(
        _ text: Substring, allowing names: Set<String>
    ) throws(RedisURLError) -> (place: Substring, query: [String: String]) {
        guard !text.contains("#") else { throw .query }
        guard let (place, query) = text.splitOnce(at: "?") else { return (text, [:]) }
        var values: [String: String] = [:]
        for item in query.split(separator: "&", omittingEmptySubsequences: false) where !query.isEmpty {
            guard let (name, value) = item.splitOnce(at: "="), names.contains(String(name)), !value.isEmpty,
                values.updateValue(try percentDecoded(value), forKey: String(name)) == nil
            else { throw .query }
        }
        return (place, values)
    }

    /// Splits off `user:password@`, decoded.
    static func splitCredentials(
        _ authority: Substring, passwordFile: String?
    ) throws(RedisURLError) -> (access: RedisAccess, server: Substring) {
        var access = RedisAccess(passwordFile: passwordFile)
        // The last @, so that a password can contain one.
        guard let at = authority.lastIndex(of: "@") else { return (access, authority) }
        let server = authority[authority.index(after: at)...]
        if let (user, password) = authority[..<at].splitOnce(at: ":") {
            if !user.isEmpty { access.user = try percentDecoded(user) }
            // `user:@` is a user with an empty password, which an ACL may allow; `:@` has neither user nor password.
            if passwordFile == nil {
                if !user.isEmpty || !password.isEmpty { access.password = try percentDecoded(password) }
            } else {
                guard password.isEmpty else { throw .passwordTwice }
            }
        } else if at != authority.startIndex {
            guard passwordFile != nil else { throw .userWithoutPassword }
            access.user = try percentDecoded(authority[..<at])
        }
        return (access, server)
    }

    static func database(_ text: some StringProtocol) throws(RedisURLError) -> Int {
        guard let number = text.decimal else { throw .database }
        return number
    }

    static func percentDecoded(_ text: Substring) throws(RedisURLError) -> String {
        guard let decoded = text.percentDecoded else { throw .percentEncoding }
        return decoded
    }
}

extension StringProtocol where SubSequence == Substring {
    func splitOnce(at separator: String) -> (Substring, Substring)? {
        guard let range = self.firstRange(of: separator) else { return nil }
        return (self[..<range.lowerBound], self[range.upperBound...])
    }
}

extension StringProtocol {
    /// The value of a text of decimal digits; `nil` for other text.
    var decimal: Int? {
        guard !isEmpty, utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
        return Int(self)
    }
}
