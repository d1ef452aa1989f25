import Hummingbird

/// The parameters of a request's query, taken one by one so that what is left over is known to be wrong.
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
        throw ControlError(.badRequest, "there is no parameter '\(name)' here")
    }
}
