import HTTPPort
import HTTPTypes
import Hummingbird
import NIOCore
import Synchronization
import WebPages

/// The sender of a request.
struct Visitor: Sendable {
    /// The name for the audit log; `nil` if the dashboard has no users.
    var name: String?
    var role: Role
    /// True if the visitor can see tokens and payloads.
    var seesContent: Bool
    /// The value that forms must send back, which protects against requests forged by other sites.
    var formToken = ""

    /// The name in pauses, cancellations and the audit log.
    var by: String { name.map { "\($0) (web)" } ?? "web" }
}

/// A request to the dashboard, with its visitor and fields.
struct WebContext: RequestContext {
    var coreContext: CoreRequestContextStorage
    /// The address of the client, or of the proxy in front of the dashboard.
    let address: String
    /// A placeholder until ``Admission`` has authenticated the visitor.
    var visitor = Visitor(role: .viewer, seesContent: false)
    /// The fields of a submitted form.
    var form = Form()
    /// The body of a POST.
    var body = ByteBuffer()

    init(source: ApplicationRequestContextSource) {
        coreContext = CoreRequestContextStorage(source: source)
        address = source.channel.remoteAddress?.ipAddress ?? "local"
    }
}

/// The fields of a form or of a query. A name can occur several times.
struct Form: Sendable {
    private var fields: [(name: String, value: String)] = []

    init() {}

    var isEmpty: Bool { fields.isEmpty }

    /// Reads `application/x-www-form-urlencoded`.
    init(_ text: some StringProtocol) {
        for pair in text.split(separator: "&") {
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            fields.append((Self.decoded(parts[0]), parts.count > 1 ? Self.decoded(parts[1]) : ""))
        }
    }

    /// The value of a field without surrounding white space; `nil` if it is missing or empty.
    subscript(name: String) -> String? { all(name).first }

    /// Creates a form from names and values, such as the members of a JSON object.
    init(fields: [(name: String, value: String)]) { self.fields = fields }

    func all(_ name: String) -> [String] {
        fields.lazy.filter { $0.name == name }.map { $0.value.trimmed }.filter { !$0.isEmpty }
    }

    /// Returns the value as it was sent.
    func raw(_ name: String) -> String { fields.first { $0.name == name }?.value ?? "" }

    /// Returns the fields except some, for a link or a form that repeats them.
    func without(_ names: Set<String>) -> [(name: String, value: String?)] {
        fields.filter { !names.contains($0.name) && !$0.value.isEmpty }.map { ($0.name, $0.value) }
    }

