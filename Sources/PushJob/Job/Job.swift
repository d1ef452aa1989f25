import NIOCore

/// A push job as it was claimed: its bytes, and the places of its members in them.
///
/// It allocates and copies nothing; everything that it returns is a slice of ``body``.
public struct Job: Sendable {
    /// The action for a notification whose answer never arrived: the device may get it twice, or never.
    public enum OnUncertain: Sendable { case resend, drop }

    /// The claimed bytes. If a job of another format was rewritten, the rewritten text follows them. All offsets count from the first
    /// readable byte.
    public let body: ByteBuffer

    /// The contents of the job's wrapper; a fresh job has none.
    public private(set) var envelope: Envelope

    /// The producer's id, or the wrapper's.
    public internal(set) var id: JobField?
    /// The device token, if there is only one and no wrapper lists others. It may not be hexadecimal.
    public internal(set) var token: JobField?
    /// The broadcast channel's id, if the job is for a channel and not for devices: 1 to 255 base64 characters (Apple:
    /// "Sending broadcast push notification requests to APNs", `apns-channel-id`).
    public internal(set) var channel: JobField?
    public internal(set) var app: JobField?
    /// The `apns-topic` header: printable ASCII.
    public internal(set) var topic: JobField?
    /// The `apns-push-type` header: printable ASCII, but not necessarily a type that exists.
    public internal(set) var pushType: JobField?
    /// The `apns-collapse-id` header: at most 64 bytes of printable ASCII.
    public internal(set) var collapseID: JobField?
    /// The `apns-id` header: a UUID.
    public internal(set) var apnsID: JobField?
    /// The `traceparent` as it was written, valid or not; see ``trace``.
    public internal(set) var traceparent: JobField?
    /// The name of the campaign that the job belongs to: 1 to 100 bytes without control characters. `nil` if the member
    /// is not valid: the job is sent nevertheless.
    public internal(set) var campaign: JobField?
    /// The key of the job's share: while jobs of several keys wait in a queue, each key gets an equal share. 1 to 100 bytes without control
    /// characters. `nil` if the member is not valid: the job is sent nevertheless.
    public internal(set) var fair: JobField?
    /// The maximum number of notifications per second for jobs with the same ``fair``, 1 to 1,000,000.
    public internal(set) var fairPerSecond: Int?
    /// Of the jobs with the same key, only the newest is sent. The key has 1 to 100 bytes without control characters. Requires an ``id``.
    /// `nil` if the member is not valid: the job is sent nevertheless.
    public internal(set) var replaces: JobField?
    /// The producer's labels as written: a JSON object of up to 4 strings, with names and values of 1 to 64 bytes
    /// without control characters. `nil` if the member is not valid: the job is sent nevertheless.
    public internal(set) var labels: JobField?
    /// The APNs payload as written: a JSON object. It is empty for a job of short forms, and not always what is sent: see ``makesPayload``.
    public internal(set) var payload: JobField

    /// The `apns-priority` header: 1, 5 or 10.
    public internal(set) var priority: Int?
    /// The time until which the notification is valid.
    public internal(set) var expiration: Expiration?
    /// The time before which the job must not be sent, in milliseconds since 1970.
    public internal(set) var sendAt: Int64?
    /// The time of the device's last registration, in milliseconds since 1970.
    public internal(set) var registeredAt: Int64?
    /// The time at which the job was made, in milliseconds since 1970: the producer's, or else the wrapper's.
    public internal(set) var enqueuedAt: Int64?
    /// The maximum number of attempts, 1 to 1000.
    public internal(set) var maxAttempts: Int?
    /// The milliseconds for which no other job with the same id is sent: 1 second to 30 days. Requires an ``id``.
    public internal(set) var uniqueFor: Int64?
    public internal(set) var onUncertain = OnUncertain.resend

    var traits: JobTraits = []
    /// Facts about the payload, as it was written or as it will be composed.
    public internal(set) var facts = PayloadFacts()
    var tokenList: JobTokenList?
    /// The place of the job's own object in a text of Sidekiq or Resque; `nil` for a native job.
    var argument: JobField?

