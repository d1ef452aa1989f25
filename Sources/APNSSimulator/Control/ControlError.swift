import FoundationEssentials
import HTTPPort
import HTTPTypes
import Hummingbird
import NIOCore

/// A request to the control port that cannot be done.
struct ControlError: Error {
    let status: HTTPResponse.Status
    /// What is wrong and what would be right.
    let problem: String

    init(_ status: HTTPResponse.Status = .badRequest, _ problem: String) {
        self.status = status
        self.problem = problem
    }
}

/// Turns errors into answers: the status, and what is wrong as JSON.
struct ControlErrors: RouterMiddleware {
    typealias Context = ControlRoutes.Context

    func handle(
        _ request: Request, context: Context, next: (Request, Context) async throws -> Response
    ) async throws -> Response {
        do {
            return try await next(request, context)
        } catch {
            let error = Self.translated(error, request)
            return try ControlAnswer.json(["error": error.problem], status: error.status)
        }
    }

    private static func translated(_ error: any Error, _ request: Request) -> ControlError {
        switch error {
        case let error as ControlError: error
        case let error as FaultRuleError: ControlError(.badRequest, "\(error)")
        case let error as HTTPError where error.status == .notFound:
            ControlError(.notFound, "there is no \(request.method) \(request.uri.path); GET / lists what there is")
        case let error as any HTTPResponseError: ControlError(error.status, "\(error)")
        default: ControlError(.internalServerError, "\(error)")
        }
    }
}

/// Refuses requests of web pages, which could otherwise read payloads and add rules.
struct RefusedPages: RouterMiddleware {
    typealias Context = ControlRoutes.Context

    let rule: ForeignRequests

    func handle(
        _ request: Request, context: Context, next: (Request, Context) async throws -> Response
    ) async throws -> Response {
        if let refusal = request.refusal(by: rule) { throw ControlError(.forbidden, refusal) }
        return try await next(request, context)
    }
}

extension Request {
    /// The largest body that is read, in bytes.
    static let maximumControlBody = 1 << 20

    /// Reads the body, a JSON object.
    /// - Parameter example: what a right one looks like, for the error.
    func control<Body: Decodable>(_ type: Body.Type, example: String) async throws -> Body {
        let buffer: ByteBuffer
        do {
            buffer = try await body.collect(upTo: Self.maximumControlBody)
        } catch is NIOTooManyBytesError {
            throw ControlError(.contentTooLarge, "the body is larger than \(Self.maximumControlBody) bytes")
        }
        do {
            return try JSONDecoder().decode(type, from: Data(buffer.readableBytesView))
        } catch {
            throw ControlError(.badRequest, "the body must be JSON such as \(example)")
        }
    }
}
