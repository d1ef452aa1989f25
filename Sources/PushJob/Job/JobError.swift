/// The reason why a body is not a valid job. Offsets are bytes from the start of the producer's text.
///
/// It holds names of members, but never a value: payloads and tokens must not reach a log.
public enum JobError: Error, Equatable, Sendable, CustomStringConvertible {
    case malformedJSON(JSONError, ForeignText? = nil)
    case notAnObject(offset: Int, ForeignText? = nil)
    /// The payload for ``JobEncoder`` is not JSON; the offset counts from the payload's start.
    case malformedPayload(JSONError)
    /// - Parameter found: the end of the error's sentence, about a member that the job has in place of a token.
    case missingToken(found: String?)
    case tokenAndTokens
    /// The member is `token` or `tokens`.
    case channelAndToken(JobMember)
    case missingPayload(found: String?)
    /// The job has a `payload` and this short form. `isOwnData` is true if the payload has neither `aps` nor `mdm`, so it is probably the
    /// app's own data.
    case payloadAndShortForm(JobMember, isOwnData: Bool)
    /// A value that ``JobEncoder`` got as JSON text is not JSON; the offset counts from its start.
    case malformedMember(JobMember, JSONError)
    /// The payload cannot be shortened to the limit: even with an empty alert body it has this many bytes too many.
    case payloadTooLong(excess: Int, limit: Int)
    /// The member is `unique_for` or `replaces`.
    case missingID(JobMember)
    case replacesAndUniqueFor
    case missingFair
    /// A member, whose value begins at the offset, has the wrong type or is out of range.
    case invalidMember(JobMember, offset: Int, MemberMistake)
    case duplicateMember(JobMember, offset: Int)
    case newerWrapper(version: Int)
    /// The body has 2 GiB or more.
    case tooLarge(bytes: Int)
    /// The body is JSON, but not in the queue's format, ``JobFormat/sidekiq(classes:)``.
    case notSidekiq(SidekiqMistake)
    /// The name of the job's class, if it looks like a name, and the accepted classes.
    case otherClass(String?, accepted: [String])

    /// The error's code in dead letters, counters and results. It does not change between releases.
    public enum Code: String, CaseIterable, Sendable {
        case tooDeep = "TooDeep"
        case malformedJSON = "MalformedJSON"
        case notAnObject = "NotAnObject"
        case missingToken = "MissingToken"
        case tokenAndTokens = "TokenAndTokens"
        case channelAndToken = "ChannelAndToken"
        case missingPayload = "MissingPayload"
        case payloadAndShortForm = "PayloadAndShortForm"
        case payloadTooLong = "PayloadTooLarge"
        case missingID = "MissingID"
        case replacesAndUniqueFor = "ReplacesAndUniqueFor"
        case missingFair = "MissingFair"
        case invalidMember = "InvalidMember"
        case duplicateMember = "DuplicateMember"
        case newerWrapper = "NewerWrapper"
        case tooLarge = "TooLarge"
        case notSidekiq = "NotSidekiqJob"
        case otherClass = "OtherClass"
    }

    public var code: Code {
        switch self {
        case .malformedJSON(let error, _), .malformedPayload(let error), .malformedMember(_, let error):
            error.kind == .tooDeep ? .tooDeep : .malformedJSON
        case .notAnObject: .notAnObject
        case .missingToken: .missingToken
        case .tokenAndTokens: .tokenAndTokens
        case .channelAndToken: .channelAndToken
        case .missingPayload: .missingPayload
        case .payloadAndShortForm: .payloadAndShortForm
        case .payloadTooLong: .payloadTooLong
        case .missingID: .missingID
        case .replacesAndUniqueFor: .replacesAndUniqueFor
        case .missingFair: .missingFair
        case .invalidMember: .invalidMember
        case .duplicateMember: .duplicateMember
        case .newerWrapper: .newerWrapper
        case .tooLarge: .tooLarge
        case .notSidekiq: .notSidekiq
        case .otherClass: .otherClass
        }
    }

