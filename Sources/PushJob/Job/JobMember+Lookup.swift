extension JobMember {
    /// The member with this name, spelled without escapes.
    @inline(__always)
    init?(name: UnsafeRawBufferPointer) {
        let candidate: JobMember
        switch name.count {
        case 2: candidate = .id
        case 3: candidate = name[0] == UInt8(ascii: "a") ? .app : .mdm
        case 4: candidate = .fair
        case 5:
            switch name[0] {
            case UInt8(ascii: "t"):
                candidate = name[1] == UInt8(ascii: "o") && name[2] == UInt8(ascii: "k") ? .token : .topic
            case UInt8(ascii: "a"): candidate = .alert
            case UInt8(ascii: "b"): candidate = .badge
            case UInt8(ascii: "s"): candidate = .sound
            default: candidate = .event
            }
        case 6:
            switch name[0] {
            case UInt8(ascii: "t"): candidate = .tokens
            case UInt8(ascii: "l"): candidate = .labels
            case UInt8(ascii: "u"): candidate = .urgent
            default: candidate = .custom
            }
        case 7:
            switch name[0] {
            case UInt8(ascii: "p"): candidate = .payload
            case UInt8(ascii: "a"): candidate = .apnsID
            case UInt8(ascii: "s"): candidate = .sendAt
            default: candidate = .channel
            }
        case 8:
            switch name[0] {
            case UInt8(ascii: "p"): candidate = .priority
            case UInt8(ascii: "c"): candidate = name[2] == UInt8(ascii: "m") ? .campaign : .category
            case UInt8(ascii: "t"): candidate = .truncate
            default: candidate = .urlArguments
            }
        case 9:
            switch name[1] {
            case UInt8(ascii: "u"): candidate = .pushType
            case UInt8(ascii: "h"): candidate = .threadID
            default: candidate = .timestamp
            }
        case 10:
            switch name[0] {
            case UInt8(ascii: "e"): candidate = .expiration
            case UInt8(ascii: "u"): candidate = .uniqueFor
            case UInt8(ascii: "s"): candidate = .staleDate
            default: candidate = .attributes
            }
        case 11:
            switch name[0] {
            case UInt8(ascii: "c"): candidate = .collapseID
            case UInt8(ascii: "t"): candidate = .traceparent
            case UInt8(ascii: "k"): candidate = .keepResult
            default: candidate = .enqueuedAt
            }
        case 12: candidate = name[0] == UInt8(ascii: "m") ? .maxAttempts : .onUncertain
        case 13: candidate = name[0] == UInt8(ascii: "r") ? .registeredAt : .contentState
        case 14: candidate = .dismissalDate
        case 15:
            switch name[0] {
            case UInt8(ascii: "r"): candidate = .relevanceScore
            case UInt8(ascii: "m"): candidate = .mutableContent
            case UInt8(ascii: "a"): candidate = .attributesType
            case UInt8(ascii: "f"): candidate = name[1] == UInt8(ascii: "i") ? .filterCriteria : .fairPerSecond
            default: candidate = .contentChanged
            }
        case 16: candidate = .inputPushToken
        case 17: candidate = name[0] == UInt8(ascii: "c") ? .contentAvailable : .targetContentID
        case 18: candidate = name[2] == UInt8(ascii: "t") ? .interruptionLevel : .inputPushChannel
        case 19: candidate = .collapseDuplicates
        default: return nil
        }
        guard candidate.isNamed(name) else { return nil }
        self = candidate
    }

    @inline(__always)
    private func isNamed(_ candidate: UnsafeRawBufferPointer) -> Bool {
        candidate.isEqual(to: name)
    }
}
