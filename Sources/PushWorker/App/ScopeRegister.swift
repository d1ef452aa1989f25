import NIOCore
import PushJob
import PushQueue

/// The scopes of one lane by name, and their records for operators.
///
/// Scopes are found by name once, when a job is accepted. Answers use the indices.
final class ScopeRegister {
    let scopes = Scopes()

    struct Key: Hashable {
        let scope: ScopeRecord.Scope
        /// The index of the app; -1 for a scope that several apps may share.
        let app: ScopeID
        var name: ByteBuffer
        /// The push type of a topic.
        var pushType: PushType?
    }

    private var ids: [Key: ScopeID] = [:]
    private(set) var keys: [ScopeID: Key] = [:]
    /// The last result of a look-up, because jobs of a campaign follow one another.
    private var last: (key: Key, id: ScopeID)?

    /// - Parameter kind: an app, a credential or an endpoint.
    func id(_ kind: ScopeKind, named name: String, now: Int64) -> ScopeID {
        let scope: ScopeRecord.Scope = kind == .app ? .app : kind == .credential ? .credential : .endpoint
        return id(of: Key(scope: scope, app: -1, name: ByteBuffer(string: name)), kind, parent: -1, now: now)
    }

    func campaign(_ name: ByteBuffer, of app: ScopeID, now: Int64) -> ScopeID {
        id(of: Key(scope: .campaign, app: app, name: name), .group, parent: app, now: now)
    }

    func address(_ topic: ByteBuffer, _ pushType: PushType, of app: ScopeID, now: Int64) -> ScopeID {
        id(of: Key(scope: .topic, app: app, name: topic, pushType: pushType), .group, parent: app, now: now)
    }

    func job(_ identity: ByteBuffer, in group: ScopeID, of app: ScopeID, now: Int64) -> ScopeID {
        id(of: Key(scope: .job, app: app, name: identity), .job, parent: group, now: now)
    }

    private func id(of asked: Key, _ kind: ScopeKind, parent: ScopeID, now: Int64) -> ScopeID {
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
            // The name is copied, because it is a part of a claim. Otherwise up to a mebibyte would be kept as long as the scope.
            key.name = ByteBuffer(bytes: asked.name.readableBytesView)
            let (new, forgotten) = scopes.add(kind, parent: parent, now: now)
            if let old = forgotten.flatMap({ keys.removeValue(forKey: $0) }) { ids[old] = nil }
            (ids[key], keys[new], id) = (new, key, new)
        }
        last = (key, id)
        return id
    }

    /// The kind and the name of a scope, for people.
    func name(of id: ScopeID) -> (scope: ScopeRecord.Scope, name: String, app: String?) {
        guard let key = keys[id] else { return (.app, "", nil) }
        let name = String(buffer: key.name)
        switch key.scope {
        case .job, .campaign: return (key.scope, name, appName(key.app))
        case .topic: return (.topic, name + (key.pushType.map { " (\($0.name))" } ?? ""), appName(key.app))
        case .app: return (.app, name, name)
        case .credential, .endpoint:
            // The app is named only if no other app has the same credential or endpoint.
            let apps = scopes.apps(of: id)
            return (key.scope, name, apps.count == 1 ? appName(apps[0]) : nil)
        }
    }

    private func appName(_ app: ScopeID) -> String? { keys[app].map { String(buffer: $0.name) } }

    // MARK: Records

    /// A group with this number of failures that wait for another attempt is suspected, even if other notifications of it are accepted.
    private static let suspicious = 3
    /// A suspicion ends this long after the last failure, in milliseconds.
    private static let currency: Int64 = 60_000

    /// Returns the record of a scope.
    /// - Parameter offset: the difference of Redis' clock and the lane's, in milliseconds.
    func record(of id: ScopeID, _ state: ScopeRecord.State, offset: Int64) -> ScopeRecord {
        let scope = scopes[id]
        var (kind, name, app) = name(of: id)
        let failing = scope.failing
        // If only one job of a group fails and others are accepted, the job is suspected instead of the group.
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

    /// Returns the records of all slow and suspected scopes. Slow scopes are first, and wide scopes before narrow ones.
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
