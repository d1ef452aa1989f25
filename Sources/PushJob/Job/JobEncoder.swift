import NIOCore

/// Encodes a job from its members, for the command line and for producers in Swift.
///
/// It refuses everything that the worker would refuse, so mistakes show at once and not among the dead letters.
public struct JobEncoder: Sendable {
    /// The value of a short form.
    public enum ShortForm: Sendable, Equatable {
        /// A string, not escaped.
        case text(String)
        /// A number.
        case number(Double)
        /// An integer.
        case integer(Int64)
        /// True or false.
        case flag(Bool)
        /// A time, in milliseconds since 1970.
        case time(Int64)
        /// A JSON text, which is copied into the job byte for byte.
        case json(ByteBuffer)
    }

    /// The payload's JSON text, which is copied into the job byte for byte. A job has either this or ``shortForms``.
    public var payload: ByteBuffer?
    /// The members from which the worker composes the payload. Members that are not short forms are not written.
    public var shortForms: [JobMember: ShortForm] = [:]
    /// The device tokens: one is written as `token`, more as `tokens`.
    public var tokens: [String]
    /// The broadcast channel's id, instead of tokens.
    public var channel: String?
    /// The producer's id.
    public var id: String?
    /// The name of the app to send through.
    public var app: String?
    /// The `apns-topic` header.
    public var topic: String?
    /// The `apns-push-type` header.
    public var pushType: String?
    /// The `apns-priority` header.
    public var priority: Int?
    /// The time until which the notification is valid.
    public var expiration: Expiration?
    /// The `apns-collapse-id` header.
    public var collapseID: String?
    /// The `apns-id` header.
    public var apnsID: String?
    /// The time before which it must not be sent, in milliseconds since 1970.
    public var sendAt: Int64?
    /// The time of the device's last registration, in milliseconds since 1970.
    public var registeredAt: Int64?
    /// The time at which the job was made, in milliseconds since 1970; durations in ``expiration`` count from it.
    public var enqueuedAt: Int64?
    /// The maximum number of attempts.
    public var maxAttempts: Int?
    /// The action if an answer never arrives.
    public var onUncertain: Job.OnUncertain?
    /// The seconds for which no other job with the same id is sent; requires an ``id``.
    public var uniqueFor: Int64?
    /// The trace that the job belongs to, in the format of W3C Trace Context. The worker ignores one that is not valid.
    public var traceparent: String?
    /// The campaign that the job belongs to.
    public var campaign: String?
    /// The labels, which results, dead letters and logs carry.
    public var labels: [(name: String, value: String)] = []
    /// The key among whose jobs this one waits for its share of the queue.
    public var fair: String?
    /// The maximum number of notifications per second for jobs with the same ``fair``, 1 to 1,000,000.
    public var fairPerSecond: Int?
    /// True to send the job before the others that wait in its queue.
    public var isUrgent = false
    /// The key whose newest job alone is sent; requires an ``id``.
    public var replaces: String?
    /// True if notifications with the same content for the same device must be sent only once.
    public var collapsesDuplicates = false
    /// True to allow the alert's body to be shortened so that the payload fits.
    public var truncates = false
    /// True to keep the job's results even if its queue keeps fewer.
    public var keepsResult = false

    /// - Parameters:
    ///   - tokens: the device tokens, at least one unless there is a ``channel``.
    ///   - payload: the payload's JSON text; `nil` for a job of ``shortForms``.
    public init(tokens: [String], payload: ByteBuffer? = nil) {
        self.tokens = tokens
        self.payload = payload
    }

    /// Encodes the job.
    /// - Returns: the document, on one line unless the payload has more.
    /// - Throws: ``JobError`` for a payload that is not a JSON object, and for each member that the worker would
    ///   refuse.
    public func encode() throws(JobError) -> ByteBuffer {
        try checkTexts()
        var writer = Writer()
        writer.write(.id, id)
        writeTokens(&writer)
        writer.write(.channel, channel)
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
        writer.write(.traceparent, traceparent)
        writer.write(.campaign, campaign)
        writer.write(.fair, fair)
        writer.write(.fairPerSecond, fairPerSecond.map { Int64($0) })
        if isUrgent { writer.write(.urgent, flag: true) }
        writer.write(.replaces, replaces)
        writeLabels(&writer)
        if collapsesDuplicates { writer.write(.collapseDuplicates, flag: true) }
        if truncates { writer.write(.truncate, flag: true) }
        if keepsResult { writer.write(.keepResult, flag: true) }
        for member in JobMember.allCases where member.isShortForm {
            if let value = shortForms[member] { writer.write(member, value) }
        }
        if let payload { writer.write(.payload, json: payload) }
        writer.end()
        let job = try JobDecoder.decode(writer.buffer)
        // The worker ignores these if they are not valid.
        if campaign != nil, job.campaign == nil { throw .ignored(.campaign) }
        if fair != nil, job.fair == nil { throw .ignored(.fair) }
        if replaces != nil, job.replaces == nil { throw .ignored(.replaces) }
        if !labels.isEmpty, job.labels == nil { throw .ignored(.labels) }
        return writer.buffer
    }

    private func writeLabels(_ writer: inout Writer) {
        guard !labels.isEmpty else { return }
        writer.begin(.labels)
        for (index, label) in labels.enumerated() {
            writer.buffer.writeInteger(index == 0 ? UInt8(ascii: "{") : UInt8(ascii: ","))
            writer.buffer.writeJSONString(label.name)
            writer.buffer.writeInteger(UInt8(ascii: ":"))
            writer.buffer.writeJSONString(label.value)
        }
        writer.buffer.writeInteger(UInt8(ascii: "}"))
    }

    /// Validates texts on their own, because as a part of the job, a payload such as `{},"token":"…"` would be valid
    /// JSON.
    private func checkTexts() throws(JobError) {
        if let error = payload.flatMap(Self.error) { throw .malformedPayload(error) }
        for (member, value) in shortForms {
            if case .json(let text) = value, let error = Self.error(in: text) { throw .malformedMember(member, error) }
        }
    }

    private static func error(in text: ByteBuffer) -> JSONError? {
        do throws(JSONError) {
            try text.withUnsafeReadableBytes { bytes throws(JSONError) in try JSONScanner.validate(bytes) }
            return nil
        } catch {
            return error
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

    mutating func end() {
        if buffer.readableBytes == 0 { buffer.writeInteger(UInt8(ascii: "{")) }
        buffer.writeInteger(UInt8(ascii: "}"))
    }

    mutating func write(_ member: JobMember, _ value: JobEncoder.ShortForm) {
        switch value {
        case .text(let text): write(member, text)
        // Swift formats a finite number as JSON does; other numbers are refused when the job is read back.
        case .number(let number): write(member, json: ByteBuffer(string: "\(number)"))
        case .integer(let number): write(member, number)
        case .flag(let flag): write(member, flag: flag)
        case .time(let time): write(member, time: time)
        case .json(let text): write(member, json: text)
        }
    }

    mutating func write(_ member: JobMember, flag: Bool) {
        begin(member)
        buffer.writeStaticString(flag ? "true" : "false")
    }

    mutating func write(_ member: JobMember, json: ByteBuffer) {
        begin(member)
        buffer.writeImmutableBuffer(json)
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

    /// Writes seconds, with a fraction only if there are milliseconds.
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
