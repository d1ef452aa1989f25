/// The kinds of scopes that may be at fault for a failure, from narrow to wide.
enum ScopeKind: Int, CaseIterable, Comparable {
    /// A job with many tokens.
    case job
    /// A campaign of an app. Jobs without a campaign are grouped by the app's topic and their push type.
    case group
    /// An app: its configuration.
    case app
    /// A key or a certificate, in all its apps.
    case credential
    /// The endpoint as this lane reaches it.
    case endpoint

    static func < (one: ScopeKind, other: ScopeKind) -> Bool { one.rawValue < other.rawValue }

    var rules: Measure.Rules { self == .credential ? .ofCredential : .usual }
}

struct ScopeSet: OptionSet, Hashable {
    let rawValue: UInt8

    static let job = ScopeSet(.job)
    static let group = ScopeSet(.group)
    static let app = ScopeSet(.app)
    static let credential = ScopeSet(.credential)
    static let endpoint = ScopeSet(.endpoint)
    static let all: ScopeSet = [.job, .group, .app, .credential, .endpoint]

    init(rawValue: UInt8) { self.rawValue = rawValue }
    init(_ kind: ScopeKind) { rawValue = 1 << UInt8(kind.rawValue) }
}

/// The index of a scope in ``Scopes``; -1 for none.
typealias ScopeID = Int32

/// The scopes of one notification.
struct ScopePlace: Equatable {
    var job: ScopeID = -1
    var group: ScopeID = -1
    var app: ScopeID = -1
    var credential: ScopeID = -1
    var endpoint: ScopeID = -1
    /// The group of the app's topic and push type, if ``group`` is a campaign.
    var address: ScopeID = -1

    subscript(kind: ScopeKind) -> ScopeID {
        switch kind {
        case .job: job
        case .group: group
        case .app: app
        case .credential: credential
        case .endpoint: endpoint
        }
    }
}

/// Decides which scopes are at fault, from the answers that one lane got about the scopes of its notifications. No I/O.
///
/// ``decide(_:isFresh:now:)`` returns whether a notification may be sent now. ``recordProof(_:at:isFresh:now:)`` and
/// ``recordFailure(_:at:isFresh:now:)`` draw the conclusions from an answer. Lanes share nothing, so a worker behind a refusing proxy slows
/// no other worker.
///
/// All times are in milliseconds of the lane's clock.
final class Scopes {
    /// The maximum number of groups and jobs that are remembered.
    static let maximumNarrow = 1000
    /// A slow scope without notifications is forgotten after this time.
    static let memory: Int64 = 600_000
    /// For this time after a fresh proof, retries are not slowed down.
    static let proofForRetries: Int64 = 10_000
    /// The minimum interval between the due times of two jobs of a scope that is set aside.
    static let dueInterval: Int64 = 10
    /// The shortest and the longest delay of jobs that are set aside.
    static let setAside: ClosedRange<Int64> = 1000...300_000
    /// A job younger than this that a wide scope sets aside returns soon, because another lane may reach APNs on another way.
    static let young: Int64 = 5000
    /// The minimum time without a probe after which a silence counts as ended.
    static let silentPatience: Int64 = 15_000
    /// The interval of probes while nothing is answered.
    static let silentInterval: Int64 = 5000

    struct Scope {
        let kind: ScopeKind
        /// The containing scope: the app of a group, or the group of a job.
        let parent: ScopeID
        var fresh = Measure()
        var retries = Measure()
        /// The number of tokens of this topic and push type that APNs accepted for campaigns.
        fileprivate var acceptedOfCampaigns: UInt32 = 0
        fileprivate var acceptedOfCampaignsAt = Int64.min / 2
        var tokens = TokenTrust()
        var usedAt: Int64
        /// The number of jobs in the lane, apps and inner scopes that hold the scope's index. Only an unused scope is forgotten.
        fileprivate(set) var users = 0
        /// The time of a group's last job with few tokens.
        fileprivate var hasFewAt = Int64.min / 2
        /// The latest due time of a job that is set aside.
        fileprivate var lastDue = Int64.min / 2
        fileprivate var turn = Int64.min / 2
        var failing: Failing?

