import APNS
import LegacyAPNS
import NIOCore
import PushJob

/// The part of an app that jobs need: the names that select it, and the defaults for requests.
final class RoutedApp {
    let configuration: AppConfiguration
    let name: ByteBuffer
    let topic: ByteBuffer
    /// The environment recorded with invalid tokens.
    let environment: ByteBuffer
    let gateway: GatewayOptions?
    /// The app's certificate; `nil` with signing keys, and for the binary gateway, whose frames have no topic.
    private var certificate: APNSCertificate?
    /// All topics of the app, with all suffixes.
    private let topics: Set<ByteBuffer>
    /// The app's topics with the suffixes of push types.
    private let otherTopics: [PushType: ByteBuffer]
    /// A copy, because each access to a computed constant calls a function.
    private let lengthsOfCalls = PushType.lengthsOfRinging

    init(_ configuration: AppConfiguration) {
        self.configuration = configuration
        name = ByteBuffer(string: configuration.name)
        environment = ByteBuffer(string: configuration.environment)
        if case .gateway(let options) = configuration.transport { gateway = options } else { gateway = nil }
        let topic = ByteBuffer(string: configuration.topic)
        self.topic = topic
        otherTopics = Dictionary(
            uniqueKeysWithValues: PushType.allCases.filter(\.hasTopicSuffix).map { type in
                (type, type.topic(topic))
            })
        let bare = ([configuration.topic] + configuration.otherTopics).map(ByteBuffer.init(string:))
        topics = Set(bare.flatMap { topic in PushType.allCases.map { $0.topic(topic) } })
        use(configuration.credential)
    }

    func use(_ credential: Credential) {
        if case .certificate(let identity) = credential, gateway == nil {
            certificate = identity.apns
        } else {
            certificate = nil
        }
    }

    /// Throws if the app's certificate can't send to the topic of a job or of its push type. The app's own topic is not checked, because
    /// APNs refuses it for all jobs, so no job is at fault.
    private func checkCertificate(_ topic: ByteBuffer, _ type: PushType) throws(Reason) {
        guard let certificate, topic != self.topic,
            let refusal = CredentialReport.refusal(certificate, String(buffer: topic), type)
        else { return }
        throw Reason(.certificateNotForTopic, detail: "push type \(type.name): \(refusal)")
    }

    /// Returns the topic of a job that specifies none, with the suffix that the push type needs. Without the suffix, APNs would answer with
    /// an error that counts as the app's fault, and one job would pause all others.
    func topic(for type: PushType) -> ByteBuffer { type.hasTopicSuffix ? otherTopics[type] ?? topic : topic }

    /// True if a topic in a job is the app's, with or without the suffix of a push type.
    func hasTopic(_ named: ByteBuffer) -> Bool { named == topic || topics.contains(named) }

    /// Makes the notification of a job with one token, or the shared parts of a job with many.
    /// - Parameters:
    ///   - firstSeen: the time of the job's first sighting, in milliseconds since 1970.
    ///   - readsMistakes: true to look for mistakes in single members of the payload, and in the topic. A strict app always reads the
    ///     payload.
    ///   - report: called with a hint for each requirement of Apple that the job does not meet. A strict app refuses the job instead.
    func notification(
        for job: Job, identity: ByteBuffer, firstSeen: Int64, readsMistakes: Bool = false,
        report: (Hint) -> Void = { _ in }
    ) throws(Reason) -> Notification {
        let isStrict = configuration.strictPayloads
        func note(_ hint: Hint) throws(Reason) {
            if isStrict, hint.isOfPayload { throw hint.reason }
            report(hint)
        }
        let isOnChannel = job.channel != nil
        let (pushType, unknown) = try pushType(of: job, note)
        let given = job.priority.map(UInt8.init(clamping:))
        let topic = job.topic.map { pushType.topic(job.text($0)) } ?? topic(for: pushType)
        try checkCertificate(topic, pushType)
        let limit = gateway?.payloadLimit ?? NotificationRules.sizeLimit(pushType, isOnChannel: isOnChannel)
        // A shortened payload must leave space for the timestamp.
        var payload = try payload(
            of: job, limit: pushType == .liveactivity ? limit - PayloadFacts.longestTimestamp : limit)
        if gateway != nil {
            let refusal = GatewayRules.refusal(
                pushType, isOnChannel: isOnChannel,
                isOwnTopic: job.topic.map { hasTopic(job.text($0)) } ?? true, payload: payload,
                limit: limit)
            if let refusal { throw Reason(refusal.reason, detail: refusal.detail) }
        }
        let subject = NotificationRules.Subject(
            pushType: pushType, priority: given, isOnChannel: isOnChannel,
            topic: NotificationRules.Topic(topic), second: max(firstSeen, job.sendAt ?? 0) / 1000)
        try NotificationRules.check(subject, job.facts, &payload, second: firstSeen / 1000, report: note)
        if job.facts.mayHaveMistakes, readsMistakes || isStrict, !subject.isOfNoApp {
            for mistake in job.mistakes where pushType.isConcerned(by: mistake) { try note(Hint(mistake)) }
        }
        if readsMistakes, job.topic != nil, let hint = suffixHint(topic, pushType) { report(hint) }
        // In one expression, because the compiler copies a large value that is changed afterwards.
        let (deviceToken, broadcast, recipient) = try address(job, topic: topic)
        return Notification(
            deviceToken: deviceToken, payload: payload, topic: topic, pushType: pushType, unknownPushType: unknown,
            priority: NotificationRules.priority(given, pushType, isOnChannel: isOnChannel),
            expiration: expirationSecond(of: job, firstSeen: firstSeen),
            collapseID: collapseID(of: job, identity),
            apnsID: recipient.map { recipient in
                job.apnsID.flatMap { APNSID(job.text($0).readableBytesView) }
                    ?? APNSID(jobID: identity, token: recipient)
            },
            broadcast: broadcast)
    }