    public init(body: ByteBuffer, envelope: Envelope) {
        self.body = body
        self.envelope = envelope
        id = envelope.id
        enqueuedAt = envelope.enqueued
        tokenList = envelope.tokenList
        payload = JobField(0..<0)
    }

    /// The range of the producer's bytes in ``body``: all of it, or the contents of the wrapper.
    public var original: Range<Int> { envelope.original }

    /// The range in ``body`` of the object with the job's members.
    var document: Range<Int> { argument?.range ?? original }

    /// True if ``document`` is not a part of the claimed bytes, but was rewritten after them.
    public var isRewritten: Bool { document.lowerBound >= original.upperBound }

    /// A hash of the names of all members that the worker does not know; 0 if there are none. Jobs with the same unknown names have the
    /// same hash.
    public internal(set) var otherNames: UInt64 = 0
    /// The members that are ignored because they are not valid.
    public var ignoredMembers: [JobMember] {
        JobMember.allCases.filter { member in
            !member.isShortForm && traits.contains(.ignored(member))
                || member == .traceparent && traceparent != nil && trace == nil
        }
    }

    /// The device tokens of the wrapper's array or, if it has no array, of the producer's; `nil` if there is no array.
    public var tokens: JobTokens? {
        tokenList.map { JobTokens(body: body, list: $0) }
    }

    public var campaignName: ByteBuffer? { campaign.map(text) }

    /// The labels as a JSON object in one line, without white space between its parts.
    public var labelsText: ByteBuffer? { labels.map { JobLabels.compact(bytes($0)) } }

    /// True if notifications with the same content for the same device must be sent only once.
    public var collapsesDuplicates: Bool { traits.contains(.collapseDuplicates) }

    /// True if the results of the job's notifications are kept, whatever results its queue keeps.
    public var keepsResult: Bool { traits.contains(.keepResult) }

    /// True if the job is sent before the other jobs that wait in its queue.
    public var isUrgent: Bool { traits.contains(.urgent) }

    // A job can be for both environments.
    public var isForProduction: Bool { traits.contains(.production) }

    public var isForSandbox: Bool { traits.contains(.sandbox) }

    /// The trace that the job belongs to, if its `traceparent` is a valid one.
    public var trace: TraceParent? { traceparent.flatMap { TraceParent(text($0)) } }

    /// True if the producer records the trace that the job belongs to.
    public var isSampled: Bool { traceparent.map { TraceParent.isSampled(text($0)) } ?? false }

    /// The number of devices that the job is for; 1 for a job to a channel.
    public var tokenCount: Int { tokenList?.count ?? 1 }

    /// Returns a string's characters: a slice without a copy if it is written without escapes.
    public func text(_ field: JobField) -> ByteBuffer { field.text(in: body) }

    /// Returns a member's bytes as written: a slice without a copy.
    public func bytes(_ field: JobField) -> ByteBuffer { field.bytes(in: body) }

    /// The range in ``body`` of the producer's list of tokens with one comma beside it, which the pieces of a split job
    /// leave out. Empty if the tokens are a wrapper's.
    public var tokensMember: Range<Int> {
        guard envelope.tokenList == nil, let list = tokenList else {
            return original.lowerBound..<original.lowerBound
        }
        return body.withUnsafeReadableBytes { bytes in
            guard isRewritten else { return list.rangeToCut(in: bytes, of: original) }
            return SidekiqReader.tokensMember(list, in: bytes, rewritten: document, from: original)
                ?? original.lowerBound..<original.lowerBound
        }
    }

    /// Divides the list of tokens into pieces, and returns their ranges in ``body``, with the commas between the tokens.
    /// - Parameter size: the maximum number of tokens of a piece.
    public func tokenPieces(of size: Int) -> [Range<Int>] {
        guard let tokens else { return [] }
        var pieces: [Range<Int>] = []
        pieces.reserveCapacity(tokens.count / size + 1)
        var (start, end, count) = (0, 0, 0)
        for token in tokens {
            // A field excludes its quotes.
            if count == 0 { start = token.offset - 1 }
            end = token.offset + token.length + 1
            count += 1
            if count == size {
                pieces.append(start..<end)
                count = 0
            }
        }
        if count > 0 { pieces.append(start..<end) }
        return pieces
    }

