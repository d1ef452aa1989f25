import NIOCore

/// An answer of the admin port.
struct AdminAnswer: Sendable {
    var status: Int
    var body: String
}

/// The admin port of a worker on this machine, and a client for it.
struct AdminAddress {
    /// The reason for which there is no answer.
    struct NoAnswer: Error, CustomStringConvertible {
        let description: String
    }

    let host: String
    let port: Int

    /// - Parameter host: the address on which the port listens; if that is all addresses, the loopback address is used.
    init(host: String, port: Int) {
        self.host = host == "0.0.0.0" ? "127.0.0.1" : host == "::" ? "::1" : host
        self.port = port
    }

    /// Sends one request.
    /// - Throws: ``NoAnswer``.
    func get(_ path: String, within limit: TimeAmount) async throws -> AdminAnswer {
        do {
            let address = HTTPAddress(host: host, port: port, target: path)
            let answer = try await HTTPExchange(address: address).send(.GET, within: limit)
            return AdminAnswer(status: answer.status, body: String(buffer: answer.body))
        } catch let failure as HTTPExchange.Failure {
            throw NoAnswer(description: description(of: failure, limit))
        }
    }

    private func description(of failure: HTTPExchange.Failure, _ limit: TimeAmount) -> String {
        switch failure {
        case .unreachable(let reason):
            "nothing answers at \(place): \(reason). Is the worker running, with this admin port?"
        case .timeout: "\(place) does not answer within \(limit.nanoseconds / 1_000_000) ms"
        case .closed: "\(place) closed the connection without an answer"
        case .broken(let reason): "\(place) did not answer like an admin port: \(reason)"
        }
    }

    private var place: String { "\(host.contains(":") ? "[\(host)]" : host):\(port)" }
}
