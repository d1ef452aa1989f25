import APNS
import NIOCore

/// What jobs choose an app by, and what is written into the requests of jobs that say nothing themselves.
struct RoutedApp {
    let name: ByteBuffer
    let topic: ByteBuffer
    /// Of an app whose notifications travel by the binary gateway.
    let gateway: GatewayOptions?
    /// All topics that are the app's, with all endings.
    private let topics: Set<ByteBuffer>
    /// The topics of push types whose topic is not the bare identifier.
    private let otherTopics: [PushType: ByteBuffer]

    init(_ configuration: AppConfiguration) {
        name = ByteBuffer(string: configuration.name)
        if case .gateway(let options) = configuration.transport { gateway = options } else { gateway = nil }
        let topic = ByteBuffer(string: configuration.topic)
        self.topic = topic
        otherTopics = Dictionary(
            uniqueKeysWithValues: PushType.allCases.filter { !$0.topicSuffix.isEmpty }.map { type in
                (type, type.topic(topic))
            })
        let bare = ([configuration.topic] + configuration.otherTopics).map(ByteBuffer.init(string:))
        topics = Set(bare.flatMap { topic in PushType.allCases.map { $0.topic(topic) } })
    }

    /// The topic of a job that names none. Without the ending that its push type needs, APNs would refuse it as the app's
    /// fault, and one job would pause all others.
    func topic(for type: PushType) -> ByteBuffer { type.topicSuffix.isEmpty ? topic : otherTopics[type] ?? topic }

    /// Whether a topic that a job names is the app's, with or without the ending of a push type.
    func hasTopic(_ named: ByteBuffer) -> Bool { topics.contains(named) }
}
