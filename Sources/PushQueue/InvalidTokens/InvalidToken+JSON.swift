import NIOCore

extension InvalidToken {
    /// Writes it as a line of JSON, for other programs: what the details hash has, with the token, the app and what became of it.
    /// - Parameters:
    ///   - app: the app's name.
    ///   - outcome: such as `added`.
    public func writeLine(to lines: inout ByteBuffer, app: String, outcome: String) {
        lines.writeString("{\"token\":")
        lines.writeJSONString(token)
        lines.writeString(",\"at\":\(at),\"app\":")
        lines.writeJSONString(app)
        lines.writeString(",\"topic\":")
        lines.writeJSONString(topic)
        if let environment {
            lines.writeString(",\"environment\":")
            lines.writeJSONString(environment)
        }
        lines.writeString(",\"source\":\"\(source.rawValue)\",\"outcome\":")
        lines.writeJSONString(outcome)
        lines.writeString("}\n")
    }
}
