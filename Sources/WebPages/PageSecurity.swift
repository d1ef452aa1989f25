import HTTPTypes
import Hummingbird

/// Adds headers to each response, which restrict what a browser can run and store.
package struct PageSecurity<Context: RequestContext>: RouterMiddleware {
    /// No inline code and no external sources; forms and frames of this site only.
    private static var policy: String {
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
            + "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    }

    package init() {}

    package func handle(
        _ request: Request, context: Context, next: (Request, Context) async throws -> Response
    ) async throws -> Response {
        var response = try await next(request, context)
        response.headers[.contentSecurityPolicy] = Self.policy
        response.headers[.xContentTypeOptions] = "nosniff"
        // With no-referrer, browsers would send forms with `Origin: null`.
        response.headers[.referrerPolicy] = "same-origin"
        response.headers[.crossOriginOpenerPolicy] = "same-origin"
        response.headers[.crossOriginResourcePolicy] = "same-origin"
        // Pages contain jobs and tokens.
        if response.headers[.cacheControl] == nil { response.headers[.cacheControl] = "no-store" }
        return response
    }
}

extension HTTPField.Name {
    fileprivate static let referrerPolicy = Self("Referrer-Policy")!
    fileprivate static let crossOriginOpenerPolicy = Self("Cross-Origin-Opener-Policy")!
}

extension Response {
    package static func page(_ html: HTML, status: HTTPResponse.Status = .ok) -> Response {
        Response(
            status: status, headers: [.contentType: "text/html; charset=utf-8", .vary: "Accept"],
            body: ResponseBody(byteBuffer: ByteBuffer(string: html.text)))
    }

    /// Redirects the browser to another page with GET.
    package static func seeOther(_ path: String) -> Response {
        Response(status: .seeOther, headers: [.location: path])
    }
}