        var isSlow: Bool { fresh.isSlow || retries.isSlow }
        var accepted: UInt32 { fresh.proofs &+ acceptedOfCampaigns }
        var acceptedAt: Int64 { max(fresh.provedAt, acceptedOfCampaignsAt) }

        fileprivate mutating func recordAccepted(now: Int64) {
            acceptedOfCampaigns &+= 1
            acceptedOfCampaignsAt = now
        }
    }

    /// The failures of a scope, for records.
    struct Failing: Equatable {
        var reason: String
        var status: Int?
        /// The number of failed notifications, not of their attempts.
        var count = 0
        var since: Int64
        var last: Int64
        var jobs: [String] = []
        /// The number of the scope's proofs when the failures began, and the number of the containing scope's proofs.
        var proved: UInt32
        var provedBefore: UInt32
    }

    /// A change of a scope that is logged for operators.
    struct Change: Equatable {
        var scope: ScopeID
        var isSlow: Bool
    }

    var rules = ScopeKind.allCases.map(\.rules)
    private(set) var scopes: [Scope] = []
    /// The slow scopes, the longest slow first.
    private(set) var slow: [ScopeID] = []
    /// The endpoints that have answered nothing for long although requests wait.
    private var silent: [ScopeID: Silence] = [:]

    private struct Silence {
        let since: Int64
        /// The time of the next probe, and of the last one.
        var next, probedAt: Int64
    }

    private var changes: [Change] = []
    /// The indices of forgotten narrow scopes, for reuse.
    private var free: [ScopeID] = []
    /// True if the next probe is the newest notification, false if it is the notification that has waited longest. Probes alternate.
    private var takesNewest = false

    /// True if a notification failed in the last minutes and must be tried again.
    private(set) var hasFailures = false
    /// True if no scope is slow or silent, so that every notification may be sent.
    private(set) var isQuiet = true

    // MARK: Scopes

    /// Adds a scope.
    /// - Returns: the index of the new scope, and the index of a scope that was forgotten in its favor, if any.
    func add(_ kind: ScopeKind, parent: ScopeID = -1, now: Int64) -> (id: ScopeID, forgotten: ScopeID?) {
        let scope = Scope(kind: kind, parent: parent, usedAt: now)
        guard kind <= .group else {
            scopes.append(scope)
            return (ScopeID(scopes.count - 1), nil)
        }
        if kind == .job { retain(parent) }
        let forgotten = forgetLongestUnused()
        guard let id = free.popLast() else {
            scopes.append(scope)
            return (ScopeID(scopes.count - 1), forgotten)
        }
        scopes[Int(id)] = scope
        return (id, forgotten)
    }

    /// Records that a caller holds the index of a scope, so that the scope is not forgotten before a ``release(_:)``.
    @inline(__always)
    func retain(_ id: ScopeID) { if id >= 0 { scopes[Int(id)].users += 1 } }

    @inline(__always)
    func release(_ id: ScopeID) { if id >= 0 { scopes[Int(id)].users -= 1 } }

    /// Forgets the narrow scope that has been unused for longest, if as many as allowed are remembered.
    private func forgetLongestUnused() -> ScopeID? {
        guard scopes.count - free.count >= Self.maximumNarrow else { return nil }
        let unused = scopes.indices.filter {
            scopes[$0].kind <= .group && scopes[$0].usedAt >= 0 && scopes[$0].users == 0
        }
        // A slow scope is forgotten only if all are slow, because operators know of it and wait for its end.
        func order(_ index: Int) -> (Int, Int64) { (scopes[index].isSlow ? 1 : 0, scopes[index].usedAt) }
        guard unused.count >= Self.maximumNarrow, let longest = unused.min(by: { order($0) < order($1) }) else {
            return nil
        }
        let id = ScopeID(longest)
        setGood(id)
        scopes[longest].usedAt = -1
        free.append(id)
        if scopes[longest].kind == .job { release(scopes[longest].parent) }
        return id
    }

