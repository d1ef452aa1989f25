import NIOCore
import PrintableText
import PushJob

/// A job without an ID and tokens: the text that all jobs of a campaign have in common.
struct JobTemplate {
    /// The members that are made for each job.
    private static let made: [JobMember] = [.id, .token, .tokens, .channel, .apnsID]

    private let campaign: String
    /// The time to send the jobs, in milliseconds since 1970.
    private let sendAt: Int64?
    /// The text after the opening brace.
    private let rest: ByteBuffer
    private let names: Set<String>
    /// True if the jobs have a time to be sent.
    var isScheduled: Bool { sendAt != nil || names.contains("\(JobMember.sendAt.name)") }

    /// True if the jobs replace those of an older campaign.
    var replaces: Bool { names.contains("\(JobMember.replaces.name)") }

    /// - Parameter sendAt: the time to send the jobs, in addition to the members of the text.
    /// - Throws: ``Mistake``.
    init(_ text: ByteBuffer, campaign: String, sendAt: Int64?) throws(Mistake) {
        (self.campaign, self.sendAt) = (campaign, sendAt)
        let members: (names: [String: String], start: Int)
        do throws(JSONError) {
            members = try text.withUnsafeReadableBytes { bytes throws(JSONError) in try Self.members(bytes) }
        } catch {
            throw Mistake(error.kind == .expectedValue ? "it is not a JSON object" : "\(error)")
        }
        names = Set(members.names.keys)
        for member in Self.made where names.contains("\(member.name)") {
            throw Mistake("it has the member \(member.name), which is made for each job; remove it")
        }
        if let own = members.names["\(JobMember.campaign.name)"], own != campaign {
            throw Mistake("its member campaign is not \(campaign.printable); remove it")
        }
        if sendAt != nil, names.contains("\(JobMember.sendAt.name)") {
            throw Mistake("it has the member send_at; remove it, or omit --at")
        }
        // A file ends with a line feed, which a job in Redis does not need.
        let end = text.readableBytesView.lastIndex(of: UInt8(ascii: "}")) ?? text.readableBytesView.endIndex - 1
        rest = ByteBuffer(bytes: text.readableBytesView[...end].dropFirst(members.start))
    }

    /// Returns the names of the members with the texts of their values, if these are strings, and the offset after the opening brace.
    private static func members(
        _ bytes: UnsafeRawBufferPointer
    ) throws(JSONError) -> (names: [String: String], start: Int) {
        var scanner = JSONScanner(bytes)
        try scanner.begin()
        guard scanner.next == UInt8(ascii: "{") else { throw scanner.error(.expectedValue) }
        let start = scanner.offset + 1
        var names: [String: String] = [:]
        var more = try scanner.enterObject()
        while more {
            let name = try scanner.name()
            let text = JSONText.withCharacters(of: name, in: bytes) { String(decoding: $0, as: UTF8.self) }
            if scanner.next == UInt8(ascii: "\"") {
                let value = try scanner.string()
                names[text] = JSONText.withCharacters(of: value, in: bytes) { String(decoding: $0, as: UTF8.self) }
            } else {
                try scanner.skipValue()
                names[text] = ""
            }
            more = try scanner.nextMember()
        }
        try scanner.finish()
        return (names, start)
    }

    /// Returns the ID of a job.
    /// - Parameter number: the number of jobs before it.
    func id(_ number: Int) -> String { "\(campaign)-\((number + 1).digits(6))" }

    /// Makes a job.
    /// - Parameters:
    ///   - number: the number of jobs before it.
    ///   - now: milliseconds since 1970.
    ///   - tokens: writes the tokens, in quotes and separated by commas.
    func job(
        _ number: Int, size: Int, now: Int64, tokens: (inout ByteBuffer) throws -> Void
    ) rethrows -> ByteBuffer {
        var job = ByteBuffer()
        job.reserveCapacity(size)
        job.writeString(#"{"id":"#)
        job.writeJSONString(id(number))
        if !names.contains("\(JobMember.campaign.name)") {
            job.writeString(#","campaign":"#)
            job.writeJSONString(campaign)
        }
        if !names.contains("\(JobMember.enqueuedAt.name)") {
            job.writeString(#","enqueued_at":"#)
            job.writeJSONSeconds(now)
        }
        if let sendAt {
            job.writeString(#","send_at":"#)
            job.writeJSONSeconds(sendAt)
        }
        job.writeString(#","tokens":["#)
        try tokens(&job)
        job.writeString(names.isEmpty ? "]" : "],")
        job.writeImmutableBuffer(rest)
        return job
    }

    /// Returns the first job, with an example token.
    func example(now: Int64) -> ByteBuffer {
        job(0, size: 4096, now: now) { text in
            text.writeString("\"00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0\"")
        }
    }
}
