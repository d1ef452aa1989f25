/// Reads the members of a job's object into a ``Job``.
///
/// An error in the JSON is thrown; a rule that the job breaks is returned, so that each function throws one kind of error.
struct JobReader {
    private var scanner: JSONScanner
    private let document: Range<Int>
    private let ignoresTokens: Bool
    private let hasOtherID: Bool
    private var seen: UInt64 = 0
    private var hasPayload = false
    /// The short forms that are present and not null.
    private var shortForms: UInt64 = 0
    /// The offset of a relevance score that only Live Activities can have.
    private var wideScore: Int?
    /// The offset of custom members that include `mdm`.
    private var customMDM: Int?

    /// - Parameters:
    ///   - scanner: at the start of the producer's bytes.
    ///   - ignoresTokens: true if a wrapper lists the tokens to send to, so that the job's own are ignored.
    ///   - hasOtherID: true if the job has an id outside of this object, such as Sidekiq's `jid`.
    init(_ scanner: JSONScanner, ignoresTokens: Bool, hasOtherID: Bool = false) {
        self.scanner = scanner
        document = scanner.offset..<scanner.end
        self.ignoresTokens = ignoresTokens
        self.hasOtherID = hasOtherID
    }

    /// Reads the whole document.
    /// - Parameter memory: recognizes a payload that was read before; nil to read it in any case.
    /// - Returns: the first rule that it breaks, or nil.
    mutating func readDocument(into job: inout Job, _ memory: PayloadMemory?) throws(JSONError) -> JobError? {
        try scanner.begin()
        guard scanner.next == UInt8(ascii: "{") else {
            return .notAnObject(offset: scanner.offset)
        }
        var more = try scanner.enterObject()
        while more {
            let nameStart = scanner.offset
            let name = try scanner.name()
            if let member = member(named: name) {
                let bit: UInt64 = 1 &<< UInt64(member.rawValue)
                guard seen & bit == 0 else { return .duplicateMember(member, offset: nameStart) }
                seen |= bit
                let start = scanner.offset
                if scanner.next == UInt8(ascii: "n") {
                    // An absent member and `null` are the same: many encoders write every member.
                    try scanner.skipLiteral()
                } else {
                    guard try readValue(of: member, nameStart: nameStart, into: &job, memory) else {
                        return invalid(member, at: start)
                    }
                }
            } else {
                readOther(name, into: &job)
                try scanner.skipValue()
            }
            more = try scanner.nextMember()
        }
        try scanner.finish()
        if shortForms != 0, !hasPayload {
            job.facts.compose(hasAPS: !job.traits.contains(.mdm) || shortForms & Self.apsBits != 0)
        }
        return brokenRule(of: &job)
    }

    /// Records an unknown name, unless it sets an environment as other systems do: `"sandbox":true`. False means nothing, because many
    /// encoders write every flag.
    private func readOther(_ name: JSONString, into job: inout Job) {
        let (hash, environment) = JSONText.withCharacters(of: name, in: scanner.bytes) { name in
            (name.nameHash, JobTraits(environment: name))
        }
        if let environment, scanner.next == UInt8(ascii: "t") {
            job.traits.insert(environment)
        } else {
            job.otherNames ^= hash
        }
    }

    private static let apsBits = JobMember.apsMembers.reduce(0 as UInt64) { $0 | 1 &<< UInt64($1.rawValue) }

    private func invalid(_ member: JobMember, at start: Int) -> JobError {
        .invalidMember(
            member, offset: start,
            MistakeFinder.mistake(of: member, JSONScanner(scanner.bytes, in: start..<scanner.end)))
    }

