import HTTPPort
import HTTPTypes
import Hummingbird
import NIOCore
import Operations
import PrintableText
import PushJob
import Synchronization
import WebPages

/// The sender of a request.
struct Visitor: Sendable, Equatable {
    /// The name for the audit log; `nil` if the dashboard has no users.
    var name: String?
    var role: Role
    /// True if the visitor can see tokens and payloads.
    var seesContent: Bool
    var producer: ProducerRights?
    /// The value that forms must send back, which protects against requests forged by other sites.
    var formToken = ""
    /// True if a proxy has authenticated the visitor, who therefore has no login here.
    var isOfProxy = false

    /// The name in pauses, cancellations and the audit log.
    var by: String { name.map { "\($0) (web)" } ?? "web" }

    /// Returns a text about a change. Its tokens are shortened for visitors who may not see content.
    func shown(_ text: String) -> String {
        guard !seesContent else { return text }
        return text.split(separator: "\n", omittingEmptySubsequences: false)
            .map { AuditEntry.maskingTokens(String($0)) }.joined(separator: "\n")
    }
}

/// A request to the dashboard, with its visitor and fields.
struct WebContext: RequestContext {
    var coreContext: CoreRequestContextStorage
    /// The address of the connection's other end: the client, or a proxy.
    let peer: String
    /// A placeholder until ``AdmissionMiddleware`` has authenticated the visitor.
    var visitor = Visitor(role: .viewer, seesContent: false)
    var form = Fields()
    var body = ByteBuffer()

    init(source: ApplicationRequestContextSource) {
        coreContext = CoreRequestContextStorage(source: source)
        peer = source.channel.remoteAddress?.ipAddress ?? "local"
    }
}

/// Decides who may make a request, from its head. No I/O.
///
/// With users, a visitor logs in with a password and gets a session, or sends a token with each request. A trusted proxy can also name the
/// visitor in each request. Without users, everyone who can reach the port is admitted, so the port must be on a loopback address. The
/// pages and the API have the same rules.
struct Admission: Sendable {
    static let cookie = "apns-worker-session"

    /// The user whom a trusted proxy names in a request.
    enum ProxyUser: Sendable, Equatable {
        /// The request does not come from a trusted proxy, or proxies do not name users.
        case unused
        case named(String)
        /// The proxy sent no name, or several.
        case unnamed

