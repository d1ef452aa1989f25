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