    /// Reads the members that identify a job, and steps over all other members and over invalid values.
    /// - Throws: the error in the JSON. The members before it have been read.
    mutating func readIdentity(into job: inout Job) throws(JSONError) {
        try scanner.begin()
        guard scanner.next == UInt8(ascii: "{") else { return }
        var more = try scanner.enterObject()
        while more {
            let nameStart = scanner.offset
            let name = try scanner.name()
            if let member = member(named: name), member.identifies, seen & 1 &<< UInt64(member.rawValue) == 0,
                scanner.next == UInt8(ascii: "\"") || member == .labels
            {
                seen |= 1 &<< UInt64(member.rawValue)
                let before = job
                if try !readValue(of: member, nameStart: nameStart, into: &job, nil) { job = before }
            } else if member(named: name) == .id, let number = try numberedID() {
                // A number is not a valid ID, but the producer knows the job by it.
                if job.id == nil { job.id = number }
            } else {
                try scanner.skipValue()
            }
            more = try scanner.nextMember()
        }
    }

    /// Steps over an ID that is a number.
    private mutating func numberedID() throws(JSONError) -> JobField? {
        let start = scanner.offset
        guard try scanner.number() != nil, scanner.offset - start <= 255 else { return nil }
        return JobField(start..<scanner.offset)
    }

    /// Returns the first broken rule between members. The job is `inout`, because passing it would copy it.
    private func brokenRule(of job: inout Job) -> JobError? {
        if job.channel != nil {
            if job.token != nil { return .channelAndToken(.token) }
            if job.tokenList != nil { return .channelAndToken(.tokens) }
        } else {
            if job.token == nil, job.tokenList == nil {
                return .missingToken(found: instead(of: [.token, .tokens, .channel]))
            }
            if job.token != nil, job.tokenList != nil { return .tokenAndTokens }
        }
        if shortForms != 0 {
            if let error = brokenShortForm(of: job) { return error }
        } else if !hasPayload {
            return .missingPayload(found: instead(of: [.payload, .alert, .custom]))
        }
        if job.uniqueFor != nil, job.replaces != nil { return .replacesAndUniqueFor }
        // A `jid` does not count as an id here: it differs for every job, so `unique_for` would have no effect.
        if job.uniqueFor != nil, job.id == nil { return .missingID(.uniqueFor) }
        if job.replaces != nil, job.id == nil, !hasOtherID { return .missingID(.replaces) }
        // An invalid `fair` is ignored, and so is its rate.
        let hasFair = job.fair != nil || job.traits.contains(.ignored(.fair))
        return job.fairPerSecond != nil && !hasFair ? .missingFair : nil
    }

    private func brokenShortForm(of job: Job) -> JobError? {
        if hasPayload {
            let isOwnData = !job.facts.hasAPS && !job.facts.named.contains(.mdm)
            return JobMember(rawValue: UInt8(shortForms.trailingZeroBitCount)).map {
                .payloadAndShortForm($0, isOwnData: isOwnData)
            }
        }
        if let wideScore, !isLiveActivity(job) { return invalid(.relevanceScore, at: wideScore) }
        if let customMDM, job.traits.contains(.mdm) { return invalid(.custom, at: customMDM) }
        return nil
    }

    private func instead(of members: Set<JobMember>) -> String? {
        ForeignJob.instead(of: members, scanner.bytes, in: document)
    }

    private func isLiveActivity(_ job: Job) -> Bool {
        if let type = job.pushType {
            let string = JSONString(range: type.range, hasEscapes: type.hasEscapes)
            return JSONText.withCharacters(of: string, in: scanner.bytes) { $0.isEqual(to: "liveactivity") }
        }
        return job.inferredPushType == .liveactivity
    }

    @inline(__always)
    private func member(named name: JSONString) -> JobMember? {
        let member = JSONText.withCharacters(of: name, in: scanner.bytes) { JobMember(name: $0) }
        if ignoresTokens, member == .token || member == .tokens { return nil }
        return member
    }