        /// - Parameter values: the values of the header. Several values are refused, because the client may have sent one of them.
        init(_ values: [String]) {
            // A comma separates several values in one line.
            let isName = values.first?.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != 0x2C } ?? false
            self =
                values.count == 1 && isName && (1...128).contains(values[0].utf8.count) ? .named(values[0]) : .unnamed
        }
    }

    /// The parts of a request's head that the decision needs.
    struct Head: Sendable {
        var isGet = true
        var isPost = false
        /// The path without the base path.
        var path: String
        var query: String?
        var host: String?
        var origin: String?
        var fetchSite: String?
        var authorization: String?
        /// The value of the session's cookie; empty without one.
        var session = ""
        var isStream = false
        var proxyUser = ProxyUser.unused

        var isAPI: Bool { path.hasPrefix("/api/") }

        /// True for the only request that a producer may make.
        var enqueuesJobs: Bool { isPost && path == "/api/v1/jobs" }

        /// True for paths that need no login.
        var isOpen: Bool { path.hasPrefix("/assets/") || path == "/healthz" }
    }

    enum Entry: Sendable, Equatable {
        /// Anyone may make the request.
        case open
        /// - Parameter newSession: the new session of the browser; nil if the browser has a session or needs none.
        case admitted(Visitor, newSession: String?)
        /// The visitor must log in first.
        /// - Parameter to: the path and query of the page to return to; nil for the first page.
        case login(to: String?)
        /// A stream of live updates must end.
        case noContent
        case refused(HTTPResponse.Status, String)
    }

    let hasUsers: Bool
    let isReadOnly: Bool
    let viewersSeeContent: Bool
    /// True to admit a user as a viewer if a proxy names the user and the file does not. If a user's line in the file is lost, the user can
    /// only view.
    var admitsUnlisted = false
    /// The names that `Host` may have if there are no users. With users, the cookie protects against DNS rebinding.
    let foreign: ForeignRequests

    /// - Parameters:
    ///   - users: the present users of the file.
    ///   - session: the session that ``Head/session`` names, if it exists and has not ended.
    func entry(_ head: Head, _ users: Users, session: Sessions.Session?) -> Entry {
        if head.isOpen { return .open }
        if !hasUsers, let refusal = foreign.refusal(host: head.host, origin: nil) {
            return .refused(.forbidden, refusal)
        }
        if let visitor = visitor(head, users, session) {
            guard visitor.role != .producer || head.enqueuesJobs else {
                return .refused(.forbidden, "a producer's token is only for POST /api/v1/jobs")
            }
            // Without a login, the session only protects forms.
            let needsSession = (!hasUsers || visitor.isOfProxy) && !Sessions.isValue(head.session)
            guard needsSession else { return .admitted(visitor, newSession: nil) }
            let new = Sessions.value()
            var admitted = visitor
            admitted.formToken = Self.formToken(new)
            return .admitted(admitted, newSession: new)
        }
        switch head.proxyUser {
        case .unused: break
        case .named(let name): return .refused(.forbidden, "the file of users does not have \(name)")
        case .unnamed:
            return .refused(.unauthorized, "the proxy must name one user in the header of --user-header")
        }
        if head.path == "/login" { return .open }
        if head.isAPI { return .refused(.unauthorized, "missing or unknown token; send Authorization: Bearer …") }
        if !head.isGet { return .refused(.unauthorized, "the session has ended; log in again") }
        if head.isStream { return .noContent }
        let here = head.path + (head.query.map { "?\($0)" } ?? "")
        return .login(to: here == "/" ? nil : here)
    }

    /// Returns the sender of a request; nil if it is unknown.
    private func visitor(_ head: Head, _ users: Users, _ session: Sessions.Session?) -> Visitor? {
        var visitor: Visitor
        if !hasUsers {
            visitor = Visitor(role: .operator, seesContent: true, formToken: Self.formToken(head.session))
        } else if case .named(let name) = head.proxyUser {
            guard let role = users[name]?.role ?? (admitsUnlisted && !users.isEmpty ? .viewer : nil) else { return nil }
            visitor = Visitor(name: name, role: role, seesContent: false, formToken: Self.formToken(head.session))
            visitor.isOfProxy = true
        } else if let token = head.bearer {
            guard let user = users.user(token: token) else { return nil }
            visitor = Visitor(name: user.name, role: user.role, seesContent: false, producer: user.producer)
        } else {
            // If proxies name users, a session is not accepted, because it would bypass the login of the proxy.
            guard head.proxyUser == .unused, let session, let user = users[session.name],
                user.fingerprint == session.user
            else { return nil }
            visitor = Visitor(
                name: user.name, role: user.role, seesContent: false, formToken: Self.formToken(head.session))
        }
        // Only operators become viewers: a producer must not be able to read.
        if isReadOnly, visitor.role == .operator { visitor.role = .viewer }
        visitor.seesContent = visitor.role == .operator || visitor.role == .viewer && viewersSeeContent
        return visitor
    }

    /// Returns the reason to refuse a POST that another site may have caused; nil to accept it.
    /// - Parameters:
    ///   - sent: the form token in the request.
    ///   - visitor: nil for a login.
    func refusal(of head: Head, formToken sent: String, _ visitor: Visitor?) -> WebError? {
        if hasUsers, head.bearer != nil, head.path != "/login" { return nil }
        // Browsers without Fetch Metadata still send the origin.
        let isOwn = head.fetchSite.map { $0 == "same-origin" } ?? head.origin.map(head.isOwn) ?? true
        guard isOwn else { return WebError(.forbidden, "this request comes from another site") }
        guard let visitor, head.path != "/login" else { return nil }
        if !visitor.formToken.isEmpty, Digest.isEqual(Array(sent.utf8), Array(visitor.formToken.utf8)) { return nil }
        if !head.isAPI { return WebError(.forbidden, "this form has expired; reload the page and try again") }
        return WebError(
            .forbidden,
            hasUsers
                ? "X-Form-Token is missing; programs send Authorization: Bearer …"
                : "without users, only the dashboard's own pages can change something; for a program, make a token with "
                    + "`apns-worker web-user NAME --role operator --token --users FILE`, and start the dashboard with "
                    + "--users FILE")
    }

    /// Returns the value that the forms of a session must send back. Scripts of other sites can read neither the session nor this value.
    static func formToken(_ session: String) -> String { Digest.hmac(key: Array(session.utf8), "form").hex }
}

