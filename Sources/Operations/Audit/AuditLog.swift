import PrintableText
import PushQueue
import Redis

/// An action of an operator, as the audit log records it.
package struct AuditEntry: Sendable, Equatable {
    /// The actions of operators. The raw value is the spelling in Redis.
    package enum Action: String, CaseIterable, Sendable {
        // Queues and apps.
        case pause, resume
        // Workers.
        case quiet, work, stop
        // Jobs.
        case cancelJobs = "cancel_jobs"
        case uncancelJobs = "uncancel_jobs"
        case runJobs = "run_jobs"
        case moveJobs = "move_jobs"
        // Dead letters.
        case requeue
        case deleteDeadLetters = "delete_dead_letters"
        case editAndRequeue = "edit_and_requeue"
        // Campaigns.
        case sendCampaign = "send_campaign"
        case cancelCampaign = "cancel_campaign"
        case pauseCampaign = "pause_campaign"
        case resumeCampaign = "resume_campaign"
        case limitCampaign = "limit_campaign"
        case requeueCampaign = "requeue_campaign"
        case guardCampaign = "guard_campaign"
        // Invalid tokens.
        case addInvalidTokens = "add_invalid_tokens"
        case removeInvalidTokens = "remove_invalid_tokens"
        case reshardInvalidTokens = "reshard_invalid_tokens"
        // Devices.
        case forgetDevices = "forget_devices"
        // Tests.
        case testSend = "test_send"
    }

    package enum Ending: String, CaseIterable, Sendable {
        case done
        /// Nothing was changed, because the state or the fields did not allow it.
        case refused
        /// An error ended the action. A part of it may be done.
        case failed
    }

    package enum Interface: String, CaseIterable, Sendable {
        case cli, web
        /// A worker that applied the guard of a campaign.
        case worker
    }

    /// The ID of the entry in the stream, for paging. Empty until the entry is recorded.
    package internal(set) var id = ""
    /// The time in milliseconds since 1970, by Redis' clock. 0 until the entry is recorded.
    package internal(set) var at: Int64 = 0
    /// The operator: a user's name, perhaps with a host.
    package let by: String
    /// `nil` for an action that this version does not know.
    package var action: Action? { Action(rawValue: actionName) }
    /// The spelling of the action in Redis.
    package let actionName: String
    /// The object of the action: a queue, an app, a worker, a campaign, or a filter in words.
    package let subject: String
    /// The number of jobs, dead letters or tokens that were changed, if the action counts any.
    package let count: Int?
    /// Usually the operator's reason.
    package let detail: String?
    /// `nil` for an ending that this version does not know.
    package let ending: Ending?
    /// `nil` for an interface that this version does not know.
    package let via: Interface?

    /// Makes texts printable, shortens them, and masks everything that looks like a device token.
    package init(
        _ action: Action, _ subject: String, by: String, count: Int? = nil, detail: String? = nil,
        ending: Ending = .done, via: Interface
    ) {
        self.init(
            actionName: action.rawValue, subject, by: by, count: count, detail: detail, ending: ending, via: via)
    }

    private init(
        actionName: String, _ subject: String, by: String, count: Int?, detail: String?, ending: Ending?,
        via: Interface?
    ) {
        self.ending = ending
        self.actionName = Self.clean(actionName, atMost: Self.maximumName)
        self.by = Self.clean(by, atMost: Self.maximumName)
        self.subject = Self.clean(subject, atMost: Self.maximumText)
        self.count = count
        self.detail = detail.map { Self.clean($0, atMost: Self.maximumText) }.flatMap { $0.isEmpty ? nil : $0 }
        self.via = via
    }

    // MARK: Texts

    /// The maximum lengths, in Unicode scalars.
    private static let maximumName = 100
    private static let maximumText = 500
    /// Unicode scalars beyond this number are cut off before a text is processed.
    private static let maximumInput = 10_000
    /// Hexadecimal numbers with at least this many digits are masked as device tokens. Job IDs have at most 32 digits.
    private static let tokenDigits = 40

    /// Removes unprintable characters. Shortens each device token, in hex or base64, to eight characters, because `viewer` users see the
    /// text.
    package static func maskingTokens(_ text: String) -> String {
        let scalars = Array(text.unicodeScalars.prefix(maximumInput).filter { !$0.isUnprintable })
        var clean = String.UnicodeScalarView()
        var start = 0
        while start < scalars.count {
            let end = scalars[start...].firstIndex { !isTokenCharacter($0) } ?? scalars.count
            if end > start {
                clean.append(contentsOf: masked(scalars[start..<end]))
                start = end
            } else {
                clean.append(scalars[start])
                start += 1
            }
        }
        return String(clean)
    }

    private static func clean(_ text: String, atMost count: Int) -> String {
        let clean = maskingTokens(text).unicodeScalars
        guard clean.count > count else { return String(clean) }
        return String(String.UnicodeScalarView(clean.prefix(count - 1))) + "…"
    }

    /// True for the characters of hexadecimal numbers and of base64 in either alphabet.
    private static func isTokenCharacter(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar {
        case "0"..."9", "a"..."z", "A"..."Z", "+", "/", "-", "_": true
        default: false
        }
    }

    /// Shortens a word that is a device token in base64, and each hexadecimal token in any other word.
    private static func masked(_ word: ArraySlice<Unicode.Scalar>) -> [Unicode.Scalar] {
        guard word.count >= tokenDigits else { return Array(word) }
        // Base64 of 30 random bytes has digits, small and capital letters. A long path or name rarely has all three.
        let isBase64 =
            word.contains { ("0"..."9").contains($0) } && word.contains { ("a"..."z").contains($0) }
            && word.contains { ("A"..."Z").contains($0) }
        return isBase64 ? Array(word.prefix(8)) + ["…"] : maskedDigits(word)
    }

    /// Shortens each hexadecimal number that can be a device token. A job ID may contain a token.
    private static func maskedDigits(_ word: ArraySlice<Unicode.Scalar>) -> [Unicode.Scalar] {
        var (clean, start) = ([Unicode.Scalar](), word.startIndex)
        while start < word.endIndex {
            let end = word[start...].firstIndex { !$0.properties.isASCIIHexDigit } ?? word.endIndex
            clean += end - start >= tokenDigits ? Array(word[start..<start + 8]) + ["…"] : Array(word[start..<end])
            if end < word.endIndex { clean.append(word[end]) }
            start = min(end + 1, word.endIndex)
        }
        return clean
    }

    // MARK: The form in Redis

    fileprivate var fields: [(name: String, value: String)] {
        var fields = [("action", actionName), ("by", by), ("subject", subject), ("via", via?.rawValue ?? "")]
        if let count { fields.append(("count", "\(count)")) }
        if let detail { fields.append(("detail", detail)) }
        if let ending, ending != .done { fields.append(("ending", ending.rawValue)) }
        return fields
    }

    /// Reads an entry of the stream. Its texts are cleaned again, because any client of Redis may have written it.
    fileprivate init?(_ element: RESPReply.Element) {
        guard element.count == 2, let id = element[0].string,
            let at = id.split(separator: "-").first.flatMap({ Int64(bounding: $0) })
        else { return nil }
        var fields: [String: String] = [:]
        var elements = element[1].children
        while let name = elements.next()?.string, let value = elements.next()?.string { fields[name] = value }
        self.init(
            actionName: fields["action"] ?? "", fields["subject"] ?? "", by: fields["by"] ?? "",
            count: fields["count"].flatMap { Int($0) }, detail: fields["detail"],
            ending: fields["ending"].map(Ending.init) ?? .done,
            via: fields["via"].flatMap(Interface.init))
        (self.id, self.at) = (id, at)
    }
}