    // MARK: Expiration

    /// A call is sent only for this long after its job was due or first seen, in milliseconds, because it must never ring late.
    static let callPatience: Int64 = 30_000

    /// Returns the `apns-expiration` of a job's notifications, in seconds since 1970: from the job, its push type or the app; `nil` for
    /// APNs' default.
    ///
    /// A broadcast must have the header. Every channel accepts 0, "now or never", even if it stores messages. Calls ring at once or not at
    /// all (Apple, "Responding to VoIP notifications from PushKit": "set the apns-expiration […] to 0, or to only a few seconds").
    func expirationSecond(of job: Job, firstSeen: Int64) -> Int64? {
        if let own = job.expirationSecond(firstSeen: firstSeen) { return own }
        if job.channel != nil || isCall(job) { return 0 }
        if let seconds = configuration.expiration {
            return seconds == 0 ? 0 : job.made(firstSeen: firstSeen) / 1000 + Int64(seconds)
        }
        return gateway == nil ? nil : GatewayRules.expiration(firstSeen: firstSeen)
    }

    /// Returns the time when a job's notifications become worthless, in milliseconds since 1970; `nil` for never.
    func end(of job: Job, firstSeen: Int64) -> Int64? {
        if let second = expirationSecond(of: job, firstSeen: firstSeen), second > 0 { return second * 1000 }
        return isCall(job) ? max(firstSeen, job.sendAt ?? 0) + Self.callPatience : nil
    }

    /// True for push types that make a device ring.
    private func isCall(_ job: Job) -> Bool {
        guard let field = job.pushType, field.hasEscapes || lengthsOfCalls >> UInt64(min(63, field.length)) & 1 == 1
        else { return false }
        return job.text(field).withUnsafeReadableBytes { PushType(bytes: $0)?.row.rings ?? false }
    }

    // MARK: Parts

    /// Returns a device token.
    /// - Throws: if it is malformed, or the app's transport can't carry it.
    func deviceToken(_ text: ByteBuffer) throws(Reason) -> DeviceToken {
        let token: DeviceToken
        do throws(DeviceToken.Invalid) {
            token = try DeviceToken(text)
        } catch {
            throw Reason(.malformedToken, detail: "\(error)")
        }
        if gateway != nil, let detail = GatewayRules.refusal(token) { throw Reason(.malformedToken, detail: detail) }
        return token
    }

    /// Returns the device or channel of a job with only one recipient, and its text. For a job with many tokens, the text is `nil`.
    private func address(
        _ job: Job, topic: ByteBuffer
    ) throws(Reason) -> (DeviceToken, BroadcastTarget?, recipient: ByteBuffer?) {
        if let field = job.channel {
            let channelID = job.text(field)
            do throws(BroadcastTarget.Invalid) {
                return (.none, try BroadcastTarget(channelID: channelID, topic: topic), channelID)
            } catch {
                throw Reason(error.reason, detail: "\(error)")
            }
        }
        guard let field = job.token, job.tokens == nil else { return (.none, nil, nil) }
        let token = try deviceToken(job.text(field))
        return (token, nil, token.hex)
    }

    private func collapseID(of job: Job, _ identity: ByteBuffer) -> ByteBuffer? {
        if let own = job.collapseID { return job.text(own) }
        guard job.collapsesDuplicates else { return nil }
        // All devices and all attempts of a job get the same collapse ID.
        return ByteBuffer(string: APNSID(jobID: identity, token: ByteBuffer(string: "collapse")).description)
    }

    private func payload(of job: Job, limit: Int) throws(Reason) -> ByteBuffer {
        guard job.makesPayload else { return job.bytes(job.payload) }
        do throws(JobError) {
            return try job.payload(limit: limit)
        } catch {
            throw Reason(error)
        }
    }