extension Admission.Head {
    /// The token of a program. If a proxy names the user, a token is not used, because proxies add tokens of their own.
    var bearer: String? {
        if case .named = proxyUser { return nil }
        guard let authorization, authorization.lowercased().hasPrefix("bearer ") else { return nil }
        return authorization.dropFirst(7).trimmed
    }

    /// Returns true if the origin is this site's. The scheme is not compared, because a proxy may add TLS.
    fileprivate func isOwn(_ origin: String) -> Bool {
        guard let host, let range = origin.firstRange(of: "://") else { return false }
        return origin[range.upperBound...].lowercased() == host.lowercased()
    }

    init(_ request: Request, base: String) {
        self.init(
            isGet: request.method == .get, isPost: request.method == .post,
            path: String(request.uri.path.dropFirst(base.utf8.count)), query: request.uri.query,
            host: request.head.authority, origin: request.headers[.origin], fetchSite: request.headers[.secFetchSite],
            authorization: request.headers[.authorization],
            session: request.cookies[Admission.cookie]?.value ?? "", isStream: LiveUpdates.isRequested(by: request))
    }
}

/// Admits visitors, and refuses requests from other sites; see ``Admission``.
struct AdmissionMiddleware: RouterMiddleware {
    typealias Context = WebContext

    /// The maximum size of a body in bytes: from an admitted visitor, and at a login.
    private static let (maximumBody, maximumLogin) = (1 << 20, 16 << 10)

    /// Limits the bytes of bodies that are read or processed, because processing takes several times as much memory. Logins do not count:
    /// they are small, and strangers could use up the limit.
    private let bodies = Shares(ofVisitor: 8 << 20, all: 32 << 20)
    let rules: Admission
    let users: UserFile?
    let sessions: Sessions
    let links: Links
    /// True if the dashboard's own port has TLS.
    let hasTLS: Bool
    let proxies: TrustedProxies
    /// The header that ``proxies`` use to name users; nil if they do not.
    let userHeader: HTTPField.Name?

    func handle(
        _ request: Request, context: Context, next: (Request, Context) async throws -> Response
    ) async throws -> Response {
        var context = context
        let head = head(of: request, from: context.peer)
        var newCookie: String?
        // The bytes taken from ``bodies``. They are given back when the request has been processed.
        var taken = 0
        defer { if taken > 0 { bodies.giveBack(taken, for: context.visitor) } }
        switch await entry(head) {
        case .open:
            if head.isPost { try await take(request, head, &context, from: nil, &taken) }
        case .admitted(let visitor, let newSession):
            context.visitor = visitor
            newCookie = newSession.map { cookie($0, for: request) }
            if head.isPost { try await take(request, head, &context, from: visitor, &taken) }
        case .login(let to): return .seeOther(links.path(["login"], [("to", to)]))
        case .noContent: return Response(status: .noContent)
        case .refused(let status, let problem): throw WebError(status, problem)
        }
        var response = try await next(request, context)
        if let newCookie, response.headers[.setCookie] == nil { response.headers[.setCookie] = newCookie }
        return response
    }

    /// - Parameter peer: the address of the connection's other end. Only a trusted proxy can name the user.
    func head(of request: Request, from peer: String) -> Admission.Head {
        var head = Admission.Head(request, base: links.base)
        if let userHeader, proxies.contains(peer) { head.proxyUser = .init(request.headers[values: userHeader]) }
        return head
    }

    private func entry(_ head: Admission.Head) async -> Admission.Entry {
        let isByCookie =
            users != nil && head.proxyUser == .unused && head.bearer == nil && head.path != "/login" && !head.isOpen
        let session = isByCookie ? await sessions.find(head.session) : nil
        let entry = rules.entry(head, users?.current ?? .none, session: session)
        guard session != nil else { return entry }
        if case .admitted = entry { return entry }
        // The user's line was changed or removed. The session must stay ended even if the old line comes back.
        await sessions.end(head.session)
        return entry
    }

    /// Returns the visitor of a stream of live updates, with the present rights; nil if the stream must end.
    func visitor(of head: Admission.Head) async -> Visitor? {
        if case .admitted(let visitor, _) = await entry(head) { visitor } else { nil }
    }