    public var description: String {
        switch self {
        case .malformedJSON(let error, let foreign): "the job is not valid JSON: \(foreign?.rawValue ?? "\(error)")"
        case .malformedPayload(let error): "the payload is not valid JSON: \(error)"
        case .notAnObject(let offset, let foreign):
            "the job must be a JSON object; \(foreign?.rawValue ?? "another value starts at byte \(offset)")"
        case .missingToken(let found):
            "the job has no device token: "
                + (found ?? "it needs `token` (a string) or `tokens` (an array of strings), or a `channel`")
        case .tokenAndTokens: "the job has both `token` and `tokens`; it must have exactly one of them"
        case .channelAndToken(let member):
            "the job has both `channel` and `\(member.name)`; it goes either to a channel or to devices"
        case .missingPayload(let found):
            "the job has no `payload`: "
                + (found ?? "it needs the APNs payload as a JSON object, or short forms such as `alert`")
        case .payloadAndShortForm(let member, let isOwnData):
            "the job has both `payload` and `\(member.name)`; "
                + (isOwnData
                    ? "if the `payload` is data of the app, name it `custom`"
                    : member == .custom
                        ? "put the members of `custom` into `payload`, beside `aps`"
                        : "it must have either the payload or short forms")
        case .malformedMember(let member, let error): "the `\(member.name)` is not valid JSON: \(error)"
        case .payloadTooLong(let excess, let limit):
            "the payload is \(excess) bytes too long for the limit of \(limit) even with an empty alert body;"
                + " shorten something else"
        case .missingID(let member): "the job has `\(member.name)` but no `id`: add an id that no other job has"
        case .replacesAndUniqueFor:
            "the job has both `replaces`, which sends the newest job, and `unique_for`, which sends the first; remove one"
        case .missingFair: "the job has `fair_per_second` but no `fair`: add the key whose jobs have that rate"
        case .invalidMember(_, _, let mistake):
            "the job's `\(mistake.path)` at byte \(mistake.offset) \(mistake.sentence)"
        case .duplicateMember(let member, let offset):
            "the job has `\(member.name)` more than once, again at byte \(offset); it may appear only once"
        case .notSidekiq(let mistake):
            "the job does not have the queue's format: \(mistake.rawValue);"
                + #" expected {"class":"PushJob","args":[{"token":…,"alert":…}],"jid":…}, as Sidekiq and Resque write it"#
        case .otherClass(let name, let accepted):
            "the job is of \(name.map { "the class \($0)" } ?? "another class"), but this list accepts only"
                + " \(accepted.joined(separator: ", ")) (APNS_WORKER_JOB_CLASS or --job-class);"
                + " push it to the list of the program that performs that class"
        case .newerWrapper(let version):
            "the job is in a wrapper of version \(version), which a newer apns-worker has written; requeue it once that"
                + " version runs again"
        case .tooLarge(let bytes):
            "the job has \(bytes) bytes, more than the \(JobField.maximumLength) that can be read"
        }
    }

    /// The error for a member that ``JobEncoder`` refuses and a worker would only ignore.
    static func ignored(_ member: JobMember) -> JobError {
        let mistake = MemberMistake(
            kind: .value, path: "\(member.name)", offset: 0, sentence: "must be \(member.expectation)")
        return .invalidMember(member, offset: 0, mistake)
    }

    /// Returns the error with its offset counted from a start that is `distance` bytes later.
    func offset(by distance: Int) -> JobError {
        guard distance != 0 else { return self }
        switch self {
        case .malformedJSON(let error, let foreign):
            return .malformedJSON(JSONError(kind: error.kind, offset: error.offset - distance), foreign)
        case .notAnObject(let offset, let foreign): return .notAnObject(offset: offset - distance, foreign)
        case .invalidMember(let member, let offset, var mistake):
            mistake.offset -= distance
            return .invalidMember(member, offset: offset - distance, mistake)
        case .duplicateMember(let member, let offset): return .duplicateMember(member, offset: offset - distance)
        case .malformedPayload, .missingToken, .tokenAndTokens, .channelAndToken, .missingPayload, .payloadAndShortForm,
            .malformedMember, .payloadTooLong, .missingID, .replacesAndUniqueFor, .missingFair, .newerWrapper,
            .tooLarge, .notSidekiq, .otherClass:
            return self
        }
    }
}

/// The reason why a body is not a job of Sidekiq or Resque. The raw value ends the sentence "the job does not have the queue's format: …".
public enum SidekiqMistake: String, Error, Sendable {
    case notAnObject = "it is not a JSON object"
    case noClass = "it has no `class`, which must be a string"
    case noArguments = "it has no `args`, which must be an array of at least one argument"
    case twoArguments = "it has `args` more than once"
    case noActiveJobArguments = "the `arguments` of its ActiveJob are not an array of at least one argument"
    case notAJob = "its first argument is neither an object nor the JSON text of one; pass the job as one hash"
    case encodedTwice = "its first argument was encoded more than once; pass the job as one hash"
    /// Sidekiq Enterprise can encrypt arguments.
    case encrypted = "its arguments are encrypted (`encrypt`), which only Sidekiq can read; push the job without it"
}
