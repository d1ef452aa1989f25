import NIOCore

/// Makes a job's document from its members, for those who enqueue from the command line.
///
/// It refuses whatever the worker would refuse, so a mistake shows at once and not among the dead letters.
public struct JobEncoder: Sendable {
    /// The payload's JSON text; it goes into the job byte for byte.
    public var payload: ByteBuffer
    /// The device tokens: one is written as `token`, more as `tokens`.
    public var tokens: [String]
    /// The producer's id.
    public var id: String?
    /// Which configured app to send through.
    public var app: String?
    /// The `apns-topic` header.
    public var topic: String?
    /// The `apns-push-type` header.
    public var pushType: String?
    /// The `apns-priority` header.
    public var priority: Int?
    /// Until when the notification is good.
    public var expiration: Expiration?
    /// The `apns-collapse-id` header.
    public var collapseID: String?
    /// The `apns-id` header.
    public var apnsID: String?
    /// Not before this time, in milliseconds since 1970.
    public var sendAt: Int64?
    /// When the device last registered, in milliseconds since 1970.
    public var registeredAt: Int64?
    /// When the job was made, in milliseconds since 1970; what durations in ``expiration`` count from.
    public var enqueuedAt: Int64?
    /// How many attempts the job has.
    public var maxAttempts: Int?
    /// What to do when an answer never came.
    public var onUncertain: Job.OnUncertain?
    /// For how many seconds no other job with the same id is sent; it needs an ``id``.
    public var uniqueFor: Int64?

    /// - Parameters:
    ///   - tokens: the device tokens, at least one.
    ///   - payload: the payload's JSON text.
    public init(tokens: [String], payload: ByteBuffer) {
        self.tokens = tokens
        self.payload = payload
    }

    /// Writes the job.
    /// - Returns: the document, in one line unless the payload has more.
    /// - Throws: ``JobError`` for a payload that is not a JSON object and for every member the worker would refuse.
    public func encode() throws(JobError) -> ByteBuffer {
        try checkPayload()
        var writer = Writer()
        writer.write(.id, id)
        writeTokens(&writer)
        writer.write(.app, app)
        writer.write(.topic, topic)
        writer.write(.pushType, pushType)
        writer.write(.priority, priority.map { Int64($0) })
        writeExpiration(&writer)
        writer.write(.collapseID, collapseID)
        writer.write(.apnsID, apnsID)
        writer.write(.sendAt, time: sendAt)
        writer.write(.registeredAt, time: registeredAt)
        writer.write(.enqueuedAt, time: enqueuedAt)
        writer.write(.maxAttempts, maxAttempts.map { Int64($0) })
        writer.write(.onUncertain, onUncertain.map { $0 == .drop ? "drop" : "resend" })
        writer.write(.uniqueFor, uniqueFor.map { "\($0)s" })
        writer.begin(.payload)
        writer.buffer.writeImmutableBuffer(payload)
        writer.buffer.writeInteger(UInt8(ascii: "}"))
        _ = try JobDecoder.decode(writer.buffer)
        return writer.buffer
    }

    /// By itself first: as a part of the job, a payload such as `{},"token":"…"` would be good JSON.
    private func checkPayload() throws(JobError) {
        do throws(JSONError) {
            try payload.withUnsafeReadableBytes { bytes throws(JSONError) in try JSONScanner.validate(bytes) }
        } catch {
            throw .malformedPayload(error)
        }
    }

    private func writeTokens(_ writer: inout Writer) {
        if tokens.count == 1 { return writer.write(.token, tokens[0]) }
        guard !tokens.isEmpty else { return }
        writer.begin(.tokens)
        for (index, token) in tokens.enumerated() {
            writer.buffer.writeInteger(index == 0 ? UInt8(ascii: "[") : UInt8(ascii: ","))
            writer.buffer.writeJSONString(token)
        }
        writer.buffer.writeInteger(UInt8(ascii: "]"))
    }

    private func writeExpiration(_ writer: inout Writer) {
        switch expiration {
        case .epoch(let second): writer.write(.expiration, second)
        case .after(let seconds): writer.write(.expiration, "\(seconds)s")
        case nil: break
        }
    }
}

private struct Writer {
    var buffer = ByteBuffer()

    mutating func begin(_ member: JobMember) {
        buffer.writeInteger(buffer.readableBytes == 0 ? UInt8(ascii: "{") : UInt8(ascii: ","))
        buffer.writeInteger(UInt8(ascii: "\""))
        buffer.writeStaticString(member.name)
        buffer.writeStaticString("\":")
    }

    mutating func write(_ member: JobMember, _ text: String?) {
        guard let text else { return }
        begin(member)
        buffer.writeJSONString(text)
    }

    mutating func write(_ member: JobMember, _ number: Int64?) {
        guard let number else { return }
        begin(member)
        buffer.writeJSONInteger(number)
    }

    /// Seconds, with milliseconds behind the point only if there are any.
    mutating func write(_ member: JobMember, time: Int64?) {
        guard let time else { return }
        let (seconds, milliseconds) = time.magnitude.quotientAndRemainder(dividingBy: 1000)
        begin(member)
        if time < 0 { buffer.writeInteger(UInt8(ascii: "-")) }
        buffer.writeJSONInteger(Int64(seconds))
        guard milliseconds != 0 else { return }
        buffer.writeStaticString(milliseconds < 10 ? ".00" : milliseconds < 100 ? ".0" : ".")
        buffer.writeJSONInteger(Int64(milliseconds))
    }
}
