import NIOCore

/// A command on its way to an answer, by more than one server if need be.
struct RedisRequest {
    /// The number of times that a command follows its slot before its caller gets the redirection: two nodes that name each
    /// other must not keep it for ever.
    static let maximumRedirections = 5

    /// Kept only where it may have to be sent again, which is in a Cluster.
    let command: RedisCommand?
    let timeout: TimeAmount?
    let completion: RedisConnection.Completion
    var redirections = 0
    /// The redirection that the command follows.
    var redirectedBy: RedisServerError?
}
