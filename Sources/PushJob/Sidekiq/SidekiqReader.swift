import NIOCore

/// Finds the job in the JSON of Sidekiq or Resque.
///
/// Unusable values of other members are not mistakes: they were not written for this worker.
struct SidekiqReader {
    private var scanner: JSONScanner
    private var className: JSONString?
    private var wrappedClass: JSONString?
    private var jid: JSONString?
    private var createdAt: Int64?
    private var enqueuedAt: Int64?
    private var maxAttempts: Int?
    private var argument: Range<Int>?
    private var hasArguments = false
    private var hasTwoArguments = false
    private var isEncrypted = false

    private init(_ scanner: JSONScanner) { self.scanner = scanner }

    /// Finds the job in a body.
    /// - Parameters:
    ///   - envelope: the body's wrapper.
    ///   - classes: the classes that are accepted; empty to accept all.
    /// - Throws: ``JobError/malformedJSON(_:_:)``, ``JobError/notSidekiq(_:)``, ``JobError/otherClass(_:accepted:)`` or
    ///   ``JobError/newerWrapper(version:)``.
    static func find(
        in body: ByteBuffer, _ envelope: Envelope, _ classes: [String] = []
    ) throws(JobError) -> SidekiqJob {
        try body.withUnsafeReadableBytes { bytes throws(JobError) in
            let result: Result<SidekiqJob, SidekiqMistake>
            do throws(JSONError) {
                result = try read(bytes, in: envelope.original)
            } catch {
                let foreign = ForeignText.recognize(bytes, in: envelope.original, isJSON: false)
                throw .malformedJSON(error, foreign).offset(by: envelope.original.lowerBound)
            }
            switch result {
            case .failure(let mistake):
                if let version = Envelope.newerVersion(of: bytes) { throw .newerWrapper(version: version) }
                throw .notSidekiq(mistake)
            case .success(let job):
                guard job.isOf(classes, in: bytes) else {
                    throw .otherClass(job.printableClass(in: bytes), accepted: classes)
                }
                return job
            }
        }
    }

    /// Throws errors in the JSON, and returns other mistakes.
    /// - Parameters:
    ///   - bytes: the claimed bytes.
    ///   - range: the range of the producer's bytes in them.
    private static func read(
        _ bytes: UnsafeRawBufferPointer, in range: Range<Int>
    ) throws(JSONError) -> Result<SidekiqJob, SidekiqMistake> {
        var reader = SidekiqReader(JSONScanner(bytes, in: range))
        guard let mistake = try reader.readDocument() else { return try reader.job() }
        // The reader stopped at the mistake. If the text is not JSON, the error in the JSON must be reported, wherever it is.
        var scanner = JSONScanner(bytes, in: range)
        try scanner.skipDocument()
        return .failure(mistake)
    }

    /// Returns the ID of a job that may not be valid in this format: Sidekiq's `jid`, or ActiveJob's `job_id`.
    static func id(_ bytes: UnsafeRawBufferPointer, in range: Range<Int>) throws(JSONError) -> JSONString? {
        var reader = SidekiqReader(JSONScanner(bytes, in: range))
        _ = try reader.readDocument()
        if let jid = reader.jid { return jid }
        guard let argument = reader.argument, bytes[argument.lowerBound] == UInt8(ascii: "{") else { return nil }
        return try ActiveJobMembers.read(bytes, in: argument)?.id
    }

    private mutating func readDocument() throws(JSONError) -> SidekiqMistake? {
        try scanner.begin()
        guard scanner.next == UInt8(ascii: "{") else { return .notAnObject }
        var more = try scanner.enterObject()
        while more {
            switch Member(try scanner.name(), in: scanner.bytes) {
            case .className: className = try scanner.stringIfAny()
            case .wrapped: wrappedClass = try scanner.stringIfAny()
            case .jid: jid = try scanner.stringIfAny()
            case .createdAt: createdAt = try time()
            case .enqueuedAt: enqueuedAt = try time()
            case .retry: maxAttempts = try attempts()
            case .encrypt:
                isEncrypted = scanner.next == UInt8(ascii: "t")
                try scanner.skipValue()
            case .args:
                if hasArguments { hasTwoArguments = true }
                hasArguments = true
                argument = try scanner.firstElement()
            case .other: try scanner.skipValue()
            }
            more = try scanner.nextMember()
        }
        try scanner.finish()
        if hasTwoArguments { return .twoArguments }
        if className == nil { return .noClass }
        return argument == nil ? .noArguments : nil
    }

    private func job() throws(JSONError) -> Result<SidekiqJob, SidekiqMistake> {
        guard let className, let argument else { return .failure(.noArguments) }
        if isEncrypted, scanner.bytes[argument.lowerBound] != UInt8(ascii: "{") {
            return .failure(.encrypted)
        }
        var job = SidekiqJob(
            className: className, wrappedClass: wrappedClass, id: jid, enqueuedAt: enqueuedAt ?? createdAt,
            maxAttempts: maxAttempts, argument: argument)
        if scanner.bytes[argument.lowerBound] == UInt8(ascii: "{") {
            if let inner = try ActiveJobMembers.read(scanner.bytes, in: argument) {
                guard let first = inner.argument else { return .failure(.noActiveJobArguments) }
                job.isActiveJob = true
                job.argument = first
                job.wrappedClass = job.wrappedClass ?? inner.className
                job.id = job.id ?? inner.id
                job.enqueuedAt = job.enqueuedAt ?? inner.enqueuedAt
            }
        }
        switch scanner.bytes[job.argument.lowerBound] {
        case UInt8(ascii: "{"), UInt8(ascii: "\""): return .success(job)
        default: return .failure(.notAJob)
        }
    }