    /// Decodes percent-encoded text.
    static func decoded(_ text: some StringProtocol, plusIsSpace: Bool = true) -> String {
        var bytes: [UInt8] = []
        var rest = Array(text.utf8)[...]
        while let byte = rest.popFirst() {
            if plusIsSpace, byte == UInt8(ascii: "+") {
                bytes.append(UInt8(ascii: " "))
            } else if byte == UInt8(ascii: "%"), rest.count >= 2,
                let value = UInt8(String(decoding: rest.prefix(2), as: UTF8.self), radix: 16)
            {
                bytes.append(value)
                rest = rest.dropFirst(2)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}

extension StringProtocol {
    var trimmed: String {
        String(drop(while: \.isWhitespace).reversed().drop(while: \.isWhitespace).reversed())
    }
}

/// Authenticates visitors, and refuses requests from other sites.
///
/// With users, a visitor logs in with a password and gets a signed cookie, or sends a token with each request. Without
/// users, everyone who can reach the port is admitted; such a port must be on a loopback address.
struct Admission: RouterMiddleware {
    typealias Context = WebContext

    static let cookie = "apns-worker-session"
    /// The lifetime of a session, in seconds.
    static let sessionTime: Int64 = 12 * 3600
    private static let maximumBody = 1 << 20

    let users: UserFile?
    let isReadOnly: Bool
    let viewersSeeContent: Bool
    let links: Links
    /// The allowed names in `Host` without users; with users the cookie protects against DNS rebinding.
    let foreign: ForeignRequests
    /// True if the dashboard's own port has TLS.
    let hasTLS: Bool
    /// Signs the forms of a dashboard without users.
    private let key = Digest.random(32)

    func handle(
        _ request: Request, context: Context, next: (Request, Context) async throws -> Response
    ) async throws -> Response {
        var context = context
        let path = request.uri.path.dropFirst(links.base.utf8.count)
        if path.hasPrefix("/assets/") || path == "/healthz" { return try await next(request, context) }
        if users == nil, let refusal = foreign.refusal(host: request.head.authority, origin: nil) {
            throw WebError(.forbidden, refusal)
        }
        let found = visitor(of: request)
        var newCookie: String?
        if var visitor = found.visitor {
            if isReadOnly { visitor.role = .viewer }
            visitor.seesContent = visitor.role == .operator || viewersSeeContent
            if found.isByCookie { visitor.formToken = formToken(found.session) }
            context.visitor = visitor
            newCookie = found.newSession.map { cookie($0, for: request) }
        } else if path != "/login" {
            if path.hasPrefix("/api/") {
                throw WebError(.unauthorized, "missing or unknown token; send Authorization: Bearer …")
            }
            if request.method != .get { throw WebError(.unauthorized, "the session has expired; log in again") }
            if LiveUpdates.isRequested(by: request) { return Response(status: .noContent) }
            let here = String(path) + (request.uri.query.map { "?\($0)" } ?? "")
            return .seeOther(links.path(["login"], [("to", here == "/" ? nil : here)]))
        }
        if request.method == .post { try await take(request, &context, isByCookie: found.isByCookie, path: path) }
        var response = try await next(request, context)
        if let newCookie, response.headers[.setCookie] == nil { response.headers[.setCookie] = newCookie }
        return response
    }

    /// Reads the body of a POST and checks that it comes from a page of this site.
    private func take(_ request: Request, _ context: inout Context, isByCookie: Bool, path: Substring) async throws {
        var request = request
        let isAPI = path.hasPrefix("/api/")
        if isByCookie || path == "/login" {
            // Browsers without Fetch Metadata still send the origin.
            let isOwn =
                request.headers[.secFetchSite].map { $0 == "same-origin" }
                ?? request.headers[.origin].map { Self.isOwn($0, host: request.head.authority) } ?? true
            guard isOwn else { throw WebError(.forbidden, "this request comes from another site") }
        }
        do {
            context.body = try await request.collectBody(upTo: Self.maximumBody)
        } catch {
            throw WebError(.contentTooLarge, "the request is larger than 1 MiB")
        }
        let isForm = request.headers[.contentType]?.hasPrefix("application/x-www-form-urlencoded") ?? false
        if isForm { context.form = Form(String(buffer: context.body)) }
        guard isByCookie, path != "/login" else { return }
        let sent = request.headers[HTTPField.Name("X-Form-Token")!] ?? (isForm ? context.form.raw("form_token") : "")
        guard Digest.isEqual(Array(sent.utf8), Array(context.visitor.formToken.utf8)) else {
            throw WebError(
                .forbidden, isAPI ? "X-Form-Token is missing" : "this form has expired; reload the page and try again")
        }
    }

    /// Returns true if the origin is this site's. The scheme is not compared, because a proxy may add TLS.
    private static func isOwn(_ origin: String, host: String?) -> Bool {
        guard let host, let range = origin.firstRange(of: "://") else { return false }
        return origin[range.upperBound...].lowercased() == host.lowercased()
    }

    // MARK: Sessions

    private struct Found {
        var visitor: Visitor?
        var session = ""
        var newSession: String?
        var isByCookie = true
    }

    private func visitor(of request: Request) -> Found {
        let session = request.cookies[Self.cookie]?.value ?? ""
        guard let users = users?.current else {
            let visitor = Visitor(role: .operator, seesContent: true)
            if name(in: session, key: key) == "" { return Found(visitor: visitor, session: session) }
            let new = self.session(for: "", key: key)
            return Found(visitor: visitor, session: new, newSession: new)
        }
        if let authorization = request.headers[.authorization], authorization.lowercased().hasPrefix("bearer ") {
            let user = users.user(token: authorization.dropFirst(7).trimmed)
            return Found(
                visitor: user.map { Visitor(name: $0.name, role: $0.role, seesContent: false) }, isByCookie: false)
        }
        guard let name = name(in: session, key: users.sessionKey), let role = users.role(of: name) else {
            return Found()
        }
        return Found(visitor: Visitor(name: name, role: role, seesContent: false), session: session)
    }

    /// Returns the cookie for a user who has entered the right password.
    func loginCookie(for name: String, _ request: Request) -> String? {
        users.map { cookie(session(for: name, key: $0.current.sessionKey), for: request) }
    }

    private func session(for name: String, key: [UInt8]) -> String {
        let content =
            "\(Digest.hex(Array(name.utf8))).\(Clock.seconds + Self.sessionTime).\(Digest.hex(Digest.random(12)))"
        return "\(content).\(Digest.hex(Digest.hmac(key: key, content)))"
    }

    /// Returns the name in a session whose signature is valid and that has not expired.
    private func name(in session: String, key: [UInt8]) -> String? {
        guard let dot = session.lastIndex(of: "."),
            let signature = Digest.bytes(hex: session[session.index(after: dot)...]),
            Digest.isEqual(Digest.hmac(key: key, String(session[..<dot])), signature)
        else { return nil }
        let parts = session.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 4, let end = Int64(parts[1]), end > Clock.seconds, let name = Digest.bytes(hex: parts[0])
        else { return nil }
        return String(decoding: name, as: UTF8.self)
    }

    private func formToken(_ session: String) -> String {
        Digest.hex(Digest.hmac(key: users?.current.sessionKey ?? key, "form \(session)"))
    }

    private func cookie(_ value: String, for request: Request) -> String {
        let isSecure =
            request.headers[HTTPField.Name("X-Forwarded-Proto")!]?.lowercased() == "https"
            || hasTLS
        return "\(Self.cookie)=\(value); Path=\(links.base.isEmpty ? "/" : links.base); HttpOnly; SameSite=Lax"
            + (isSecure ? "; Secure" : "") + (users == nil ? "" : "; Max-Age=\(Self.sessionTime)")
    }

    /// The cookie that ends a session.
    var endedCookie: String {
        "\(Self.cookie)=; Path=\(links.base.isEmpty ? "/" : links.base); HttpOnly; SameSite=Lax; Max-Age=0"
    }
}

/// Limits the rate of password guesses.
final class LoginLimits: Sendable {
    private struct Failures {
        var count = 0
        var since = NIODeadline.now()
    }

    /// Failures per minute: of one name from one address, from one address, and in total.
    private static let limits = (login: 5, address: 20, all: 100)
    private let failures = Mutex<[String: Failures]>([:])

    /// Returns the seconds until another attempt is allowed; `nil` if it is allowed now.
    func wait(_ name: String, _ address: String) -> Int? {
        failures.withLock { failures in
            failures = failures.filter { NIODeadline.now() - $0.value.since < .minutes(1) }
            for (key, limit) in keys(name, address) {
                guard let found = failures[key], found.count >= limit else { continue }
                return max(
                    1, Int((TimeAmount.minutes(1) - (NIODeadline.now() - found.since)).nanoseconds / 1_000_000_000))
            }
            return nil
        }
    }

    func failed(_ name: String, _ address: String) {
        failures.withLock { failures in
            for (key, _) in keys(name, address) { failures[key, default: Failures()].count += 1 }
        }
    }

    private func keys(_ name: String, _ address: String) -> [(String, Int)] {
        [
            ("\(address) \(name.prefix(100))", Self.limits.login), (address, Self.limits.address),
            ("", Self.limits.all),
        ]
    }
}
