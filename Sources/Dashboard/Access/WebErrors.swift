import HTTPTypes
import Hummingbird
import NIOCore
import Operations
import PushQueue
import Redis
import WebPages

/// A failure of a request, with its HTTP status.
struct WebError: Error {
    let status: HTTPResponse.Status
    /// The problem and the remedy, as a sentence without a full stop.
    let problem: String
    /// The seconds after which the request can be repeated (`Retry-After`); `nil` if unknown.
    var retryAfter: Int?

    init(_ status: HTTPResponse.Status, _ problem: String, retryAfter: Int? = nil) {
        self.status = status
        self.problem = problem
        self.retryAfter = retryAfter
    }

    /// The error for an unknown position in a list.
    static func unknownCursor(_ cursor: String) -> WebError {
        WebError(.badRequest, "after is \(cursor.prefix(40)); it must be from an earlier page")
    }

    init(_ error: any Error) {
        switch error {
        case let error as WebError: self = error
        case let error as FieldMistake: self.init(.badRequest, error.text(.member))
        case let error as ChangeRefusal: self.init(error.status, error.message)
        case let error as Fleet.Contradiction: self.init(.conflict, error.description)
        case let error as RedisError: self.init(.serviceUnavailable, "Redis: \(error)")
        case let error as QueueFailure: self.init(.serviceUnavailable, "Redis: \(error)")
        case let error as HTTPError where error.status == .notFound: self.init(.notFound, "there is no such page")
        case let error as any HTTPResponseError: self.init(error.status, "\(error)")
        default: self.init(.internalServerError, "\(error)")
        }
    }
}

extension ChangeRefusal {
    fileprivate var status: HTTPResponse.Status {
        switch kind {
        case .invalid: .badRequest
        case .unknown: .notFound
        case .conflict: .conflict
        }
    }
}
