import NIOCore
import PushJob
import PushQueue

/// The scopes of one lane by name, and their records for operators.
///
/// A notification finds its scopes once, when its job is accepted; its answers use the indices.
final class ScopeRegister {
    let scopes = Scopes()

    struct Key: Hashable {
        let scope: ScopeRecord.Scope
        let app: ScopeID
        var name: ByteBuffer
    }

    private var ids: [Key: ScopeID] = [:]
    private(set) var keys: [ScopeID: Key] = [:]
    /// The names of apps, credentials and endpoints.
    private var wide: [String: ScopeID] = [:]
    private var wideNames: [ScopeID: String] = [:]
    /// The last group that was looked up: jobs of a campaign follow one another.
    private var last: (key: Key, id: ScopeID)?
    /// The last address that was looked up: most jobs of an app have the same. Its name is made once.
    private var lastAddress: (topic: ByteBuffer, pushType: PushType, app: ScopeID, id: ScopeID)?

    /// Returns the scope of an app, a credential or an endpoint.
    func id(_ kind: ScopeKind, named name: String, now: Int64) -> ScopeID {
        let key = "\(kind) \(name)"
        if let known = wide[key] { return known }
        let id = scopes.add(kind, now: now).id
        (wide[key], wideNames[id]) = (id, name)
        return id
    }

    /// Returns the scope of a campaign of an app.
    func campaign(_ name: ByteBuffer, of app: ScopeID, now: Int64) -> ScopeID {
        narrow(Key(scope: .campaign, app: app, name: name), .group, parent: app, now: now)
    }

    /// Returns the scope of a topic and push type of an app.
    func address(_ topic: ByteBuffer, _ pushType: PushType, of app: ScopeID, now: Int64) -> ScopeID {
        if let last = lastAddress, last.app == app, last.pushType == pushType, last.topic == topic {
            scopes.recordUse(last.id, now: now)
            return last.id
        }
        var name = topic
        name.writeString(" (\(pushType.name))")
        let id = narrow(Key(scope: .topic, app: app, name: name), .group, parent: app, now: now)
        // A copy, because the topic is a part of a claim.
        lastAddress = (ByteBuffer(bytes: topic.readableBytesView), pushType, app, id)
        return id
    }

    /// Returns the scope of a job with many tokens.
    func job(_ identity: ByteBuffer, in group: ScopeID, of app: ScopeID, now: Int64) -> ScopeID {
        narrow(Key(scope: .job, app: app, name: identity), .job, parent: group, now: now)
    }

    private func narrow(_ asked: Key, _ kind: ScopeKind, parent: ScopeID, now: Int64) -> ScopeID {
        if let last, last.key == asked {
            scopes.recordUse(last.id, now: now)
            return last.id
        }
        var key = asked
        let id: ScopeID
        if let known = ids[asked] {
            (key, id) = (keys[known] ?? asked, known)
            scopes.recordUse(id, now: now)
        } else {
            // A copy: the name is a part of a claim, of which a mebibyte would stay as long as the scope.
            key.name = ByteBuffer(bytes: asked.name.readableBytesView)
            let (new, forgotten) = scopes.add(kind, parent: parent, now: now)
            if let forgotten {
                if let old = keys.removeValue(forKey: forgotten) { ids[old] = nil }
                if lastAddress?.id == forgotten { lastAddress = nil }
            }
            (ids[key], keys[new], id) = (new, key, new)
        }
        last = (key, id)
        return id
    }

    /// The kind and the name of a scope, for people.
    func name(of id: ScopeID) -> (scope: ScopeRecord.Scope, name: String, app: String?) {
        if let key = keys[id] { return (key.scope, String(buffer: key.name), wideNames[key.app]) }
        let name = wideNames[id] ?? ""
        switch scopes[id].kind {
        case .credential: return (.credential, name, onlyApp(of: id))
        case .endpoint: return (.endpoint, name, onlyApp(of: id))
        case .app, .group, .job: return (.app, name, name)
        }
    }

    /// The app of a credential or an endpoint, unless several apps have it.
    private func onlyApp(of id: ScopeID) -> String? {
        let apps = scopes.apps(of: id)
        return apps.count == 1 ? wideNames[apps[0]] : nil
    }

    // MARK: Records

    /// The number of failures that wait for another attempt from which a group is suspected although others of it are
    /// accepted.
    private static let suspicious = 3
    /// The time since the last of them after which a suspicion ends.
    private static let currency: Int64 = 60_000

    /// Returns the record of a scope.
    /// - Parameter offset: the milliseconds by which Redis' clock is ahead of the lane's.
    func record(of id: ScopeID, _ state: ScopeRecord.State, offset: Int64) -> ScopeRecord {
        let scope = scopes[id]
        var (kind, name, app) = name(of: id)
        let failing = scope.failing
        // One job of many that others are accepted beside is the culprit, not its group.
        if state == .suspected, kind == .campaign || kind == .topic, scope.fresh.failuresSinceProof == 0,
            let job = failing?.jobs.first, failing?.jobs.count == 1
        {
            (kind, name) = (.job, job)
        }
        let isOneJob = kind == .job && scope.kind == .group
        let since =
            failing?.since ?? scopes.silentSince(id)
            ?? (scope.fresh.isSlow ? scope.fresh.slowSince : scope.retries.slowSince)
        return ScopeRecord(
            kind, name, state, app: app, reason: failing?.reason ?? Reason.Own.noAnswer.rawValue,
            status: failing?.status, failures: failing?.count ?? 0, notifications: isOneJob ? 0 : scopes.sent(id),
            since: since + offset, jobs: failing?.jobs ?? [],
            othersDelivered: isOneJob ? Int(scope.fresh.proofs) : scopes.othersDelivered(id))
    }

    /// True if nothing of an app was accepted since its last failure.
    private func isRefused(_ scope: Scopes.Scope) -> Bool {
        scope.kind == .app && (scope.failing.map { $0.last > scope.fresh.provedAt } ?? false)
    }

    /// Returns the records of all slow and suspected scopes, the slow ones first and the wide ones before the narrow ones.
    func records(now: Int64, offset: Int64) -> [ScopeRecord] {
        guard scopes.hasFailures || !scopes.isQuiet else { return [] }
        var slow: [ScopeID] = []
        var suspected: [ScopeID] = []
        for id in scopes.scopes.indices.map({ ScopeID($0) }) where scopes[id].usedAt >= 0 {
            let scope = scopes[id]
            if scopes.isSlowOrSilent(id) {
                slow.append(id)
            } else if let failing = scope.failing, now - failing.last < Self.currency, !scopes.isWithinSlow(id) {
                let isWhole = scope.parent >= 0 && isRefused(scopes[scope.parent])
                if isRefused(scope) || scope.kind == .group && failing.count >= Self.suspicious && !isWhole {
                    suspected.append(id)
                }
            }
        }
        let order: (ScopeID, ScopeID) -> Bool = { [scopes] in scopes[$0].kind > scopes[$1].kind }
        return slow.sorted(by: order).map { record(of: $0, .slow, offset: offset) }
            + suspected.sorted(by: order).map { record(of: $0, .suspected, offset: offset) }
    }
}
