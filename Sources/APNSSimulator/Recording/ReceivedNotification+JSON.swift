extension ReceivedNotification {
    /// The notification as a JSON object on one line; what it does not have is left out.
    ///
    /// The payload is in `payload` with its numbers and the order of its members as they came. One that is no JSON object
    /// is in `payloadText`.
    /// - Parameter sequence: its number in the recording.
    func json(sequence: UInt64) -> [UInt8] {
        var object = JSONObjectWriter()
        object.member("sequence", sequence)
        object.member("time", time)
        object.member("transport", transport.rawValue)
        object.member("connection", connection)
        object.member("request", request)
        object.member("token", token)
        object.member("channel", channel)
        object.member("topic", topic)
        object.member("pushType", pushType)
        object.member("priority", priority)
        object.member("expiration", expiration)
        object.member("collapseID", collapseID)
        object.member("apnsID", apnsID)
        object.member("identifier", identifier)
        if !malformedHeaders.isEmpty { object.member("malformedHeaders", malformedHeaders) }
        write(payloadInto: &object)
        object.member("payloadSize", payloadSize)
        object.member("accepted", accepted)
        switch outcome {
        case .answered(let status, let reason):
            var answer = JSONObjectWriter()
            answer.member("status", status)
            answer.member("reason", reason)
            object.member("outcome", json: answer.finished)
        case .reset: object.member("outcome", "reset")
        case .goAway: object.member("outcome", "goaway")
        case .dropped: object.member("outcome", "dropped")
        case .silenced: object.member("outcome", "silenced")
        case .closed: object.member("outcome", "closed")
        }
        return object.finished
    }

    private func write(payloadInto object: inout JSONObjectWriter) {
        guard !payload.isEmpty else { return }
        // The check lets strings through that are no UTF-8, and those would spoil the whole line.
        let isObject = payload.withUnsafeBufferPointer { JSONObjectCheck.accepts($0) }
        if isObject, payload.count == payloadSize, String(validating: payload, as: UTF8.self) != nil {
            // Outside of strings a line's end is a space, and inside it is not allowed.
            object.member("payload", json: payload.lazy.map { $0 == 0x0A || $0 == 0x0D ? 0x20 : $0 })
        } else {
            object.member("payloadText", String(decoding: payload, as: UTF8.self))
        }
    }
}