/// The audit log: the last actions of operators on all queues, in one capped stream.
package enum AuditLog {
    package static let maximumPage = 1000

    /// Records an action. Works on a Redis whose memory is full.
    /// - Parameter client: a client of the server that has the shared keys.
    /// - Returns: the entry's id.
    /// - Throws: `RedisError`.
    @discardableResult
    package static func record(
        _ entry: AuditEntry, _ client: RedisClient, _ keys: SharedKeys
    ) async throws -> String {
        try await QueueScript.write.run(
            client, [keys.audit], arguments: { $0.appendAuditEntry(entry.fields) }, reading: { $0.text() })
    }

    /// Returns the latest entries, the newest first.
    /// - Parameters:
    ///   - limit: their maximum number, at most ``maximumPage``.
    ///   - id: the last entry of the previous page; `nil` for the first page.
    /// - Throws: `RedisError`.
    package static func latest(
        _ limit: Int, before id: String? = nil, _ client: RedisClient, _ keys: SharedKeys
    ) async throws -> [AuditEntry] {
        let count = max(1, min(limit, maximumPage))
        let reply = try await client.call(
            RedisCommand("XREVRANGE", keys.audit, id.map { "(\($0)" } ?? "+", "-", "COUNT", "\(count)"))
        return reply.root.children.compactMap(AuditEntry.init)
    }
}

extension AuditEntry: Shown {
    package static let columns = Columns<Self>(
        "Activity", "An action of an operator.",
        [
            .init("id", "ID.", \.id),
            .init("at", "Time, by the clock of Redis.", as: .time, title: "Time", in: .list, \.at),
            .init("by", "Operator.", as: .key, title: "Person", in: .list, \.by),
            .init("action", "Action.", as: .key, in: .list, \.actionName),
            .init("subject", "Things that the action concerned.", in: .list, \.subject),
            .init("ending", "End:", as: .choice(Ending.self), title: "Result", in: .list, \.ending?.rawValue),
            .init(
                "count", "Number of things that were changed, if the action counts any.", as: .count, title: "Number",
                in: .wide,
                \.count),
            .init("detail", "The operator's reason, or another explanation.", in: .wide, \.detail),
            .init("via", "Interface:", as: .choice(Interface.self), in: .widest, \.via?.rawValue),
        ])
}