    private enum Member {
        case className, wrapped, jid, createdAt, enqueuedAt, retry, encrypt, args, other

        init(_ name: JSONString, in bytes: UnsafeRawBufferPointer) {
            self = JSONText.withCharacters(of: name, in: bytes) { name in
                switch name {
                case "class": .className
                case "args": .args
                case "jid": .jid
                case "enqueued_at": .enqueuedAt
                case "created_at": .createdAt
                case "retry": .retry
                case "encrypt": .encrypt
                case "wrapped": .wrapped
                default: .other
                }
            }
        }
    }

    private mutating func time() throws(JSONError) -> Int64? {
        guard let number = try scanner.number() else {
            try scanner.skipValue()
            return nil
        }
        // Seconds that would be beyond the year 9999 are milliseconds.
        return JobTime.seconds(number)
            ?? JSONNumber.value(of: number, decimals: 0, exact: false).flatMap { JobTime.range.contains($0) ? $0 : nil }
    }

    private mutating func attempts() throws(JSONError) -> Int? {
        let isNever = scanner.next == UInt8(ascii: "f")
        guard let number = try scanner.number() else {
            try scanner.skipValue()
            return isNever ? 1 : nil
        }
        guard let retries = JSONNumber.value(of: number, decimals: 0, exact: true), retries >= 0 else { return nil }
        return Int(min(retries, 999)) + 1
    }

    // MARK: The tokens of a rewritten job

    /// Returns the range of the list of tokens in the claimed bytes, with one comma beside it, for a job that was rewritten to be read. It
    /// reads the claimed bytes again: only a job that is split needs this range, so the decoder does not record it.
    /// - Parameters:
    ///   - list: the place of the list in the rewritten text.
    ///   - bytes: the claimed bytes, and the rewritten text after them.
    ///   - document: the range of the rewritten text.
    ///   - original: the range of the producer's bytes.
    /// - Returns: `nil` if the claimed bytes do not contain the list.
    static func tokensMember(
        _ list: JobTokenList, in bytes: UnsafeRawBufferPointer, rewritten document: Range<Int>,
        from original: Range<Int>
    ) -> Range<Int>? {
        guard case .success(let sidekiq)? = try? read(bytes, in: original) else { return nil }
        if sidekiq.isActiveJob, bytes[sidekiq.argument.lowerBound] == UInt8(ascii: "{") {
            let claimed = try? tokenList(in: bytes, sidekiq.argument)
            return claimed.map { $0.rangeToCut(in: bytes, of: sidekiq.argument) }
        }
        // The argument is a string whose decoded text is the rewritten text. So offsets are converted to offsets in the string as written.
        let cut = list.rangeToCut(in: bytes, of: document)
        let raw = UnsafeRawBufferPointer(rebasing: bytes[..<(sidekiq.argument.upperBound - 1)])
        let start = JSONText.offset(
            in: raw, after: cut.lowerBound - document.lowerBound, from: sidekiq.argument.lowerBound + 1)
        return start..<JSONText.offset(in: raw, after: cut.count, from: start)
    }

    private static func tokenList(
        in bytes: UnsafeRawBufferPointer, _ range: Range<Int>
    ) throws(JSONError) -> JobTokenList? {
        var scanner = JSONScanner(bytes, in: range)
        var more = try scanner.enterObject()
        while more {
            let memberStart = scanner.offset
            let name = try scanner.name()
            if JSONText.withCharacters(of: name, in: bytes, { $0.isEqual(to: "tokens") }),
                scanner.next == UInt8(ascii: "[")
            {
                return try JobTokenList.read(&scanner, memberStart: memberStart)
            }
            try scanner.skipValue()
            more = try scanner.nextMember()
        }
        return nil
    }
}

/// The members of a job that ActiveJob has serialized: `{"job_class":…,"job_id":…,"arguments":[…],"enqueued_at":…}`.
private struct ActiveJobMembers {
    var className: JSONString?
    var id: JSONString?
    var enqueuedAt: Int64?
    var argument: Range<Int>?

    /// - Returns: nil for an object that is not ActiveJob's.
    static func read(_ bytes: UnsafeRawBufferPointer, in range: Range<Int>) throws(JSONError) -> ActiveJobMembers? {
        var scanner = JSONScanner(bytes, in: range)
        var members = ActiveJobMembers()
        var hasArguments = false
        var more = try scanner.enterObject()
        while more {
            let name = try scanner.name()
            switch JSONText.withCharacters(of: name, in: bytes, Self.place) {
            case 0: members.className = try scanner.stringIfAny()
            case 1: members.id = try scanner.stringIfAny()
            case 2:
                hasArguments = true
                members.argument = try scanner.firstElement()
            case 3:
                let text = try scanner.stringIfAny()
                members.enqueuedAt = text.flatMap {
                    JSONText.withCharacters(of: $0, in: bytes) { JobTime.iso8601($0) }
                }
            default: try scanner.skipValue()
            }
            more = try scanner.nextMember()
        }
        return hasArguments && members.className != nil ? members : nil
    }

    private static func place(_ name: UnsafeRawBufferPointer) -> Int? {
        if name.isEqual(to: "job_class") { return 0 }
        if name.isEqual(to: "job_id") { return 1 }
        if name.isEqual(to: "arguments") { return 2 }
        return name.isEqual(to: "enqueued_at") ? 3 : nil
    }
}