    /// Reads a known member's value.
    /// - Returns: false if it has the wrong type or is out of range.
    private mutating func readValue(
        of member: JobMember, nameStart: Int, into job: inout Job, _ memory: PayloadMemory?
    ) throws(JSONError) -> Bool {
        switch member {
        case .payload:
            let start = scanner.offset
            guard scanner.next == UInt8(ascii: "{") else {
                guard try scanner.skipEmptyArray() else { return false }
                job.traits.insert(.emptyPayload)
                job.facts.mayHaveMistakes = true
                job.payload = JobField(start..<scanner.offset)
                hasPayload = true
                return true
            }
            if let memory, shortForms == 0 {
                try memory.read(&scanner, &job.facts)
            } else {
                try job.facts.readPayload(&scanner)
            }
            job.payload = JobField(start..<scanner.offset)
            hasPayload = true
        case .tokens:
            guard let list = try JobTokenList.read(&scanner, memberStart: nameStart) else { return false }
            job.tokenList = list
        case .priority:
            guard let priority = try scanner.integer(in: 1...10), priority == 1 || priority == 5 || priority == 10
            else { return false }
            job.priority = Int(priority)
        case .maxAttempts:
            guard let attempts = try scanner.integer(in: 1...1000) else { return false }
            job.maxAttempts = Int(attempts)
        case .expiration:
            job.expiration = try expiration()
            return job.expiration != nil
        case .uniqueFor:
            guard let seconds = try duration(), DurationText.uniqueFor.contains(seconds) else { return false }
            job.uniqueFor = seconds * 1000
        case .sendAt:
            job.sendAt = try JobTime.read(&scanner)
            return job.sendAt != nil
        case .registeredAt:
            job.registeredAt = try JobTime.read(&scanner)
            return job.registeredAt != nil
        case .enqueuedAt:
            guard let time = try JobTime.read(&scanner) else { return false }
            job.enqueuedAt = time
        case .id, .token, .app, .topic, .pushType, .collapseID, .apnsID, .onUncertain:
            guard scanner.next == UInt8(ascii: "\"") else { return false }
            return assign(try scanner.string(), to: member, of: &job)
        default:
            return try readNewer(member, into: &job)
        }
        return true
    }

    /// Reads the members that few jobs have, in a function that is not inlined into the one for common members.
    @inline(never)
    private mutating func readNewer(_ member: JobMember, into job: inout Job) throws(JSONError) -> Bool {
        switch member {
        case .channel:
            guard scanner.next == UInt8(ascii: "\"") else { return false }
            let string = try scanner.string()
            job.channel = JobField(string)
            return JSONText.withCharacters(of: string, in: scanner.bytes, MemberRules.isChannelID)
        case .traceparent:
            // Accepts any value, because an invalid trace must not keep a job from being sent. It is validated when it is used.
            guard scanner.next == UInt8(ascii: "\"") else {
                job.traits.insert(.ignored(.traceparent))
                try scanner.skipValue()
                return true
            }
            job.traceparent = JobField(try scanner.string())
            return true
        // Producers may have used these names before they had a meaning: an invalid value must not keep a job from being sent.
        case .campaign: job.campaign = try name(of: member, &job.traits)
        case .fair: job.fair = try name(of: member, &job.traits)
        case .replaces: job.replaces = try name(of: member, &job.traits)
        case .keepResult, .urgent:
            switch scanner.next {
            case UInt8(ascii: "t"): job.traits.insert(member == .urgent ? .urgent : .keepResult)
            case UInt8(ascii: "f"): break
            default: job.traits.insert(.ignored(member))
            }
            try scanner.skipValue()
        case .environment:
            if let text = try scanner.stringIfAny(),
                let environment = JSONText.withCharacters(of: text, in: scanner.bytes, { JobTraits(environment: $0) })
            {
                job.traits.insert(environment)
            } else {
                job.traits.insert(.ignored(member))
            }
        case .labels:
            let start = scanner.offset
            if try scanner.skipEmptyArray() { return true }
            let areValid = try JobLabels.skip(&scanner)
            if areValid {
                job.labels = JobField(start..<scanner.offset)
            } else {
                job.traits.insert(.ignored(member))
            }
            return true
        case .fairPerSecond:
            job.fairPerSecond = try scanner.integer(in: 1...1_000_000).map { Int($0) }
            return job.fairPerSecond != nil
        case .truncate, .collapseDuplicates:
            guard scanner.next == UInt8(ascii: "t") || scanner.next == UInt8(ascii: "f") else { return false }
            if scanner.next == UInt8(ascii: "t") {
                job.traits.insert(member == .truncate ? .truncate : .collapseDuplicates)
            }
            try scanner.skipLiteral()
            return true
        default: return try readShortForm(member, into: &job)
        }
        return true
    }

