import NIOCore

/// The answer of the admin port.
struct AdminAnswer: Sendable {
    var status: Int
    var body: String
}

/// A worker's admin port on this machine, and one question to it.
struct AdminAddress {
    /// Why there is no answer.
    struct NoAnswer: Error, CustomStringConvertible {
        let description: String
    }

    let host: String
    let port: Int

    /// - Parameter host: where the port listens; all addresses are asked for at the loopback address.
    init(host: String, port: Int) {
        self.host = host == "0.0.0.0" ? "127.0.0.1" : host == "::" ? "::1" : host
        self.port = port
    }

    /// Asks once.
    /// - Throws: ``NoAnswer``.
    func get(_ path: String, within limit: TimeAmount) async throws -> AdminAnswer {
        do {
            let answer = try await HTTPExchange(host: host, port: port)
                .send(.GET, path, headers: ["Host": host], within: limit)
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
        case .broken(let reason): "\(place) does not answer as an admin port does: \(reason)"
        }
    }

    private var place: String { "\(host.contains(":") ? "[\(host)]" : host):\(port)" }
}