    /// Reads the body of a POST, and checks that it comes from a page of this site.
    /// - Parameter taken: the bytes that were taken from ``bodies``.
    private func take(
        _ request: Request, _ head: Admission.Head, _ context: inout Context, from visitor: Visitor?,
        _ taken: inout Int
    ) async throws {
        let limit = visitor == nil ? Self.maximumLogin : Self.maximumBody
        do {
            for try await part in request.body {
                guard context.body.readableBytes + part.readableBytes <= limit else {
                    throw WebError(
                        .contentTooLarge, "the request is larger than \(visitor == nil ? "16 KiB" : "1 MiB")")
                }
                if let visitor {
                    if let refusal = bodies.take(part.readableBytes, for: visitor) { throw Self.refused(refusal) }
                    taken += part.readableBytes
                }
                context.body.writeImmutableBuffer(part)
            }
        } catch let error where !(error is WebError || error is CancellationError) {
            throw WebError(.badRequest, "the body of the request is damaged or incomplete")
        }
        let isForm = request.headers[.contentType]?.hasPrefix("application/x-www-form-urlencoded") ?? false
        if isForm { context.form = Fields(String(buffer: context.body)) }
        let sent = request.headers[HTTPField.Name("X-Form-Token")!] ?? (isForm ? context.form.raw("form_token") : "")
        if let refusal = rules.refusal(of: head, formToken: sent, visitor) { throw refusal }
    }

    private static func refused(_ refusal: Shares.Refusal) -> WebError {
        switch refusal {
        case .own:
            WebError(
                .tooManyRequests, "requests of 8 MiB from the same sender are in progress; send fewer at the same time",
                retryAfter: 1)
        case .all:
            WebError(.serviceUnavailable, "requests of 32 MiB are in progress; try again later", retryAfter: 1)
        }
    }

    /// Returns `Set-Cookie` that stores a session in the browser.
    func cookie(_ value: String, for request: Request) -> String {
        let isSecure =
            request.headers[HTTPField.Name("X-Forwarded-Proto")!]?.lowercased() == "https"
            || hasTLS
        return "\(Admission.cookie)=\(value); Path=\(links.base.isEmpty ? "/" : links.base); HttpOnly; SameSite=Lax"
            + (isSecure ? "; Secure" : "") + (users == nil ? "" : "; Max-Age=\(Sessions.lifetime)")
    }

    /// `Set-Cookie` that removes the session from the browser.
    var endedCookie: String {
        "\(Admission.cookie)=; Path=\(links.base.isEmpty ? "/" : links.base); HttpOnly; SameSite=Lax; Max-Age=0"
    }
}

/// Limits the amounts that each visitor, and all visitors, use at the same time, so that one visitor cannot use up the whole.
final class Shares: Sendable {
    enum Refusal { case own, all }

    private let (ofVisitor, all): (Int, Int)
    private let used = Mutex<[String: Int]>([:])

    init(ofVisitor: Int, all: Int) { (self.ofVisitor, self.all) = (ofVisitor, all) }

    /// Takes an amount for a visitor, before it is used.
    /// - Returns: the limit that the amount would exceed; nil if the amount was taken.
    func take(_ amount: Int, for visitor: Visitor) -> Refusal? {
        used.withLock { used in
            let own = used[visitor.shareName, default: 0] + amount
            if own > ofVisitor { return .own }
            if used.values.reduce(amount, +) > all { return .all }
            used[visitor.shareName] = own
            return nil
        }
    }

    func giveBack(_ amount: Int, for visitor: Visitor) {
        used.withLock { used in
            let rest = used[visitor.shareName, default: amount] - amount
            used[visitor.shareName] = rest > 0 ? rest : nil
        }
    }
}

extension Visitor {
    fileprivate var shareName: String { name ?? formToken }
}

extension Fields {
    /// Reads `application/x-www-form-urlencoded`.
    init(_ text: some StringProtocol) {
        self.init(
            text.split(separator: "&").map { pair in
                let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
                return (Self.decoded(parts[0]), parts.count > 1 ? Self.decoded(parts[1]) : "")
            })
    }

    /// Decodes percent-encoded text.
    static func decoded(_ text: some StringProtocol, plusIsSpace: Bool = true) -> String {
        var bytes: [UInt8] = []
        var rest = Array(text.utf8)[...]
        while let byte = rest.popFirst() {
            if plusIsSpace, byte == UInt8(ascii: "+") {
                bytes.append(UInt8(ascii: " "))
            } else if byte == UInt8(ascii: "%"), rest.count >= 2,
                let high = JSONText.hexValue(rest[rest.startIndex]),
                let low = JSONText.hexValue(rest[rest.startIndex + 1])
            {
                bytes.append(high << 4 | low)
                rest = rest.dropFirst(2)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