    /// Reads a `campaign`, a `fair` or a `replaces`, which have the same rules.
    private mutating func name(of member: JobMember, _ traits: inout JobTraits) throws(JSONError) -> JobField? {
        if let name = try scanner.stringIfAny(), JobLabels.isCampaign(name, in: scanner.bytes) { return JobField(name) }
        traits.insert(.ignored(member))
        return nil
    }

    private mutating func readShortForm(_ member: JobMember, into job: inout Job) throws(JSONError) -> Bool {
        let start = scanner.offset
        shortForms |= 1 &<< UInt64(member.rawValue)
        job.traits.insert(.shortForms)
        guard let payloadMember = member.payloadMember else { return try readCustom(into: &job) }
        if member == .mdm { job.traits.insert(.mdm) }
        guard try job.facts.read(payloadMember, as: .job, &scanner) != .invalid else { return false }
        if member == .relevanceScore, job.facts.hasWideScore { wideScore = start }
        return true
    }

    /// Steps over an object without a member `aps`.
    private mutating func readCustom(into job: inout Job) throws(JSONError) -> Bool {
        let start = scanner.offset
        if try scanner.skipEmptyArray() { return true }
        guard scanner.next == UInt8(ascii: "{") else { return false }
        guard let hasMDM = try job.facts.readCustom(&scanner) else { return false }
        if hasMDM { customMDM = start }
        return true
    }

    private func assign(_ string: JSONString, to member: JobMember, of job: inout Job) -> Bool {
        let bytes = scanner.bytes
        let field = JobField(string)
        switch member {
        case .id:
            // A wrapper's id has priority: it may have been made for a job without an id.
            if job.id == nil { job.id = field }
            return MemberRules.isIdentifier(string, in: bytes)
        case .token:
            job.token = field
            return true
        case .app:
            job.app = field
            return MemberRules.isIdentifier(string, in: bytes)
        case .topic:
            job.topic = field
            return MemberRules.isHeaderValue(string, in: bytes)
        case .pushType:
            job.pushType = field
            return MemberRules.isHeaderValue(string, in: bytes)
        case .collapseID:
            job.collapseID = field
            return MemberRules.isCollapseID(string, in: bytes)
        case .apnsID:
            job.apnsID = field
            return MemberRules.isUUID(string, in: bytes)
        case .onUncertain:
            return JSONText.withCharacters(of: string, in: bytes) { text in
                if text.isEqual(to: "drop") {
                    job.onUncertain = .drop
                    return true
                }
                return text.isEqual(to: "resend")
            }
        default:
            return false
        }
    }

    private mutating func expiration() throws(JSONError) -> Expiration? {
        guard scanner.next == UInt8(ascii: "\"") else {
            return try scanner.integer(in: 0...JobTime.latestSecond).map { .epoch($0) }
        }
        return JSONText.withCharacters(of: try scanner.string(), in: scanner.bytes) { text in
            if let seconds = DurationText.seconds(text) { return .after(seconds: seconds) }
            return JobTime.iso8601(text).map { .epoch($0 / 1000) }
        }
    }

    private mutating func duration() throws(JSONError) -> Int64? {
        guard scanner.next == UInt8(ascii: "\"") else { return nil }
        return JSONText.withCharacters(of: try scanner.string(), in: scanner.bytes) { DurationText.seconds($0) }
    }
}
