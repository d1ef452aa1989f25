/// The type of a short form's value.
///
/// Source: Apple, "Generating a remote notification", tables of the `aps` dictionary; for those of Live Activities
/// "Starting and updating Live Activities with ActivityKit push notifications"; for `content-changed` "Updating widgets
/// with WidgetKit push notifications"; for `url-args` "Configuring Safari Push Notifications"; for `mdm` Apple's Device
/// Management, "Sending MDM commands to a device".
enum ShortFormKind {
    /// Any string.
    case text
    /// A string that is not empty.
    case name
    /// A broadcast channel's id.
    case channelID
    /// 1, or absent; a job can also have true or false.
    case flag
    /// An integer of at least 0.
    case count
    /// A finite number.
    case score
    /// A time, sent as whole seconds since 1970.
    case time
    case interruptionLevel
    case event
    case object
    /// An array of strings.
    case texts
    case alert
    case sound
    case custom
}

extension JobMember {
    /// The type of a short form's value; nil for other members.
    var shortForm: ShortFormKind? {
        switch self {
        case .alert: .alert
        case .badge: .count
        case .sound: .sound
        case .threadID, .category, .targetContentID, .filterCriteria: .text
        case .attributesType, .mdm: .name
        case .contentAvailable, .mutableContent, .inputPushToken, .contentChanged: .flag
        case .interruptionLevel: .interruptionLevel
        case .relevanceScore: .score
        case .staleDate, .timestamp, .dismissalDate: .time
        case .contentState, .attributes: .object
        case .event: .event
        case .inputPushChannel: .channelID
        case .urlArguments: .texts
        case .custom: .custom
        default: nil
        }
    }

    /// The short forms that go into `aps`, in the order in which they are written there.
    public static let apsMembers = allCases[(Int(JobMember.alert.rawValue))...Int(JobMember.urlArguments.rawValue)]
}
