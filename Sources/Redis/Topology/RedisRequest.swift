import NIOCore

/// A command on its way to an answer, by more than one server if need be.
struct RedisRequest {
    /// As often a command is sent after its slot before the caller is told of the redirection: two nodes that name each
    /// other must not keep it for ever.
    static let maximumRedirections = 5

    /// Only kept where it may have to be sent again, which is in a Cluster.
    let command: RedisCommand?
    let timeout: TimeAmount?
    let completion: RedisConnection.Completion
    var redirections = 0
    /// The redirection that the command follows.
    var redirectedBy: RedisServerError?
}

/// The commands that wait while a client goes over to the node that its slot has moved to, in the order to send them in:
/// first those that the old node has sent away, then those that came in the meantime.
///
/// A slot changes hands in one moment: of a pipeline the old node executes a first part and sends away all the rest. So
/// the order of the pipeline is kept when the rest is sent before anything newer.
struct Handover {
    private(set) var isOpen = false
    private var sentAway: [RedisRequest] = []
    private var arrived: [RedisRequest] = []

    var count: Int { sentAway.count + arrived.count }

    mutating func open() { isOpen = true }

    /// - Returns: whether the request is kept; if not it has to be answered with the error.
    mutating func takeBack(_ request: RedisRequest, because error: RedisServerError) -> Bool {
        guard isOpen, request.command != nil, request.redirections < RedisRequest.maximumRedirections else {
            return false
        }
        var request = request
        request.redirections += 1
        request.redirectedBy = error
        sentAway.append(request)
        return true
    }

    /// - Returns: whether the request is kept.
    mutating func take(_ request: RedisRequest) -> Bool {
        guard isOpen, request.command != nil else { return false }
        arrived.append(request)
        return true
    }

    /// Ends the handover, one way or the other.
    ///
    /// - Returns: the requests in their order.
    mutating func close() -> [RedisRequest] {
        defer { self = Handover() }
        return sentAway + arrived
    }
}
