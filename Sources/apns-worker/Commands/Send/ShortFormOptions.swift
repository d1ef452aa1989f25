import ArgumentParser
import FoundationEssentials
import NIOCore
import PushJob
import PushQueue

/// Flags for the short forms of a payload.
struct ShortFormOptions: ParsableArguments {
    @Option(help: "Alert text.") var alert: String?
    @Option(help: "Alert title; combine it with --body, not with --alert.") var title: String?
    @Option(help: "Alert subtitle.") var subtitle: String?
    @Option(help: "Alert text next to a title or subtitle.") var body: String?
    @Option(help: "Key of the text in the app's localized strings.") var locKey: String?
    @Option(help: "Argument of the localized text. Repeatable.") var locArg: [String] = []
    @Option(help: "Key of the title in the app's localized strings.") var titleLocKey: String?
    @Option(help: "Argument of the localized title. Repeatable.")
    var titleLocArg: [String] = []
    @Option(help: "Image that the app shows while it launches.") var launchImage: String?
    @Option(help: "Number on the app's icon; 0 removes it.") var badge: Int64?
    @Option(help: "Name of a sound, or default.") var sound: String?
    @Flag(help: "Play the sound as a critical alert.") var critical = false
    @Option(help: "Volume of a critical alert, 0 to 1.") var volume: Double?
    @Option(help: "Thread ID, which groups notifications.") var threadID: String?
    @Option(help: "Category, which determines the actions.") var category: String?
    @Flag(help: "Wake the app in the background.") var contentAvailable = false
    @Flag(help: "Let the app's service extension change the notification.") var mutableContent = false
    @Option(help: "ID of the window to bring forward.") var targetContentID: String?
    @Option(help: "Interruption level: passive, active, time-sensitive or critical.") var interruptionLevel: String?
    @Option(help: "Relevance: 0 to 1, or any number for a Live Activity. The highest comes first.") var relevanceScore:
        Double?
    @Option(help: "Criteria that the system compares with the current Focus.") var filterCriteria: String?
    @Option(help: "Live Activity event: start, update or end.") var event: String?
    @Option(help: "Live Activity content, a JSON object.") var contentState: String?
    @Option(help: "Time of the Live Activity content: seconds since 1970, ISO 8601, or now.") var timestamp: String?
    @Option(help: "Time at which a Live Activity becomes stale: seconds since 1970 or ISO 8601.") var staleDate: String?
    @Option(help: "Time at which an ended Live Activity is removed: seconds since 1970 or ISO 8601.") var dismissalDate:
        String?
    @Option(help: "Type of the attributes of a starting Live Activity.") var attributesType: String?
    @Option(help: "Attributes of a starting Live Activity, a JSON object.") var attributes: String?
    @Flag(help: "Request a token for the updates of a starting Live Activity.") var inputPushToken = false
    @Option(help: "Channel for the updates of a starting Live Activity.") var inputPushChannel: String?
    @Flag(help: "Reload widgets or controls.") var contentChanged = false
    @Option(help: "Argument of a Safari notification's URL. Repeatable.") var urlArg: [String] = []
    @Option(help: "Push magic of a managed device.") var mdm: String?
    @Option(help: "Members next to aps, a JSON object.") var custom: String?

    /// Returns the members of the job; empty without these flags.
    func members() throws -> [JobMember: JobEncoder.Value] {
        var members: [JobMember: JobEncoder.Value] = [:]
        members[.alert] = try alertMember()
        members[.sound] = try soundMember()
        members[.badge] = badge.map { .integer($0) }
        members[.threadID] = threadID.map { .text($0) }
        members[.category] = category.map { .text($0) }
        members[.targetContentID] = targetContentID.map { .text($0) }
        members[.interruptionLevel] = interruptionLevel.map { .text($0) }
        members[.filterCriteria] = filterCriteria.map { .text($0) }
        members[.event] = event.map { .text($0) }
        members[.attributesType] = attributesType.map { .text($0) }
        members[.inputPushChannel] = inputPushChannel.map { .text($0) }
        members[.mdm] = mdm.map { .text($0) }
        members[.contentState] = contentState.map { .json(ByteBuffer(string: $0)) }
        members[.attributes] = attributes.map { .json(ByteBuffer(string: $0)) }
        members[.custom] = custom.map { .json(ByteBuffer(string: $0)) }
        members[.timestamp] = try time(timestamp, "--timestamp", takesNow: true)
        members[.staleDate] = try time(staleDate, "--stale-date")
        members[.dismissalDate] = try time(dismissalDate, "--dismissal-date")
        members[.urlArguments] = urlArg.isEmpty ? nil : .texts(urlArg)
        if contentAvailable { members[.contentAvailable] = .flag(true) }
        if mutableContent { members[.mutableContent] = .flag(true) }
        if inputPushToken { members[.inputPushToken] = .flag(true) }
        if contentChanged { members[.contentChanged] = .flag(true) }
        if let relevanceScore {
            guard relevanceScore.isFinite else { throw ValidationError("--relevance-score is a number") }
            members[.relevanceScore] = .number(relevanceScore)
        }
        return members
    }

    private func alertMember() throws -> JobEncoder.Value? {
        var object = ByteBuffer()
        for (name, value) in [
            ("title", title), ("subtitle", subtitle), ("body", body), ("loc_key", locKey),
            ("title_loc_key", titleLocKey), ("launch_image", launchImage),
        ] {
            guard let value else { continue }
            Self.begin(name, in: &object)
            object.writeJSONString(value)
        }
        for (name, values) in [("loc_args", locArg), ("title_loc_args", titleLocArg)] where !values.isEmpty {
            Self.begin(name, in: &object)
            object.writeImmutableBuffer(Self.array(values))
        }
        guard object.readableBytes > 0 else { return alert.map { .text($0) } }
        guard alert == nil else {
            throw ValidationError(
                "--alert is the alert's whole text; with a title or another part, use --body instead")
        }
        object.writeString("}")
        return .json(object)
    }

    private func soundMember() throws -> JobEncoder.Value? {
        guard critical || volume != nil else { return sound.map { .text($0) } }
        guard let sound else { throw ValidationError("--critical and --volume need --sound, such as --sound default") }
        var object = ByteBuffer(string: "{\"critical\":\(critical ? 1 : 0),\"name\":")
        object.writeJSONString(sound)
        if let volume {
            guard (0...1).contains(volume) else { throw ValidationError("--volume is a number from 0 to 1") }
            object.writeString(",\"volume\":\(volume)")
        }
        object.writeString("}")
        return .json(object)
    }

    private func time(_ text: String?, _ flag: String, takesNow: Bool = false) throws -> JobEncoder.Value? {
        guard let text else { return nil }
        if takesNow, text == "now" { return .time(Int64(Date().timeIntervalSince1970) * 1000) }
        guard let time = JobTime.milliseconds(text) else {
            throw ValidationError(
                "\(flag) is seconds since 1970 or an ISO 8601 time with Z or an offset, such as 2030-01-31T12:00:00Z"
                    + (takesNow ? ", or now" : ""))
        }
        return .time(time)
    }

    private static func begin(_ name: String, in object: inout ByteBuffer) {
        object.writeString(object.readableBytes == 0 ? "{" : ",")
        object.writeJSONString(name)
        object.writeString(":")
    }

    private static func array(_ texts: [String]) -> ByteBuffer {
        var array = ByteBuffer(string: "[")
        for (index, text) in texts.enumerated() {
            if index > 0 { array.writeString(",") }
            array.writeJSONString(text)
        }
        array.writeString("]")
        return array
    }
}
