import HTTPTypes
import Hummingbird
import NIOCore
import Synchronization
import WebPages

/// Pages that show received notifications as devices would, and forms that make the next answers fail.
struct InboxRoutes: Sendable {
    let inbox: Inbox
    private let updates = LiveUpdates(every: .seconds(1))

    /// - Parameter json: the answer to programs that request `/`.
    func add(to router: Router<BasicRequestContext>, otherwise json: @escaping @Sendable () throws -> Response) {
        let pages = router.group().add(middleware: PageSecurity())
        pages.get("/") { request, _ in
            guard request.acceptsPage || LiveUpdates.isRequested(by: request) else { return try json() }
            let filter = InboxFilter(request)
            return answer(request) { inbox.list(filter) }
        }
        pages.get("/inbox/:sequence") { request, context in
            let sequence = context.parameters.get("sequence", as: UInt64.self) ?? 0
            return answer(request) { inbox.push(sequence) }
        }
        pages.get("/inbox/:sequence/fixture") { _, context in
            guard let sequence = context.parameters.get("sequence", as: UInt64.self),
                let entry = inbox.recorder.entry(sequence)
            else { throw HTTPError(.notFound, message: "no push with this number is kept") }
            var response = Response.json(bytes: entry.notification.fixture)
            response.headers[.contentDisposition] = "attachment; filename=\"push-\(sequence).json\""
            return response
        }
        pages.get("/assets/:name") { _, context in
            guard let name = context.parameters.get("name"), let response = WebAssets.response(name) else {
                throw HTTPError(.notFound)
            }
            return response
        }
        addActions(to: pages)
    }

    private func addActions(to pages: RouterGroup<BasicRequestContext>) {
        let (service, recorder) = (inbox.service, inbox.recorder)
        pages.post("/inbox/next") { request, _ in
            let form = try await form(request)
            guard let token = form["token"].flatMap({ SimulatedToken(hex: $0) }),
                let transport = form["transport"].flatMap({ ReceivedNotification.Transport(rawValue: $0) }),
                let answer = NextAnswer.all(transport).first(where: { $0.value == form["answer"] })
            else {
                throw HTTPError(
                    .badRequest, message: "the form must have the fields token, transport and answer of a button")
            }
            try answer.apply(to: token, transport, service)
            return back(request)
        }
        pages.post("/inbox/forget") { request, _ in
            guard let token = try await form(request)["token"].flatMap({ SimulatedToken(hex: $0) }) else {
                throw HTTPError(.badRequest, message: "token must be a device token")
            }
            service.state.withLock { state in
                state.rules.removePending(for: token)
                state.gatewayRules.removePending(for: token)
            }
            return back(request)
        }
        pages.post("/inbox/remove") { request, _ in
            let form = try await form(request)
            guard let rule = form["rule"], let isGateway = form["isGateway"] else {
                throw HTTPError(.badRequest, message: "the form must have the fields rule and isGateway")
            }
            // The rule may have been applied in the meantime.
            _ = service.state.withLock { state in
                isGateway == "true" ? state.gatewayRules.remove(rule) : state.rules.remove(rule)
            }
            return back(request)
        }
        pages.post("/inbox/delete") { request, _ in
            guard let sequence = try await form(request)["sequence"].flatMap({ UInt64($0) }) else {
                throw HTTPError(.badRequest, message: "sequence must be the number of a recorded notification")
            }
            // The notification may have been deleted or replaced in the meantime.
            _ = recorder.remove(sequence)
            return back(request)
        }
        pages.post("/inbox/clear") { request, _ in
            recorder.clear()
            return Response.seeOther("/")
        }
    }

    private func form(_ request: Request) async throws -> [String: String] {
        let bytes = try await request.bytes(of: "form", upTo: 64 << 10)
        do {
            return try URLEncodedFormDecoder().decode([String: String].self, from: String(buffer: bytes))
        } catch {
            throw HTTPError(.badRequest, message: "the body must be a form of the inbox")
        }
    }

    /// Redirects to the page of the query.
    private func back(_ request: Request) -> Response {
        if let push = request.uri.queryParameters.get("push", as: UInt64.self) { return .seeOther("/inbox/\(push)") }
        return .seeOther(InboxFilter(request).path)
    }

    /// Answers with a page, or with live updates.
    private func answer(_ request: Request, _ page: @escaping @Sendable () -> (page: Page, isFound: Bool)) -> Response {
        guard LiveUpdates.isRequested(by: request) else {
            let (page, isFound) = page()
            return .page(page.html(Links()), status: isFound ? .ok : .notFound)
        }
        // Renders nothing while nothing has changed.
        let last = Mutex<(version: Inbox.Version, main: HTML)?>(nil)
        return updates.response {
            let version = inbox.version
            if let main = last.withLock({ $0?.version == version ? $0?.main : nil }) { return main }
            let main = page().page.main
            last.withLock { $0 = (version, main) }
            return main
        }
    }
}

extension Request {
    /// True if a browser asks for a page. Programs that accept anything (`*/*`) are not browsers.
    fileprivate var acceptsPage: Bool {
        (headers[.accept] ?? "").split(separator: ",").contains { range in
            let parts = range.split(separator: ";").map { $0.filter { $0 != " " }.lowercased() }
            return parts.first == "text/html" && !parts.contains { $0 == "q=0" || $0 == "q=0.0" }
        }
    }
}
