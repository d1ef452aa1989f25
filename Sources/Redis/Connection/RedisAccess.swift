import PrintableText

/// The credentials, database and protocol for a server: everything in an endpoint except its location.
///
/// Its descriptions, reflections included, never show the password.
public struct RedisAccess: Sendable, Equatable {
    /// The ACL user; `nil` for the default user.
    public var user: String?
    /// The password; `nil` for no authentication, or if it is in a file.
    public var password: String?
    /// A file with the password, read again for each connection.
    public var passwordFile: String?
    public var database = 0
    public var usesTLS = false
    var isOfSentinels = false

    /// The settings that contain the user and the password, for errors.
    var source: String {
        switch (passwordFile, isOfSentinels) {
        case (let file?, false): "the user in the Redis URL and the password in \(PathText.shown(file))"
        case (let file?, true): "`sentinel_user` in the Redis URL and the password in \(PathText.shown(file))"
        case (nil, false): "the user and the password in the Redis URL"
        case (nil, true): "`sentinel_user` and `sentinel_password` in the Redis URL"
        }
    }

    /// The credentials before the host in a URL, with the password hidden.
    var shownCredentials: String {
        password == nil && passwordFile == nil ? "" : "\(user ?? ""):***@"
    }
}

extension RedisAccess: Redacted {
    /// The user, the database and the use of TLS.
    public var description: String {
        "\(shownCredentials)/\(database)\(usesTLS ? " over TLS" : "")"
    }
}

/// A value with secrets or payloads: all of its texts, reflections included, show only its `description`.
public protocol Redacted: CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {}

extension Redacted {
    public var debugDescription: String { description }
    public var customMirror: Mirror { Mirror(self, children: ["description": description]) }
}
