import NIOCore
import PushJob

/// The scopes of one app and of its jobs. Belongs to the lane's event loop.
final class AppScopes {
    private let register: ScopeRegister
    private let scopes: Scopes
    private(set) var app: ScopeID = -1
    private(set) var endpoint: ScopeID = -1
    /// One scope per signing key, by the key's index, or one for the certificate.
    private(set) var credentials: [ScopeID] = []
    /// The scopes of the app's own topic, by ``PushType/place``; -1 until the first job.
    private var addresses = [ScopeID](repeating: -1, count: PushType.rows.count)

    /// - Parameter credentials: the names of the credential's scopes.
    init(_ configuration: AppConfiguration, credentials: [String], in register: ScopeRegister, now: Int64) {
        self.register = register
        scopes = register.scopes
        find(configuration, credentials: credentials, now: now)
    }

    /// Forgets the answers about an app that has changed, and finds its scopes again.
    func reset(_ configuration: AppConfiguration, credentials: [String], now: Int64) {
        for id in all { scopes.reset(id) }
        scopes.resetGroups(of: app)
        find(configuration, credentials: credentials, now: now)
        for id in all { scopes.reset(id) }
    }

    private func find(_ configuration: AppConfiguration, credentials names: [String], now: Int64) {
        app = register.id(.app, named: configuration.name, now: now)
        // The name includes the proxy, because each proxy is another way to the endpoint and can fail on its own.
        let proxy = configuration.proxy.map { " through \($0)" } ?? ""
        endpoint = register.id(.endpoint, named: "\(configuration.endpoint)\(proxy)", now: now)
        credentials = names.map { register.id(.credential, named: $0, now: now) }
        for id in addresses { scopes.release(id) }
        addresses = [ScopeID](repeating: -1, count: PushType.rows.count)
        scopes.join(app: app, credentials: Set(credentials), endpoint: endpoint)
    }

    /// The scopes of the app itself, apart from its groups and jobs.
    private var all: [ScopeID] { [app, endpoint] + credentials }

    /// The scope of a key, or of the certificate; -1 for none.
    @inline(__always)
    private func credential(_ key: Int) -> ScopeID { key < credentials.count ? credentials[key] : -1 }

    /// Finds the scopes of an accepted job.
    /// - Parameters:
    ///   - topic: the topic of its notifications.
    ///   - isOwnTopic: true if the topic is the app's own, with the suffix of the push type.
    ///   - count: the number of its notifications.
    func place(
        _ id: JobID, in jobs: Table<JobID, ActiveJob>, as job: Job, topic: ByteBuffer, _ pushType: PushType,
        isOwnTopic: Bool, identity: ByteBuffer, count: Int
    ) {
        let now = jobs[id].readySince.milliseconds
        let address: ScopeID
        if !isOwnTopic {
            address = register.address(topic, pushType, of: app, now: now)
        } else if addresses[pushType.place] >= 0 {
            address = addresses[pushType.place]
            scopes.recordUse(address, now: now)
        } else {
            address = register.address(topic, pushType, of: app, now: now)
            scopes.retain(address)
            addresses[pushType.place] = address
        }
        var group = address
        if let campaign = job.campaign {
            group = register.campaign(job.text(campaign), of: app, now: now)
            jobs[id].addressScope = address
        }
        jobs[id].groupScope = group
        if count >= scopes.rules[ScopeKind.job.rawValue].fewest {
            jobs[id].jobScope = register.job(identity, in: group, of: app, now: now)
        } else {
            scopes.recordFew(group, now: now)
        }
        scopes.retain(group)
        scopes.retain(jobs[id].addressScope)
        scopes.retain(jobs[id].jobScope)
    }

    /// The scopes of a job's notifications.
    /// - Parameter key: the index of their signing key.
    @inline(__always)
    func place(of id: JobID, in jobs: Table<JobID, ActiveJob>, key: Int) -> ScopePlace {
        ScopePlace(
            job: jobs[id].jobScope, group: jobs[id].groupScope, app: app, credential: credential(key),
            endpoint: endpoint, address: jobs[id].addressScope)
    }

    /// True while the app, its credential or its endpoint is slow or silent, so that only probes are sent.
    /// - Parameter key: the index of the signing key in use.
    func isSlow(key: Int) -> Bool {
        guard !scopes.isQuiet else { return false }
        let credential = credential(key)
        return scopes.isSlowOrSilent(endpoint) || scopes[app].fresh.isSlow
            || credential >= 0 && scopes[credential].fresh.isSlow
    }

    /// The time of the last answer that proved the endpoint and the credential good.
    /// - Parameter key: the index of the signing key in use.
    func provedAt(key: Int) -> Int64 {
        let provedAt = scopes[endpoint].fresh.provedAt
        let credential = credential(key)
        return credential >= 0 ? min(provedAt, scopes[credential].fresh.provedAt) : provedAt
    }

    /// The reason why the endpoint fails, or else the reason why the app fails.
    var failure: String? { scopes[endpoint].failing?.reason ?? scopes[app].failing?.reason }

    /// True if APNs has accepted the app's topic without the suffix of a push type.
    var isPlainTopicAccepted: Bool {
        PushType.allCases.contains { type in
            guard !type.hasTopicSuffix, addresses[type.place] >= 0 else { return false }
            return scopes[addresses[type.place]].accepted > 0
        }
    }

    /// Records that a job of the app has arrived.
    func recordUse(now: Int64) { for id in all { scopes.recordUse(id, now: now) } }
}
