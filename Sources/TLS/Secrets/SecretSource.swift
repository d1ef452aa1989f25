import Glibc
import PrintableText
import Sockets

/// The source of a key, a certificate or a passphrase.
///
/// Safe to print: neither the description nor a mirror shows contents.
public enum SecretSource: Sendable, Equatable {
    /// A file, such as one in a mounted secret. Its contents can change.
    case file(String)
    /// Base64 text, such as the value of an environment variable; `name` identifies the text in errors.
    case base64(String, name: String)
    /// Raw bytes; `name` identifies the bytes in errors.
    case bytes([UInt8], name: String)

    /// The maximum size of a secret in bytes, far beyond any certificate chain.
    public static let maximumSize = 1 << 20

    public struct Unreadable: Error, Equatable, Sendable, CustomStringConvertible {
        /// The problem, its place, and what to do; no part of the contents.
        public let description: String
    }

    /// Reads the secret from its source.
    /// - Parameter allowsPipe: true to wait for the writer of a named pipe, false to refuse it.
    /// - Throws: ``Unreadable`` if the secret is missing, empty, larger than ``maximumSize`` or malformed.
    public func read(allowsPipe: Bool = false) throws(Unreadable) -> [UInt8] {
        let bytes: [UInt8]
        switch self {
        case .file(let path): bytes = try Self.contents(path, allowsPipe)
        case .base64(let text, _): bytes = try decode(text)
        case .bytes(let given, _): bytes = given
        }
        guard !bytes.isEmpty else { throw Unreadable(description: "\(self) is empty; put the secret into it") }
        guard bytes.count <= Self.maximumSize else { throw tooLarge }
        return bytes
    }

    private var tooLarge: Unreadable {
        Unreadable(description: "\(self) is larger than 1 MiB, too large for a key or certificate; use another file")
    }

    private func decode(_ text: String) throws(Unreadable) -> [UInt8] {
        guard text.utf8.count <= 2 * Self.maximumSize else { throw tooLarge }
        do throws(Base64.Malformed) {
            return try Base64.decode(text.utf8)
        } catch {
            let found = text.hasPrefix("-----BEGIN") ? "PEM text as it is, " : ""
            throw Unreadable(
                description: "\(self) is \(found)not base64 from character \(error.position) on; encode the whole file "
                    + "with `base64 -w0`")
        }
    }

    private static func contents(_ path: String, _ allowsPipe: Bool) throws(Unreadable) -> [UInt8] {
        // Without O_NONBLOCK, a named pipe would block the thread until it has a writer.
        var descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)
        guard descriptor >= 0 else { throw failed(path, errno) }
        defer { close(descriptor) }
        var facts = stat()
        guard fstat(descriptor, &facts) == 0 else { throw failed(path, errno) }
        switch facts.st_mode & S_IFMT {
        case S_IFREG: break
        case S_IFIFO where allowsPipe:
            close(descriptor)
            descriptor = open(path, O_RDONLY | O_CLOEXEC)
            guard descriptor >= 0 else { throw failed(path, errno) }
        case S_IFDIR:
            throw Unreadable(description: "\(PathText.shown(path)) is a directory; use the path of the file in it")
        default:
            throw Unreadable(
                description: "\(PathText.shown(path)) is not a regular file; use the path of a regular file")
        }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 16_384)
        while bytes.count <= maximumSize {
            let count = Glibc.read(descriptor, &chunk, chunk.count)
            if count < 0, errno == EINTR { continue }
            guard count >= 0 else { throw failed(path, errno) }
            guard count > 0 else { break }
            bytes.append(contentsOf: chunk[..<count])
        }
        return bytes
    }

    private static func failed(_ path: String, _ error: Int32) -> Unreadable {
        let path = PathText.shown(path)
        if let shortage = DescriptorLimit.shortage(error) {
            return Unreadable(description: "cannot read \(path): \(shortage)")
        }
        let advice =
            switch error {
            case ENOENT, ENOTDIR: "check the path, and whether the secret is mounted"
            case EACCES, EPERM: "make it readable for the user of this process"
            default: "check the path"
            }
        return Unreadable(description: "cannot read \(path): \(String(cString: strerror(error))); \(advice)")
    }

    /// Returns a warning if users other than its owner can read the file; nil otherwise. Also returns nil if the file cannot be inspected,
    /// because ``read(allowsPipe:)`` reports that.
    ///
    /// It is not an error, because Kubernetes by default mounts secrets with the owner root and mode 0644.
    public func permissionsWarning() -> String? {
        guard case .file(let path) = self else { return nil }
        var facts = stat()
        guard stat(path, &facts) == 0, facts.st_mode & S_IFMT == S_IFREG else { return nil }
        let mode = facts.st_mode & 0o7777
        // With Kubernetes' fsGroup and systemd's credentials, the process reads root's files through their group.
        let isOwner = facts.st_uid == geteuid() || geteuid() == 0
        let readers =
            switch (isOwner && mode & 0o040 != 0, mode & 0o004 != 0) {
            case (true, true): "its group and all other users"
            case (true, false): "its group"
            case (false, true): "everybody"
            case (false, false): ""
            }
        guard !readers.isEmpty else { return nil }
        return
            "\(path) may be read by \(readers) (mode \(Self.octal(mode))): chmod 600 \(path), or defaultMode: 0400 where "
            + "Kubernetes mounts it"
    }

    /// Returns a file's mode in the notation of `chmod`, with four digits.
    public static func octal(_ mode: mode_t) -> String { mode.digits(4, radix: 8) }
}

extension SecretSource: CustomStringConvertible, CustomReflectable {
    public var description: String {
        switch self {
        case .file(let path): PathText.shown(path)
        case .base64(_, let name): name
        case .bytes(_, let name): name
        }
    }

    public var customMirror: Mirror { Mirror(self, children: ["source": description]) }
}
