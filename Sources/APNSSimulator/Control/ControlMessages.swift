import FoundationEssentials
import HTTPPort
import HTTPTypes
import Hummingbird
import NIOCore

/// Converts errors to responses: a status, and a JSON object with the problem. Also refuses requests from web pages, which could otherwise
/// read payloads and add rules.
struct ControlErrors: RouterMiddleware {
    typealias Context = BasicRequestContext

    let foreign: ForeignRequests

    func handle(
        _ request: Request, context: Context, next: (Request, Context) async throws -> Response
    ) async throws -> Response {
        do {
            if let refusal = request.refusal(by: foreign) { throw HTTPError(.forbidden, message: refusal) }
            return try await next(request, context)
        } catch {
            let (status, problem) = Self.answer(to: error, request)
            return try Response.control(["error": problem], status: status)
        }
    }

    private static func answer(to error: any Error, _ request: Request) -> (HTTPResponse.Status, problem: String) {
        switch error {
        case let error as RuleError: (.badRequest, "\(error)")
        case let error as HTTPError where error.body == nil && error.status == .notFound:
            (.notFound, "there is no \(request.method) \(request.uri.path); GET / lists the routes")
        case let error as HTTPError: (error.status, error.body ?? "\(error)")
        case let error as any HTTPResponseError: (error.status, "\(error)")
        default: (.internalServerError, "\(error)")
        }
    }
}

/// The members of a request's body; each route reads one.
struct ControlBody: Decodable {
    let rules, topics, devices: [String]?
    let rule, settings: String?
}

extension Request {
    /// - Parameters:
    ///   - kind: `body` or `form`, for the error.
    ///   - limit: in bytes.
    func bytes(of kind: String, upTo limit: Int) async throws -> ByteBuffer {
        do {
            return try await body.collect(upTo: limit)
        } catch is NIOTooManyBytesError {
            throw HTTPError(.contentTooLarge, message: "the \(kind) is larger than \(limit) bytes")
        }
    }

    /// Reads the body, a JSON object of at most 1 MiB.
    /// - Parameter example: a valid body, for the error.
    func control<Body: Decodable>(_ type: Body.Type, example: String) async throws -> Body {
        let bytes = try await bytes(of: "body", upTo: 1 << 20)
        do {
            return try JSONDecoder().decode(type, from: Data(bytes.readableBytesView))
        } catch {
            throw HTTPError(.badRequest, message: "the body must be JSON such as \(example)")
        }
    }

    func control<Value>(_ member: KeyPath<ControlBody, Value?>, example: String) async throws -> Value {
        guard let value = try await control(ControlBody.self, example: example)[keyPath: member] else {
            throw HTTPError(.badRequest, message: "the body must be JSON such as \(example)")
        }
        return value
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

/// The parameters of a request's query. Each read removes a parameter. Parameters that remain are unknown.
struct ControlQuery {
    private var values: [String: String] = [:]

    init(_ request: Request) throws(HTTPError) {
        for (name, value) in request.uri.queryParameters {
            guard values.updateValue(String(value), forKey: String(name)) == nil else {
                throw HTTPError(.badRequest, message: "\(name) is given twice")
            }
        }
    }

    mutating func take<Value>(
        _ name: String, _ requirement: String, _ read: (String) -> Value?
    ) throws(HTTPError) -> Value? {
        guard let text = values.removeValue(forKey: name) else { return nil }
        guard let value = read(text) else {
            throw HTTPError(.badRequest, message: "\(name) \(requirement), not '\(text)'")
        }
        return value
    }

    func finish() throws(HTTPError) {
        guard let name = values.keys.min() else { return }
        throw HTTPError(.badRequest, message: "unknown parameter '\(name)'")
    }
}

struct RouteList {
    let router = Router(context: BasicRequestContext.self)
    private(set) var lines: [String] = []

    /// - Parameter form: the query or the body, as `GET /` shows it.
    mutating func add(
        _ method: HTTPRequest.Method, _ path: String, _ form: String = "",
        _ answer: @escaping @Sendable (Request, BasicRequestContext) async throws -> Response
    ) {
        lines.append("\(method) \(path.replacing(":sequence", with: "SEQUENCE"))\(form)")
        router.on(RouterPath(path), method: method, use: answer)
    }
}
