import FoundationEssentials
import HTTPPort
import HTTPTypes
import Hummingbird
import NIOCore

/// A failure of a request to the control port.
struct ControlError: Error {
    let status: HTTPResponse.Status
    /// The problem, and the remedy.
    let problem: String

    init(_ status: HTTPResponse.Status, _ problem: String) {
        self.status = status
        self.problem = problem
    }
}

/// Converts errors to responses: a status, and a JSON object with the problem. Refuses requests from web pages, which
/// could otherwise read payloads and add rules.
struct ControlErrors: RouterMiddleware {
    typealias Context = ControlContext

    let foreign: ForeignRequests

    func handle(
        _ request: Request, context: Context, next: (Request, Context) async throws -> Response
    ) async throws -> Response {
        do {
            if let refusal = request.refusal(by: foreign) { throw ControlError(.forbidden, refusal) }
            return try await next(request, context)
        } catch {
            let error = Self.translated(error, request)
            return try Response.control(["error": error.problem], status: error.status)
        }
    }

    private static func translated(_ error: any Error, _ request: Request) -> ControlError {
        switch error {
        case let error as ControlError: error
        case let error as RuleError: ControlError(.badRequest, "\(error)")
        case let error as HTTPError where error.status == .notFound:
            ControlError(.notFound, "there is no \(request.method) \(request.uri.path); GET / lists the routes")
        case let error as any HTTPResponseError: ControlError(error.status, "\(error)")
        default: ControlError(.internalServerError, "\(error)")
        }
    }
}

extension Request {
    /// Reads the body.
    /// - Parameters:
    ///   - kind: `body` or `form`, for the error.
    ///   - limit: in bytes.
    func bytes(of kind: String, upTo limit: Int) async throws -> ByteBuffer {
        do {
            return try await body.collect(upTo: limit)
        } catch is NIOTooManyBytesError {
            throw ControlError(.contentTooLarge, "the \(kind) is larger than \(limit) bytes")
        }
    }

    /// Reads the body, a JSON object of at most 1 MiB.
    /// - Parameter example: a valid body, for the error.
    func control<Body: Decodable>(_ type: Body.Type, example: String) async throws -> Body {
        let bytes = try await bytes(of: "body", upTo: 1 << 20)
        do {
            return try JSONDecoder().decode(type, from: Data(bytes.readableBytesView))
        } catch {
            throw ControlError(.badRequest, "the body must be JSON such as \(example)")
        }
    }
}

extension Response {
    static func control(_ value: some Encodable, status: HTTPResponse.Status = .ok) throws -> Response {
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        encoder.keyEncodingStrategy = .convertToSnakeCase
        return .json(bytes: try encoder.encode(value), status: status)
    }
}

/// The parameters of a request's query. Each read removes one, so that the remaining ones are known to be unknown.
struct ControlQuery {
    private var values: [String: String] = [:]

    init(_ request: Request) throws(ControlError) {
        for (name, value) in request.uri.queryParameters {
            guard values.updateValue(String(value), forKey: String(name)) == nil else {
                throw ControlError(.badRequest, "\(name) is given twice")
            }
        }
    }

    mutating func take<Value>(
        _ name: String, _ requirement: String, _ read: (String) -> Value?
    ) throws(ControlError) -> Value? {
        guard let text = values.removeValue(forKey: name) else { return nil }
        guard let value = read(text) else { throw ControlError(.badRequest, "\(name) \(requirement), not '\(text)'") }
        return value
    }

    func finish() throws(ControlError) {
        guard let name = values.keys.min() else { return }
        throw ControlError(.badRequest, "unknown parameter '\(name)'")
    }
}

typealias ControlContext = BasicRequestContext

/// Routes, and one line for each, for `GET /`.
struct RouteList {
    let router = Router(context: ControlContext.self)
    private(set) var lines: [String] = []

    /// - Parameter form: the query or the body, as the line shows it.
    mutating func add(
        _ method: HTTPRequest.Method, _ path: String, _ form: String = "",
        _ answer: @escaping @Sendable (Request, ControlContext) async throws -> Response
    ) {
        lines.append("\(method) \(path.replacing(":sequence", with: "SEQUENCE"))\(form)")
        router.on(RouterPath(path), method: method, use: answer)
    }
}