    subscript(id: ScopeID) -> Scope { scopes[Int(id)] }

    /// Records that a job of a scope has arrived or waits.
    @inline(__always)
    func recordUse(_ id: ScopeID, now: Int64) { if id >= 0 { scopes[Int(id)].usedAt = now } }

    /// Records that a job with few tokens has arrived in a group.
    @inline(__always)
    func recordFew(_ id: ScopeID, now: Int64) { scopes[Int(id)].hasFewAt = now }

    private func update(_ id: ScopeID) {
        let isSlow = scopes[Int(id)].isSlow
        if let index = slow.firstIndex(of: id) {
            if !isSlow { slow.remove(at: index) }
        } else if isSlow {
            slow.append(id)
        }
        isQuiet = slow.isEmpty && silent.isEmpty
    }

    private func setGood(_ id: ScopeID) {
        scopes[Int(id)].fresh.end()
        scopes[Int(id)].retries.end()
        scopes[Int(id)].failing = nil
        update(id)
    }

    /// Forgets the answers about a scope, because its configuration, credential or connection has changed.
    func reset(_ id: ScopeID) {
        guard id >= 0 else { return }
        if scopes[Int(id)].fresh.isSlow { changes.append(Change(scope: id, isSlow: false)) }
        setGood(id)
        scopes[Int(id)].tokens = TokenTrust()
        silent[id] = nil
        update(id)
    }

    /// Forgets the answers about an app's groups and jobs.
    func resetGroups(of app: ScopeID) {
        for index in scopes.indices where scopes[index].usedAt >= 0 {
            let scope = scopes[index]
            guard
                scope.kind == .group && scope.parent == app
                    || scope.kind == .job && scopes[Int(scope.parent)].parent == app
            else { continue }
            scopes[index].acceptedOfCampaigns = 0
            scopes[index].acceptedOfCampaignsAt = Int64.min / 2
            scopes[index].fresh.reset()
            reset(ScopeID(index))
        }
    }

    // MARK: Answers

    /// Records that APNs accepted a notification.
    @inline(__always)
    func recordDelivery(at place: ScopePlace, isFresh: Bool, now: Int64) {
        guard isQuiet, isFresh else { return recordProof(.all, at: place, isFresh: isFresh, now: now) }
        scopes.withUnsafeMutableBufferPointer { scopes in
            if place.job >= 0 { _ = scopes[Int(place.job)].fresh.recordProof(now: now) }
            _ = scopes[Int(place.group)].fresh.recordProof(now: now)
            _ = scopes[Int(place.app)].fresh.recordProof(now: now)
            if place.credential >= 0 { _ = scopes[Int(place.credential)].fresh.recordProof(now: now) }
            _ = scopes[Int(place.endpoint)].fresh.recordProof(now: now)
            if place.address >= 0 { scopes[Int(place.address)].recordAccepted(now: now) }
        }
    }

    func recordProof(_ set: ScopeSet, at place: ScopePlace, isFresh: Bool, now: Int64) {
        if set.contains(.group), place.address >= 0 { scopes[Int(place.address)].recordAccepted(now: now) }
        for kind in ScopeKind.allCases where set.contains(ScopeSet(kind)) && place[kind] >= 0 {
            let id = place[kind]
            let wasSlow = scopes[Int(id)].isSlow
            let wasFreshSlow = scopes[Int(id)].fresh.isSlow
            if isFresh {
                _ = scopes[Int(id)].fresh.recordProof(now: now)
            } else {
                _ = scopes[Int(id)].fresh.recordProofByRetry(now: now)
                _ = scopes[Int(id)].retries.recordProof(now: now)
            }
            if wasFreshSlow, !scopes[Int(id)].fresh.isSlow {
                changes.append(Change(scope: id, isSlow: false))
                scopes[Int(id)].failing = nil
            }
            if wasSlow { update(id) }
            if kind == .endpoint, !silent.isEmpty { endSilence(id) }
        }
    }

