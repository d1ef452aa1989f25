import NIOCore

/// The wrapper of a job that was put back into the queue, read from `{"apns_worker":1,"attempt":2,"id":…,…,"job":<the producer's bytes>}`.
///
/// The bytes from `"job":` to the last `}` are the producer's, unchanged, and need not be JSON: a body that could not be read is wrapped,
/// too. Wrappers never nest. A body that does not begin exactly like a wrapper, or whose head cannot be read, counts as a plain job. The
/// functions of an envelope need the `body` from which it was read.
public struct Envelope: Equatable, Sendable {
    public internal(set) var isWrapped = false
    /// The number of the next attempt; 1 for a fresh job.
    public internal(set) var attempt = 1
    /// The number of times that the job was reclaimed from a lane whose lease had expired.
    public internal(set) var reclaims = 0
    /// The number of times that the job was requeued from the dead letters.
    public internal(set) var requeues: Int32 = 0
    /// The time at which the job was last requeued, in milliseconds since 1970.
    public internal(set) var requeued: Int64?
    /// True if the reservation of the job's `unique_for` must remain after the job has ended, because some of its notifications may have
    /// been delivered, or are separate jobs now.
    public internal(set) var keepsReservation = false
    /// True if an operator has made the job due: its `send_at` no longer counts.
    public internal(set) var isDue = false
    public internal(set) var id: JobField?
    /// The job's first claim, as `<lane>:<number>.<stamp>`; the identity of a job without an id.
    public internal(set) var origin: JobField?
    /// The last failure: a JSON object. A deferral leaves it as it was; `nil` for a job that has not failed.
    public internal(set) var error: JobField?
    /// The reason why the job is deferred: a JSON object. A failure removes it.
    public internal(set) var wait: JobField?
    /// The digests, separated by spaces, of the worker configurations that have refused the job.
    public internal(set) var refused: JobField?
    public internal(set) var claim: JobField?
    /// The time at which the job was first seen, in milliseconds since 1970.
    public internal(set) var enqueued: Int64?
    /// The range of the producer's bytes in the body.
    public internal(set) var original: Range<Int>

    var tokenList: JobTokenList?

    init(original: Range<Int>) { self.original = original }

    /// True if the wrapper lists the remaining tokens, which replace the job's own.
    public var overridesTokens: Bool { tokenList != nil }

    /// Returns the producer's bytes: a slice without a copy.
    public func originalBytes(in body: ByteBuffer) -> ByteBuffer { JobField(original).bytes(in: body) }

    /// Returns the remaining tokens, as decoded text; empty if the wrapper does not list them.
    public func tokens(in body: ByteBuffer) -> [ByteBuffer] {
        guard let tokenList else { return [] }
        return JobTokens(body: body, list: tokenList).map { $0.text(in: body) }
    }

    /// A failure or a deferral, from the wrapper.
    public struct Cause: Sendable, Equatable {
        /// APNs' reason or one of the worker's own.
        public var reason: String?
        /// The HTTP status, or the gateway's code.
        public var status: Int?
        /// In milliseconds since 1970.
        public var at: Int64?
    }

    /// Returns the last failure; `nil` if the job has not failed, or the wrapper's member can't be read.
    public func failure(in body: ByteBuffer) -> Cause? { cause(error, in: body) }

    /// Returns the deferral; `nil` if the job was not deferred since its last failure, or the wrapper's member can't be read.
    public func deferral(in body: ByteBuffer) -> Cause? { cause(wait, in: body) }

    /// Returns ``refused`` as text.
    public func refusals(in body: ByteBuffer) -> String? { refused.map { String(buffer: $0.text(in: body)) } }

    private func cause(_ member: JobField?, in body: ByteBuffer) -> Cause? {
        guard let member else { return nil }
        return body.withUnsafeReadableBytes { try? EnvelopeReader.cause(member.range, in: $0) }
    }

    /// Reads a body's wrapper, if it has one. The job in it is not read, so this works for every body.
    public static func read(_ body: ByteBuffer) -> Envelope {
        body.withUnsafeReadableBytes { read($0) }
    }

    @inline(__always)
    static func read(_ bytes: UnsafeRawBufferPointer) -> Envelope {
        let plain = Envelope(original: 0..<bytes.count)
        guard bytes.count > prefix.utf8CodeUnitCount, bytes[bytes.count - 1] == UInt8(ascii: "}"),
            UnsafeRawBufferPointer(rebasing: bytes[..<prefix.utf8CodeUnitCount]).isEqual(to: prefix)
        else { return plain }
        do throws(JSONError) {
            return try EnvelopeReader.read(bytes, from: prefix.utf8CodeUnitCount) ?? plain
        } catch {
            return plain
        }
    }

    /// The beginning of each wrapper: a member that no producer's job has, with the version of the format.
    public static let prefix: StaticString = #"{"apns_worker":1,"#

    /// Returns the version of the body's wrapper, if it is newer than this program knows; `nil` for any other body.
    static func newerVersion(of bytes: UnsafeRawBufferPointer) -> Int? {
        var scanner = JSONScanner(bytes, in: 0..<bytes.count)
        do throws(JSONError) {
            guard try scanner.enterObject() else { return nil }
            guard UnsafeRawBufferPointer(rebasing: bytes[try scanner.name().range]).isEqual(to: "apns_worker"),
                let version = try scanner.integer(in: 2...Int64(Int32.max)), scanner.next == UInt8(ascii: ",")
            else { return nil }
            return Int(version)
        } catch {
            return nil
        }
    }
}