    private func pushType(
        of job: Job, _ report: (Hint) throws(Reason) -> Void
    ) throws(Reason) -> (PushType, UnknownPushType?) {
        guard let field = job.pushType else {
            if let type = job.inferredPushType { return (type, nil) }
            try report(
                .init(
                    .contentChangedPushType,
                    "`content-changed` is for both widgets and controls: set the job's `push_type`; without it the "
                        + "notification is sent as push type alert"))
            return (.alert, nil)
        }
        let text = job.text(field)
        if let type = text.withUnsafeReadableBytes({ PushType(bytes: $0) }) { return (type, nil) }
        // The topic suffix of an unknown push type is unknown, so the job must specify the whole topic.
        guard job.topic != nil, let unknown = UnknownPushType(text) else {
            let known = PushType.allCases.map(\.name).joined(separator: ", ")
            throw Reason(
                APNSReason.invalidPushType,
                detail:
                    "the job's `push_type` is not one of \(known); another type needs a full `topic` in the job")
        }
        try report(
            .init(
                .unknownPushType,
                "this version does not know push type \(String(buffer: unknown.name)); it is sent unchanged, under the "
                    + "job's `topic`"))
        return (.other, unknown)
    }
}

extension RoutedApp {
    /// Returns a hint if the topic of a job looks wrong, for example "com.example.app.voip" for an alert.
    private func suffixHint(_ topic: ByteBuffer, _ pushType: PushType) -> Hint? {
        let text = String(buffer: topic)
        let lower = text.lowercased()
        if let type = PushType.parts(ofTopic: lower).type, type != pushType {
            return Hint(
                .topicSuffix,
                "its `topic` ends in \(type.topicSuffix), as for push type \(type.name), but it is sent as "
                    + "\(pushType.name); set `push_type`")
        }
        if text.contains("*") {
            return Hint(.topicSuffix, "its `topic` has a wildcard, which APNs does not know; write the whole bundle ID")
        }
        if text.wholeMatch(of: /[A-Z0-9]{10}\.[^.]+\..+/) != nil {
            return Hint(.topicSuffix, "its `topic` begins with a team ID; write the bundle ID alone")
        }
        let suffix = pushType.topicSuffix
        guard !suffix.isEmpty, lower.hasSuffix(suffix + suffix) else { return nil }
        let isTwice = text.hasSuffix(suffix + suffix)
        return Hint(
            .topicSuffix,
            isTwice
                ? "its `topic` has the ending \(suffix) twice"
                // The topic had the suffix in another spelling, and the suffix was added.
                : "its `topic` ends in another spelling of \(suffix), so \(suffix) was added; use lower case")
    }
}

extension APNSID {
    /// Creates the `apns-id` of a notification if its job specifies none. It is derived from the job's id and the token, so that every
    /// attempt of any worker sends the same one.
    init(jobID: ByteBuffer, token: ByteBuffer) { self.init(Seed(jobID: jobID), token: token) }

    /// The part of an `apns-id` that all notifications of a job share.
    struct Seed {
        fileprivate let hash: (UInt64, UInt64)

        init(jobID: ByteBuffer) {
            hash = jobID.withUnsafeReadableBytes { APNSID.hash($0, seed: (0x61706E73, 0x776F726B)) }
        }
    }

    init(_ seed: Seed, token: ByteBuffer) {
        self.init(hash: token.withUnsafeReadableBytes { Self.hash($0, seed: seed.hash) })
    }

    /// Returns a 128-bit hash of the bytes (MurmurHash3, x64 variant): fast, evenly distributed, and the same on every machine. It need not
    /// withstand attackers, who could choose the `apns_id` anyway.
    static func hash(_ bytes: UnsafeRawBufferPointer, seed: (UInt64, UInt64)) -> (UInt64, UInt64) {
        let first: UInt64 = 0x87C3_7B91_1142_53D5
        let second: UInt64 = 0x4CF5_AD43_2745_937F
        var (low, high) = seed
        var offset = 0
        while offset + 16 <= bytes.count {
            let one = UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
            let two = UInt64(littleEndian: bytes.loadUnaligned(fromByteOffset: offset + 8, as: UInt64.self))
            low ^= rotated(one &* first, 31) &* second
            low = (rotated(low, 27) &+ high) &* 5 &+ 0x52DC_E729
            high ^= rotated(two &* second, 33) &* first
            high = (rotated(high, 31) &+ low) &* 5 &+ 0x3849_5AB5
            offset += 16
        }
        var tail: (UInt64, UInt64) = (0, 0)
        for (index, byte) in bytes[offset...].enumerated() {
            if index < 8 {
                tail.0 |= UInt64(byte) << UInt64(8 * index)
            } else {
                tail.1 |= UInt64(byte) << UInt64(8 * (index - 8))
            }
        }
        high ^= rotated(tail.1 &* second, 33) &* first
        low ^= rotated(tail.0 &* first, 31) &* second
        low ^= UInt64(bytes.count)
        high ^= UInt64(bytes.count)
        low &+= high
        high &+= low
        low = mixed(low)
        high = mixed(high)
        low &+= high
        high &+= low
        return (low, high)
    }

    private static func rotated(_ value: UInt64, _ bits: UInt64) -> UInt64 { value << bits | value >> (64 - bits) }

    private static func mixed(_ value: UInt64) -> UInt64 {
        var value = value
        value ^= value >> 33
        value &*= 0xFF51_AFD7_ED55_8CCD
        value ^= value >> 33
        value &*= 0xC4CE_B9FE_1A85_EC53
        return value ^ value >> 33
    }
}