    // MARK: The payload

    /// True if ``payload(limit:)`` must make the payload; else ``payload`` is sent, byte for byte.
    public var makesPayload: Bool { !traits.isDisjoint(with: [.shortForms, .truncate, .emptyPayload]) }

    /// Returns the payload to send: a slice of the job as it was written or, for a job with short forms and if the
    /// alert's body must be shortened, a new buffer. It is made again on each call.
    ///
    /// - Parameter limit: the number of bytes that APNs accepts. It applies only to a job with `truncate`; any other
    ///   payload is returned regardless of its length.
    /// - Throws: ``JobError/payloadTooLong(excess:limit:)`` for a job with `truncate` that cannot be made to fit.
    public func payload(limit: Int) throws(JobError) -> ByteBuffer {
        guard makesPayload else { return bytes(payload) }
        if traits.contains(.emptyPayload) { return ByteBuffer(string: "{}") }
        let whole = traits.contains(.shortForms) ? try composed() : bytes(payload)
        guard traits.contains(.truncate), whole.readableBytes > limit else { return whole }
        return try PayloadShortener.shorten(whole, to: limit)
    }

    private func composed() throws(JobError) -> ByteBuffer {
        do throws(JSONError) {
            return try body.withUnsafeReadableBytes { bytes throws(JSONError) in
                try PayloadComposer.compose(bytes, in: document)
            }
        } catch {
            throw .malformedJSON(error)
        }
    }

    /// The mistakes in the job's payload, or in the members beside its short forms, that APNs accepts although Apple's documentation shows
    /// them to be mistakes. Each call reads the payload again.
    public var mistakes: [MemberMistake] {
        guard facts.mayHaveMistakes else { return [] }
        if traits.contains(.emptyPayload) { return MistakeFinder.mistakes(inPayload: ByteBuffer(string: "{}")) }
        return body.withUnsafeReadableBytes { bytes in
            do throws(JSONError) {
                return traits.contains(.shortForms)
                    ? try MistakeFinder.mistakes(inCustomOf: JSONScanner(bytes, in: document))
                    : try MistakeFinder.mistakes(inPayload: JSONScanner(bytes, in: payload.range))
            } catch {
                // The JSON was validated when the job was read.
                assertionFailure("\(error)")
                return []
            }
        }
    }

    // MARK: Times

    /// Returns the `apns-expiration` in seconds since 1970; `nil` if the job does not specify one.
    public func expirationSecond(firstSeen: Int64) -> Int64? {
        switch expiration {
        case nil: nil
        case .epoch(let second): second
        case .after(let seconds): made(firstSeen: firstSeen) / 1000 + seconds
        }
    }

    /// The maximum time in milliseconds by which a producer's clock may be ahead.
    public static let clockTolerance: Int64 = 300_000

    /// Returns the time at which the job was made, in milliseconds since 1970: its `enqueued_at`, or `firstSeen` if it is missing or more
    /// than ``clockTolerance`` in the future. If a producer's clock is years ahead, a duration of an hour would otherwise end in years.
    public func made(firstSeen: Int64) -> Int64 {
        enqueuedAt.map { $0 > firstSeen + Self.clockTolerance ? firstSeen : $0 } ?? firstSeen
    }

    // MARK: The push type

    /// The push type of a job that does not specify one; `nil` if it could be for widgets or for controls.
    public var inferredPushType: PushType? {
        // Broadcasts are for Live Activities alone.
        guard channel == nil else { return .liveactivity }
        if traits.contains(.shortForms) {
            if traits.contains(.mdm) {
                if facts.named.contains(.mdm) { return .mdm }
            } else if !facts.named.isDisjoint(with: [.event, .contentState]) {
                return .liveactivity
            }
        }
        let type = PushType(of: facts, topic: topic.flatMap { PushType.parts(ofTopic: String(buffer: text($0))).type })
        return type == .mdm && traits.contains(.shortForms) ? .alert : type
    }
}
