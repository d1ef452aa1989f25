import APNS
import TLS

struct AppDifference: Equatable {
    var isChanged = false
    /// True if the settings of the app's connections differ, apart from the credential.
    var changesTransport = false
    /// True if the credential differs, or a file of the credential has other contents.
    var changesCredential = false

    init(from old: AppConfiguration, to new: AppConfiguration) {
        changesTransport = Way(old) != Way(new)
        changesCredential =
            old.renewal?.plan != new.renewal?.plan || old.renewal?.contents != new.renewal?.contents
        isChanged =
            changesTransport || changesCredential || old.topic != new.topic || old.otherTopics != new.otherTopics
            || old.maximumPerSecond != new.maximumPerSecond
            || old.expiration != new.expiration || old.strictPayloads != new.strictPayloads
    }

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
                app.maximumStreams, app.requestTimeout, app.connectTimeout, app.reconnectBase, app.reconnectCap,
            ]
        }
    }
}

/// The apps that a reload added, changed and removed, by name.
package struct ReloadReport: Sendable, Equatable {
    // swift-format-ignore: AllPublicDeclarationsHaveDocumentation
    package var added: [String] = []
    // swift-format-ignore: AllPublicDeclarationsHaveDocumentation
    package var changed: [String] = []
    // swift-format-ignore: AllPublicDeclarationsHaveDocumentation
    package var removed: [String] = []

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