    /// Records a failure that some scopes may be at fault for: a bad answer, or no answer.
    ///
    /// Narrow scopes count it first, so that a refused campaign is slowed before the endpoint is. A failure in a slow narrow scope does not
    /// count against a wider scope, unless all narrow scopes are slow. A failure does not count against a narrow scope while a wider scope
    /// is slow.
    func recordFailure(_ set: ScopeSet, at place: ScopePlace, isFresh: Bool, now: Int64) {
        let kinds = ScopeKind.allCases.filter { set.contains(ScopeSet($0)) && place[$0] >= 0 }
        guard isFresh else {
            for kind in kinds where scopes[Int(place[kind])].retries.recordFailure(now: now, rules[kind.rawValue]) {
                update(place[kind])
            }
            return
        }
        for kind in kinds {
            let id = place[kind]
            let narrower = kinds.filter { $0 < kind }.map { place[$0] }
            if narrower.contains(where: { scopes[Int($0)].fresh.isSlow }), !areAllSlow(within: place, kind, now: now) {
                continue
            }
            if kinds.contains(where: { $0 > kind && scopes[Int(place[$0])].fresh.isSlow }) { continue }
            guard scopes[Int(id)].fresh.recordFailure(now: now, rules[kind.rawValue]) else { continue }
            changes.append(Change(scope: id, isSlow: true))
            update(id)
            forgetNarrower(than: kind, of: place)
        }
    }

    /// True if all inner scopes with recent jobs are slow: the groups of a wide scope, or the jobs with many tokens of a group.
    private func areAllSlow(within place: ScopePlace, _ kind: ScopeKind, now: Int64) -> Bool {
        scopes.allSatisfy { scope in
            guard scope.usedAt >= now - Measure.life else { return true }
            switch kind {
            case .job: return true
            // Jobs with few tokens have no scope of their own.
            case .group where scopes[Int(place.group)].hasFewAt >= now - Measure.life: return false
            case .group: return scope.kind != .job || scope.parent != place.group || scope.fresh.isSlow
            case .app: return scope.kind != .group || scope.parent != place.app || scope.fresh.isSlow
            case .credential, .endpoint:
                return scope.kind != .group || scope.fresh.isSlow || !shares(scope, place, kind)
            }
        }
    }

    /// The credentials and the endpoint of each app.
    private var members: [ScopeID: (credentials: Set<ScopeID>, endpoint: ScopeID)] = [:]

    func join(app: ScopeID, credentials: Set<ScopeID>, endpoint: ScopeID) { members[app] = (credentials, endpoint) }

    /// True if a containing scope is slow or silent, so that the scope's own failures show nothing.
    func isWithinSlow(_ id: ScopeID) -> Bool {
        let scope = self[id]
        guard scope.kind <= .app else { return false }
        if scope.parent >= 0 { return self[scope.parent].fresh.isSlow || isWithinSlow(scope.parent) }
        guard let member = members[id] else { return false }
        return isSlowOrSilent(member.endpoint) || member.credentials.contains { self[$0].fresh.isSlow }
    }

    func apps(of id: ScopeID) -> [ScopeID] {
        members.filter { $0.value.endpoint == id || $0.value.credentials.contains(id) }.map(\.key)
    }

    private func shares(_ group: Scope, _ place: ScopePlace, _ kind: ScopeKind) -> Bool {
        guard let member = members[group.parent] else { return group.parent == place.app }
        return kind == .endpoint ? member.endpoint == place.endpoint : member.credentials.contains(place.credential)
    }

    private func forgetNarrower(than kind: ScopeKind, of place: ScopePlace) {
        for index in scopes.indices where scopes[index].kind < kind && isInside(scopes[index], place, kind) {
            guard scopes[index].fresh.isSlow else {
                scopes[index].fresh.forget()
                continue
            }
            scopes[index].fresh.end()
            changes.append(Change(scope: ScopeID(index), isSlow: false))
            update(ScopeID(index))
        }
    }