private enum EnvelopeReader {
    /// Reads the members up to `"job":`.
    /// - Returns: nil if one of them is not as the worker writes it.
    static func read(_ bytes: UnsafeRawBufferPointer, from start: Int) throws(JSONError) -> Envelope? {
        let end = bytes.count - 1
        var scanner = JSONScanner(bytes, in: start..<end)
        var envelope = Envelope(original: 0..<bytes.count)
        envelope.isWrapped = true
        var seen: UInt16 = 0
        while true {
            let memberStart = scanner.offset
            guard scanner.next == UInt8(ascii: "\"") else { return nil }
            let name = UnsafeRawBufferPointer(rebasing: bytes[try scanner.string().range])
            guard scanner.next == UInt8(ascii: ":") else { return nil }
            scanner.offset += 1
            if name.isEqual(to: "job") {
                envelope.original = scanner.offset..<end
                return envelope
            }
            if let member = HeadMember(name: name) {
                let bit: UInt16 = 1 &<< member.rawValue
                guard seen & bit == 0 else { return nil }
                seen |= bit
                guard try readValue(of: member, memberStart, &scanner, into: &envelope) else { return nil }
            } else {
                try scanner.skipValue()
            }
            guard scanner.next == UInt8(ascii: ",") else { return nil }
            scanner.offset += 1
        }
    }

    /// Reads a failure or a deferral that the scanner has validated. Members that the worker would not write are ignored.
    static func cause(_ range: Range<Int>, in bytes: UnsafeRawBufferPointer) throws(JSONError) -> Envelope.Cause {
        var scanner = JSONScanner(bytes, in: range)
        var cause = Envelope.Cause()
        var more = try scanner.enterObject()
        while more {
            let name = UnsafeRawBufferPointer(rebasing: bytes[try scanner.name().range])
            let start = scanner.offset
            switch name {
            case "at": cause.at = try scanner.integer(in: JobTime.range)
            case "status": cause.status = try scanner.integer(in: 0...Int64(Int32.max)).map { Int($0) }
            case "reason" where scanner.next == UInt8(ascii: "\""):
                cause.reason = JSONText.string(try scanner.string(), in: bytes)
            default: break
            }
            if scanner.offset == start { try scanner.skipValue() }
            more = try scanner.nextMember()
        }
        return cause
    }

    private static func readValue(
        of member: HeadMember, _ memberStart: Int, _ scanner: inout JSONScanner, into envelope: inout Envelope
    ) throws(JSONError) -> Bool {
        let start = scanner.offset
        switch member {
        case .id:
            envelope.id = JobField(id: try scanner.stringIfAny(), in: scanner.bytes)
            return envelope.id != nil
        case .origin:
            envelope.origin = try scanner.stringIfAny().map { JobField($0) }
            return envelope.origin != nil
        case .claim:
            envelope.claim = try scanner.stringIfAny().map { JobField($0) }
            return envelope.claim != nil
        case .refused:
            envelope.refused = try scanner.stringIfAny().map { JobField($0) }
            return envelope.refused != nil
        case .tokens:
            envelope.tokenList = try JobTokenList.read(&scanner, memberStart: memberStart)
            return envelope.tokenList != nil
        case .error, .wait:
            guard scanner.next == UInt8(ascii: "{") else { return false }
            try scanner.skipValue()
            let place = JobField(start..<scanner.offset)
            if member == .error { envelope.error = place } else { envelope.wait = place }
        case .attempt:
            guard let attempt = try scanner.integer(in: 1...Int64(Int32.max)) else { return false }
            envelope.attempt = Int(attempt)
        case .reclaims:
            guard let reclaims = try scanner.integer(in: 0...Int64(Int32.max)) else { return false }
            envelope.reclaims = Int(reclaims)
        case .requeues:
            guard let requeues = try scanner.integer(in: 0...Int64(Int32.max)) else { return false }
            envelope.requeues = Int32(requeues)
        case .requeued:
            envelope.requeued = try scanner.integer(in: JobTime.range)
            return envelope.requeued != nil
        case .enqueued:
            envelope.enqueued = try scanner.integer(in: JobTime.range)
            return envelope.enqueued != nil
        case .reserved:
            // The worker writes `reserved` only if it is true.
            guard scanner.next == UInt8(ascii: "t") else { return false }
            try scanner.skipLiteral()
            envelope.keepsReservation = true
        case .due:
            envelope.isDue = scanner.next == UInt8(ascii: "t")
            try scanner.skipValue()
        }
        return true
    }

    /// The members that may appear only once.
    private enum HeadMember: UInt16 {
        case id, origin, attempt, reclaims, requeues, requeued, tokens, error, wait, refused, claim, enqueued, reserved,
            due

        init?(name: UnsafeRawBufferPointer) {
            switch name {
            case "id": self = .id
            case "origin": self = .origin
            case "attempt": self = .attempt
            case "reclaims": self = .reclaims
            case "requeues": self = .requeues
            case "requeued": self = .requeued
            case "tokens": self = .tokens
            case "error": self = .error
            case "wait": self = .wait
            case "refused": self = .refused
            case "claim": self = .claim
            case "enqueued": self = .enqueued
            case "reserved": self = .reserved
            case "due": self = .due
            default: return nil
            }
        }
    }
}
