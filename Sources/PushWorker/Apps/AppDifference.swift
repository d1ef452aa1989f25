import APNS
import TLS

/// What is other in an app's new configuration than in the one before.
struct AppDifference: Equatable {
    /// Anything at all.
    var isChanged = false
    /// What its connections are made by, but for the credential.
    var changesTransport = false
    /// What APNs knows it by, or what stands in the files of that.
    var changesCredential = false

    init(from old: AppConfiguration, to new: AppConfiguration) {
        changesTransport = Way(old) != Way(new)
        changesCredential =
            old.renewal?.plan != new.renewal?.plan || old.renewal?.contents != new.renewal?.contents
        isChanged =
            changesTransport || changesCredential || old.topic != new.topic || old.otherTopics != new.otherTopics
            || old.maximumPerSecond != new.maximumPerSecond || old.maximumBadTokenShare != new.maximumBadTokenShare
            || old.expiration != new.expiration || old.strictPayloads != new.strictPayloads
    }

    /// What connections are made by.
    private struct Way: Equatable {
        let transport: AppConfiguration.Transport
        let endpoint: APNSEndpoint
        let trust: TLSTrust
        let proxy: HTTPProxy?
        let numbers: [Int?]

        init(_ app: AppConfiguration) {
            transport = app.transport
            endpoint = app.endpoint
            trust = app.trust
            proxy = app.proxy
            numbers = [
                app.minimumConnections, app.maximumConnections, app.idleTimeout, app.maximumConnectionAge,
                app.maximumStreams, app.requestTimeout,
            ]
        }
    }
}

/// What became of the apps when a configuration was loaded anew, by name.
public struct ReloadReport: Sendable, Equatable {
    // swift-format-ignore: AllPublicDeclarationsHaveDocumentation
    public var added: [String] = []
    // swift-format-ignore: AllPublicDeclarationsHaveDocumentation
    public var changed: [String] = []
    // swift-format-ignore: AllPublicDeclarationsHaveDocumentation
    public var removed: [String] = []

    init(from old: [AppConfiguration], to new: [AppConfiguration]) {
        for app in new {
            guard let before = old.first(where: { $0.name == app.name }) else {
                added.append(app.name)
                continue
            }
            if AppDifference(from: before, to: app).isChanged { changed.append(app.name) }
        }
        removed = old.map(\.name).filter { name in !new.contains { $0.name == name } }
    }
}