    private func isInside(_ scope: Scope, _ place: ScopePlace, _ kind: ScopeKind) -> Bool {
        switch (scope.kind, kind) {
        case (.job, .group): scope.parent == place.group
        case (.job, _): scope.parent >= 0 && isInside(scopes[Int(scope.parent)], place, kind)
        case (.group, .app): scope.parent == place.app
        case (.group, .credential), (.group, .endpoint): shares(scope, place, kind)
        default: false
        }
    }

    // MARK: Silence

    /// Records that a request has waited for long, and that nothing was answered since it was sent.
    func recordSilence(of endpoint: ScopeID, now: Int64) {
        guard silent[endpoint] == nil else { return }
        silent[endpoint] = Silence(since: now, next: now, probedAt: now)
        isQuiet = false
        changes.append(Change(scope: endpoint, isSlow: true))
    }

    func endSilence(_ endpoint: ScopeID) {
        guard silent.removeValue(forKey: endpoint) != nil else { return }
        changes.append(Change(scope: endpoint, isSlow: scopes[Int(endpoint)].fresh.isSlow))
        update(endpoint)
    }

    func isSilent(_ endpoint: ScopeID) -> Bool { silent[endpoint] != nil }

    /// True for a slow scope, and for an endpoint that answers nothing.
    func isSlowOrSilent(_ id: ScopeID) -> Bool { self[id].fresh.isSlow || isSilent(id) }

    func silentSince(_ endpoint: ScopeID) -> Int64? { silent[endpoint]?.since }

    /// True if a silent endpoint got no probe for as long as the silence lasted before, and for at least 15 s. Another lane may have
    /// claimed its jobs.
    func isIdleSilence(_ endpoint: ScopeID, now: Int64) -> Bool {
        silent[endpoint].map { now - $0.probedAt >= max(Self.silentPatience, $0.probedAt - $0.since) } ?? false
    }

    // MARK: Decisions

    enum Decision: Equatable {
        case send
        /// The notification may be sent, as a probe of some scopes.
        case probe
        /// The notification waits for the narrowest scope that allows no probe now.
        case wait(ScopeKind)
    }

    func decide(_ place: ScopePlace, isFresh: Bool, now: Int64) -> Decision {
        guard !isQuiet else { return .send }
        var decision = Decision.send
        for kind in ScopeKind.allCases where place[kind] >= 0 {
            let id = Int(place[kind])
            if isFresh {
                guard scopes[id].fresh.isSlow else { continue }
                guard scopes[id].fresh.may(now: now) else { return .wait(kind) }
            } else {
                if scopes[id].fresh.isSlow, !scopes[id].retries.isSlow {
                    scopes[id].retries.slowDown(now: now, rules[kind.rawValue])
                    update(place[kind])
                }
                guard scopes[id].retries.isSlow else { continue }
                let isProved = !scopes[id].fresh.isSlow && scopes[id].fresh.provedByFreshAt > now - Self.proofForRetries
                guard isProved || scopes[id].retries.may(now: now) else { return .wait(kind) }
            }
            decision = .probe
        }
        if let silence = silent[place.endpoint] {
            guard now >= silence.next else { return .wait(.endpoint) }
            decision = .probe
        }
        return decision
    }

    /// Records that a notification was submitted.
    /// - Returns: the scopes that the notification probes, for ``recordEnd(_:at:isFresh:)``.
    func recordSubmission(at place: ScopePlace, isFresh: Bool, now: Int64) -> ScopeSet {
        guard !isQuiet else { return [] }
        var probed: ScopeSet = []
        for kind in ScopeKind.allCases where place[kind] >= 0 {
            let id = Int(place[kind])
            scopes[id].turn = now
            guard isFresh ? scopes[id].fresh.isSlow : scopes[id].retries.isSlow else { continue }
            probed.insert(ScopeSet(kind))
            if isFresh {
                scopes[id].fresh.recordSent(now: now, rules[kind.rawValue])
            } else {
                scopes[id].retries.recordSent(now: now, rules[kind.rawValue])
            }
        }
        if silent[place.endpoint] != nil {
            silent[place.endpoint]?.next = now + Self.silentInterval
            silent[place.endpoint]?.probedAt = now
        }
        return probed
    }

