import HTTPTypes
import Hummingbird

/// All that the admin port answers.
struct AdminRoutes: Sendable {
    typealias Context = BasicRequestContext

    let sources: AdminServer.Sources

    private static let overview = """
        GET /metrics  what is measured, in Prometheus' text format
        GET /healthz  200 while the process and its event loops live, else 503 and what does not
        GET /readyz   200 while jobs can be taken and sent, else 503 and what is wrong

        """

    func router() -> Router<Context> {
        // HEAD too, which some load balancers probe with.
        let router = Router(context: Context.self, options: .autoGenerateHeadEndpoints)
        router.middlewares.add(UnknownPaths())
        router.get("/") { _, _ in Self.text(Self.overview) }
        router.get("/metrics") { [sources] _, _ in
            Self.text(await sources.metrics(), type: PrometheusMetrics.contentType)
        }
        router.get("/healthz") { [sources] _, _ in Self.answer(await sources.health()) }
        router.get("/readyz") { [sources] _, _ in Self.answer(await sources.readiness()) }
        return router
    }

    private static func answer(_ probe: Probe) -> Response {
        text(probe.text, status: probe.isGood ? .ok : .serviceUnavailable)
    }

    static func text(
        _ text: String, type: String = "text/plain; charset=utf-8", status: HTTPResponse.Status = .ok
    ) -> Response {
        Response(
            status: status, headers: [.contentType: type, .cacheControl: "no-store"],
            body: ResponseBody(byteBuffer: ByteBuffer(string: text)))
    }
}

/// Tells whoever asks for something else what there is.
private struct UnknownPaths: RouterMiddleware {
    typealias Context = AdminRoutes.Context

    func handle(
        _ request: Request, context: Context, next: (Request, Context) async throws -> Response
    ) async throws -> Response {
        do {
            return try await next(request, context)
        } catch let error as HTTPError where error.status == .notFound {
            return AdminRoutes.text(
                "there is no \(request.method) \(request.uri.path); GET / lists what there is\n", status: .notFound)
        }
    }
}
