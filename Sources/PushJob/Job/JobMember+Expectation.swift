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
        case .sendAt, .registeredAt, .enqueuedAt, .staleDate, .timestamp, .dismissalDate:
            "a time in seconds (not milliseconds) since 1970, or an ISO 8601 time with Z or an offset,"
                + " such as \"2030-01-31T12:00:00Z\""
        case .maxAttempts: "an integer from 1 to 1000"
        case .onUncertain: "\"resend\" or \"drop\""
        case .uniqueFor: "a duration from one second to 30 days, such as \"45s\", \"1h30m\" or \"7d\""
        case .channel, .inputPushChannel: "a channel id as APNs gave it: a string of 1 to 255 base64 characters"
        case .collapseDuplicates, .truncate, .keepResult: "true or false"
        case .traceparent:
            "a W3C traceparent such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        case .campaign: "a string of 1 to \(JobLabels.maximumCampaign) bytes without control characters"
        case .labels:
            "an object of up to \(JobLabels.maximumCount) strings, with names and values of 1 to \(JobLabels.maximumLength)"
                + " bytes without control characters"
        default: shortFormExpectation
        }
    }

    /// The description of a valid value of a short form.
    private var shortFormExpectation: String {
        switch self {
        case .alert: AlertMember.expectation
        case .badge: "an integer of at least 0"
        case .sound:
            "the name of a sound, or an object of `name`, `critical` (true, false, 1 or 0) and `volume` (0 to 1)"
        case .threadID, .category, .targetContentID, .filterCriteria: "a string"
        case .attributesType, .mdm: "a string that is not empty"
        case .contentAvailable, .mutableContent, .inputPushToken, .contentChanged: "true, false, 1 or 0"
        case .interruptionLevel: "\"passive\", \"active\", \"time-sensitive\" or \"critical\""
        case .relevanceScore: "a number from 0 to 1 or, for a Live Activity, any number"
        case .event: "\"start\", \"update\" or \"end\""
        case .contentState, .attributes: "an object"
        case .urlArguments: "an array of strings"
        default: "an object without `aps`, and without `mdm` where the job has one"
        }
    }
}