    /// Records the end of a probe. It frees a place for the next one, whatever the answer was.
    func recordEnd(_ probed: ScopeSet, at place: ScopePlace, isFresh: Bool) {
        for kind in ScopeKind.allCases where probed.contains(ScopeSet(kind)) && place[kind] >= 0 {
            if isFresh {
                scopes[Int(place[kind])].fresh.recordEnd()
            } else {
                scopes[Int(place[kind])].retries.recordEnd()
            }
        }
    }

    /// The waiting notifications of one group.
    struct Candidate: Equatable {
        var place: ScopePlace
        /// The arrival times of the notification that has waited longest and of the newest.
        var oldest: Int64
        var newest: Int64
    }

    /// Chooses the group of the next probe. Probes are alternately the newest notification and the one that has waited longest. Groups that
    /// are not slow come before slow groups, which take turns.
    /// - Returns: the index of the candidate, and true for its newest notification; `nil` if no candidate may be sent.
    func choose(_ candidates: [Candidate], now: Int64) -> (index: Int, newest: Bool)? {
        let able = candidates.indices.filter { index in
            if case .wait = decide(candidates[index].place, isFresh: true, now: now) { false } else { true }
        }
        guard let oldest = able.min(by: { candidates[$0].oldest < candidates[$1].oldest }) else { return nil }
        let place = candidates[oldest].place
        let isWideSlow = [.app, .credential, .endpoint].contains { kind in
            place[kind] >= 0 && scopes[Int(place[kind])].fresh.isSlow
        }
        func isSlow(_ index: Int) -> Bool {
            [candidates[index].place.job, candidates[index].place.group].contains {
                $0 >= 0 && scopes[Int($0)].fresh.isSlow
            }
        }
        guard isWideSlow || isSlow(oldest) || silent[place.endpoint] != nil else { return (oldest, false) }
        takesNewest.toggle()
        guard isWideSlow || silent[place.endpoint] != nil else { return (oldest, takesNewest) }
        let good = able.filter { !isSlow($0) }
        let some = good.isEmpty ? able : good
        if takesNewest {
            return some.max { candidates[$0].newest < candidates[$1].newest }.map { ($0, true) }
        }
        func turn(_ index: Int) -> Int64 { scopes[Int(candidates[index].place.group)].turn }
        return some.min { (turn($0), candidates[$0].oldest) < (turn($1), candidates[$1].oldest) }.map { ($0, false) }
    }

    /// Returns the delay in milliseconds of a job of a scope that is set aside. At most a hundred jobs of a scope are due per second.
    /// - Parameters:
    ///   - age: the milliseconds since the job was first seen.
    ///   - share: a random number from 0 to 1, evenly distributed.
    func setAside(_ id: ScopeID, age: Int64, now: Int64, share: Double) -> Int64 {
        let scope = scopes[Int(id)]
        let since = silent[id]?.since ?? (scope.fresh.isSlow ? scope.fresh.slowSince : scope.retries.slowSince)
        let returnsSoon = scope.kind > .group && age < Self.young
        let longest =
            returnsSoon
            ? Self.setAside.lowerBound
            : min(max((now - since) / 2, Self.setAside.lowerBound), Self.setAside.upperBound)
        scopes[Int(id)].usedAt = now
        let earliest = now + longest / 2 + Int64(Double(longest / 2) * share)
        guard !returnsSoon else { return earliest - now }
        scopes[Int(id)].lastDue = max(scope.lastDue + Self.dueInterval, earliest)
        return scopes[Int(id)].lastDue - now
    }

