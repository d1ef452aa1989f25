import NIOCore

/// Encodes a job from its members, for the command line.
///
/// It refuses everything that the worker would refuse or ignore, so mistakes show at once and not among the dead letters.
public struct JobEncoder: Sendable {
    /// The value of a member. The job is refused if the member has another kind of value.
    public enum Value: Sendable {
        /// A string, not escaped.
        case text(String)
        case texts([String])
        case labels([(name: String, value: String)])
        case number(Double)
        case integer(Int64)
        case flag(Bool)
        /// A time, in milliseconds since 1970.
        case time(Int64)
        /// A JSON text, which is copied into the job byte for byte.
        case json(ByteBuffer)

        public static func expiration(_ expiration: Expiration) -> Value {
            switch expiration {
            case .epoch(let second): .integer(second)
            case .after(let seconds): .text("\(seconds)s")
            }
        }
    }

    public var members: [JobMember: Value] = [:]

    /// - Parameters:
    ///   - tokens: the device tokens: one is written as `token`, more as `tokens`.
    ///   - payload: the payload's JSON text; `nil` for a job of short forms.
    public init(tokens: [String] = [], payload: ByteBuffer? = nil) {
        if let token = tokens.first { members = tokens.count == 1 ? [.token: .text(token)] : [.tokens: .texts(tokens)] }
        members[.payload] = payload.map { .json($0) }
    }

    /// Encodes the job.
    /// - Returns: the document, on one line unless a JSON text has several lines. The payload is its last member.
    /// - Throws: ``JobError`` for the first member that the worker would refuse or ignore.
    public func encode() throws(JobError) -> ByteBuffer {
        try checkTexts()
        var document = ByteBuffer()
        for member in JobMember.allCases.filter({ $0 != .payload }) + [.payload] {
            guard let value = members[member] else { continue }
            document.writeInteger(document.readableBytes == 0 ? UInt8(ascii: "{") : UInt8(ascii: ","))
            document.writeString("\"\(member.name)\":")
            Self.write(value, to: &document)
        }
        document.writeString(document.readableBytes == 0 ? "{}" : "}")
        if let member = try JobDecoder.decode(document).ignoredMembers.first { throw .ignored(member) }
        return document
    }

    /// Validates JSON texts on their own, because as a part of the job, a payload such as `{},"token":"…"` would be valid.
    private func checkTexts() throws(JobError) {
        for (member, value) in members {
            guard case .json(let text) = value else { continue }
            do throws(JSONError) {
                try text.withUnsafeReadableBytes { bytes throws(JSONError) in try JSONScanner.validate(bytes) }
            } catch {
                throw member == .payload ? .malformedPayload(error) : .malformedMember(member, error)
            }
        }
    }

    private static func write(_ value: Value, to document: inout ByteBuffer) {
        switch value {
        case .text(let text): document.writeJSONString(text)
        case .texts(let texts):
            for (index, text) in texts.enumerated() {
                document.writeString(index == 0 ? "[" : ",")
                document.writeJSONString(text)
            }
            document.writeString(texts.isEmpty ? "[]" : "]")
        case .labels(let labels):
            for (index, label) in labels.enumerated() {
                document.writeString(index == 0 ? "{" : ",")
                document.writeJSONString(label.name)
                document.writeString(":")
                document.writeJSONString(label.value)
            }
            document.writeString(labels.isEmpty ? "{}" : "}")
        // Swift formats a finite number as JSON does; other numbers are refused when the job is read back.
        case .number(let number): document.writeString("\(number)")
        case .integer(let number): document.writeJSONInteger(number)
        case .flag(let flag): document.writeString("\(flag)")
        case .time(let time): document.writeJSONSeconds(time)
        case .json(let text): document.writeImmutableBuffer(text)
        }
    }
}
