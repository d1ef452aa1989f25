extension JobMember {
    /// The description of a valid value, as the end of the sentence "it must be …".
    public var expectation: String {
        switch self {
        case .id, .app: "a string of 1 to 255 bytes without control characters"
        case .token: "a string of hex digits or base64"
        case .tokens: "an array of at least one string of hex digits or base64"
        case .topic, .pushType: "a string of 1 to 255 printable ASCII characters without spaces"
        case .priority: "1, 5 or 10"
        case .expiration:
            "0, a time in seconds (not milliseconds) since 1970, an ISO 8601 time with Z or an offset, or a duration such as"
                + " \"45s\", \"30m\", \"1h30m\" or \"7d\""
        case .collapseID: "a string of 1 to 64 printable ASCII characters with no space at either end"
        case .apnsID: "a UUID in the form of 8-4-4-4-12 hex digits"
        case .payload: "an object"
        case .sendAt, .registeredAt, .enqueuedAt: PayloadValue.time.expectation(in: .job)
        case .maxAttempts: "an integer from 1 to 1000"
        case .onUncertain: "\"resend\" or \"drop\""
        case .uniqueFor: "a duration from one second to 30 days, such as \"45s\", \"1h30m\" or \"7d\""
        case .channel: PayloadValue.channelID.expectation(in: .job)
        case .collapseDuplicates, .truncate, .keepResult, .urgent: "true or false"
        case .environment: "\"production\" or \"sandbox\""
        case .fairPerSecond: "an integer from 1 to 1000000"
        case .traceparent:
            "a W3C traceparent such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        case .campaign, .fair, .replaces:
            "a string of 1 to \(JobLabels.maximumCampaign) bytes without control characters"
        case .labels:
            "an object of up to \(JobLabels.maximumCount) strings, with names and values of 1 to \(JobLabels.maximumLength)"
                + " bytes without control characters"
        case .custom: "an object without `aps`, and without `mdm` where the job has one"
        default: payloadMember?.value.expectation(in: .job) ?? "a valid value"
        }
    }

    /// The kinds of values that can be valid.
    var kinds: Set<JSONKind> {
        switch self {
        case .id, .token, .app, .topic, .pushType, .collapseID, .apnsID, .onUncertain, .uniqueFor, .channel,
            .traceparent, .campaign, .fair, .environment, .replaces:
            [.text]
        case .tokens: [.array]
        case .priority, .maxAttempts, .fairPerSecond: [.number]
        case .expiration, .sendAt, .registeredAt, .enqueuedAt: [.number, .text]
        case .collapseDuplicates, .truncate, .keepResult, .urgent: [.truth]
        case .payload, .labels, .custom: [.object]
        default: payloadMember?.value.kinds(in: .job) ?? []
        }
    }

    /// The member of the payload that a short form stands for; `nil` for `custom` and for other members.
    public var payloadMember: PayloadMember? {
        if self == .mdm { return .mdm }
        guard rawValue >= JobMember.alert.rawValue, rawValue <= JobMember.urlArguments.rawValue else { return nil }
        return PayloadMember(rawValue: rawValue - JobMember.alert.rawValue)
    }
}