    /// Returns the time of the next possible probe after `now`; `nil` if there is none.
    func nextProbe(after now: Int64) -> Int64? {
        var times = slow.flatMap { [self[$0].fresh.nextProbe, self[$0].retries.nextProbe] }.compactMap(\.self)
        times += silent.values.map(\.next)
        return times.filter { $0 > now }.min()
    }

    /// Allows a probe of an app's scopes at once.
    func probeNow(app: ScopeID, now: Int64) {
        guard let member = members[app] else { return }
        for id in [app, member.endpoint] + member.credentials where id >= 0 {
            scopes[Int(id)].fresh.probeNow(now: now)
            scopes[Int(id)].retries.probeNow(now: now)
        }
        for index in scopes.indices where scopes[index].parent == app {
            scopes[index].fresh.probeNow(now: now)
            scopes[index].retries.probeNow(now: now)
        }
        silent[member.endpoint]?.next = now
    }

    /// Forgets slow scopes that have had no jobs for long. Called about once per second.
    func check(now: Int64) {
        for id in slow where now - self[id].usedAt >= Self.memory {
            if self[id].fresh.isSlow { changes.append(Change(scope: id, isSlow: false)) }
            setGood(id)
        }
        guard hasFailures else { return }
        hasFailures = !isQuiet
        for index in scopes.indices {
            guard let failing = scopes[index].failing else { continue }
            if !scopes[index].isSlow, now - failing.last >= Self.memory {
                scopes[index].failing = nil
            } else {
                hasFailures = true
            }
        }
    }

    var hasChanges: Bool { !changes.isEmpty }

    /// Returns the changes since the last call, without scopes that became slow and good again in the meantime.
    func takeChanges() -> [Change] {
        var taken: [Change] = []
        for change in changes {
            if !change.isSlow, let began = taken.lastIndex(where: { $0.scope == change.scope && $0.isSlow }) {
                taken.remove(at: began)
            } else {
                taken.append(change)
            }
        }
        changes = []
        return taken
    }

    // MARK: Tokens

    /// An accepted token shows for this time that its topic and environment are right, in milliseconds.
    static let proofOfAddress: Int64 = 24 * 3_600_000

    /// Records the first report of APNs that a token is bad.
    /// - Parameter token: a hash of the token.
    func recordBadToken(_ token: Int, at place: ScopePlace) {
        let group = Int(place.group)
        scopes[group].tokens.recordBad(token, accepted: scopes[group].accepted)
        guard place.address >= 0 else { return }
        // A campaign with many bad tokens does not count against its topic, whose other tokens may be good.
        guard scopes[group].tokens.isTrusted(accepted: scopes[group].accepted) != false else { return }
        let address = Int(place.address)
        scopes[address].tokens.recordBad(token, accepted: scopes[address].accepted)
    }

    /// Decides if a report that a token is bad is believed.
    /// - Parameter failedAt: the time of the token's last report; `nil` for the first. Tokens accepted before that report prove nothing,
    ///   because the environment may have changed since.
    func judgeToken(at place: ScopePlace, failedAt: Int64? = nil, now: Int64) -> TokenTrust.Judgement {
        let group = scopes[Int(place.group)]
        let address = scopes[Int(place.address >= 0 ? place.address : place.group)]
        guard address.acceptedAt > max(now - Self.proofOfAddress, failedAt ?? .min) else { return .configuration }
        let isTrusted =
            group.tokens.isTrusted(accepted: group.accepted)
            ?? address.tokens.isMostlyAccepted(accepted: address.accepted)
        return isTrusted ? .believed : .held
    }

    // MARK: Records

    /// Describes the failure of a notification that will be tried again, for ``ScopeRegister``'s records.
    func describe(
        _ set: ScopeSet, at place: ScopePlace, reason: String, status: Int?, job: @autoclosure () -> String?,
        isFresh: Bool, now: Int64
    ) {
        var name: String??
        hasFailures = true
        for kind in ScopeKind.allCases where set.contains(ScopeSet(kind)) && place[kind] >= 0 {
            let id = Int(place[kind])
            var failing: Failing
            if let known = scopes[id].failing, now - known.last < Self.memory {
                failing = known
            } else {
                let wider = scopes[id].parent >= 0 ? scopes[Int(scopes[id].parent)].fresh.proofs : 0
                failing = Failing(
                    reason: reason, since: now, last: now, proved: scopes[id].fresh.proofs, provedBefore: wider)
            }
            scopes[id].failing = nil
            failing.reason = reason
            failing.status = status
            if isFresh || failing.count == 0 { failing.count += 1 }
            failing.last = now
            if failing.jobs.count < 3 {
                if name == nil { name = .some(job()) }
                if case .some(.some(let name)) = name, !failing.jobs.contains(name) { failing.jobs.append(name) }
            }
            scopes[id].failing = failing
        }
    }

    /// The number of notifications of a scope that failed or were accepted since the scope's failures began.
    func sent(_ id: ScopeID) -> Int {
        guard let failing = self[id].failing else { return 0 }
        return failing.count + Int(self[id].fresh.proofs &- failing.proved)
    }

    /// The number of accepted notifications of the containing scope since the scope's failures began.
    func othersDelivered(_ id: ScopeID) -> Int {
        let scope = self[id]
        guard let failing = scope.failing, scope.kind <= .group, scope.parent >= 0 else { return 0 }
        return Int(self[scope.parent].fresh.proofs &- failing.provedBefore)
    }
}

/// The share of accepted tokens among the last 32 distinct tokens of a group. No I/O.
///
/// A worker with the wrong environment or topic gets `BadDeviceToken` or `DeviceTokenNotForTopic` for tokens that are valid elsewhere. So
/// such an answer is believed only while APNs accepts at least half of the other tokens.
struct TokenTrust {
    enum Judgement: Equatable {
        /// The token is invalid.
        case believed
        /// APNs accepts too few tokens of the group, but accepts other tokens of its topic and environment.
        case held
        /// APNs accepts no token, so the topic or the environment of the configuration is wrong.
        case configuration
    }

    private static let most = 32
    /// A group with fewer known tokens is judged with its topic.
    private static let fewest = 8

    /// The last tokens, the newest in the lowest bit. A set bit is an accepted token.
    private var last: UInt32 = 0
    private var known = 0
    private var noted: UInt32 = 0
    /// The hashes of the last bad tokens.
    private var bad: [Int] = []

    /// - Parameter accepted: the number of accepted tokens so far.
    private mutating func add(accepted: UInt32) {
        let new = Int(min(accepted &- noted, UInt32(Self.most)))
        noted = accepted
        guard new > 0 else { return }
        last = new == Self.most ? .max : last << UInt32(new) | (1 << UInt32(new) - 1)
        known = min(known + new, Self.most)
    }

    fileprivate mutating func recordBad(_ token: Int, accepted: UInt32) {
        add(accepted: accepted)
        guard !bad.contains(token) else { return }
        bad.append(token)
        if bad.count > Self.most { bad.removeFirst() }
        last <<= 1
        known = min(known + 1, Self.most)
    }

    /// True while at least half of the last tokens were accepted.
    fileprivate func isMostlyAccepted(accepted: UInt32) -> Bool {
        let (good, known) = share(accepted: accepted)
        return good * 2 >= known
    }

    /// True while at least half of the last tokens were accepted; `nil` while too few are known.
    fileprivate func isTrusted(accepted: UInt32) -> Bool? {
        let (good, known) = share(accepted: accepted)
        return known < Self.fewest ? nil : good * 2 >= known
    }

    /// The number of accepted tokens among the last ones, and the number of all last tokens.
    private func share(accepted: UInt32) -> (accepted: Int, known: Int) {
        var now = self
        now.add(accepted: accepted)
        let mask: UInt32 = now.known == Self.most ? .max : 1 << UInt32(now.known) - 1
        return ((now.last & mask).nonzeroBitCount, now.known)
    }
}
