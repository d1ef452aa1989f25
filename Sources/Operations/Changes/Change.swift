import NIOCore
import PrintableText
import PushQueue
import Redis

/// A change that an operator makes. The command line, the pages and the API run every change in these steps: read its fields, count the
/// things that would change, ask the operator to confirm, change at most the counted things, and record the change in the audit log.
package protocol Change: Sendable {
    var action: AuditEntry.Action { get }

    /// The campaigns and apps that the change names. The operator is warned of other campaigns and apps with similar names.
    var campaigns: [String] { get }
    var apps: [String] { get }

    /// Counts the things that would change.
    /// - Parameter progress: gets the number of things found so far.
    /// - Throws: ``ChangeRefusal`` if the change can't be made; `RedisError`.
    func plan(_ desk: Desk, _ progress: @Sendable (Int) -> Void) async throws -> ChangePlan

    /// Carries out a plan. Changes only things that the plan counted.
    /// - Throws: ``ChangeRefusal`` or, if nothing was changed, `RedisError`.
    func apply(_ plan: ChangePlan, _ desk: Desk, _ control: ChangeControl) async throws -> ChangeResult
}

extension Change {
    package var campaigns: [String] { [] }
    package var apps: [String] { [] }
}

/// Redis, the operator, and other things that changes need.
package struct Desk: Sendable {
    package let fleet: Fleet
    package var invalidTokens: InvalidTokenClient?
    /// The operator's name, and the interface that the operator uses.
    package let person: String
    package let via: AuditEntry.Interface
    package var queues: [QueueKeys]
    /// The reason why ``queues`` may be incomplete, if the operator has chosen all queues.
    package var missingQueues: String?
    /// Queues and apps that are known without Redis.
    package var configuredQueues: [String] = []
    package var configuredApps: [String] = []
    /// The name of the worker that serves the dashboard, if a worker does.
    package var servingWorker: String?
    /// True to accept unknown names.
    package var isForced = false
    /// The end of a message about an unknown name: how to make the change anyway.
    package var forceHint = ""
    /// Returns the reason why a job would become a dead letter of a queue; `nil` if it would not.
    package var check: @Sendable (_ job: ByteBuffer, QueueSource) async throws -> String? = { _, _ in nil }
    /// Gets the error if a change that was made cannot be recorded.
    package var unrecorded: @Sendable (any Error) -> Void

    package init(
        _ fleet: Fleet, invalidTokens: InvalidTokenClient? = nil, person: String, via: AuditEntry.Interface,
        queues: [QueueKeys] = [], unrecorded: @escaping @Sendable (any Error) -> Void
    ) {
        (self.fleet, self.invalidTokens, self.person, self.via) = (fleet, invalidTokens, person, via)
        (self.queues, self.unrecorded) = (queues, unrecorded)
    }

    /// Plans a change, and records a refusal in the audit log.
    package func plan(
        _ change: some Change, _ progress: @Sendable (Int) -> Void = { _ in }
    ) async throws -> ChangePlan {
        do {
            return try await change.plan(self, progress)
        } catch let refusal as ChangeRefusal {
            await record(change, refusal.subject, .refused, detail: refusal.message)
            throw refusal
        }
    }

    /// Carries out a plan, and records its end in the audit log.
    package func apply(
        _ change: some Change, _ plan: ChangePlan, _ control: ChangeControl = ChangeControl()
    ) async throws -> ChangeResult {
        do {
            var result = try await change.apply(plan, self, control)
            let twins = try await twinNotes(of: change, isStopped: control.isStopped)
            if !twins.isEmpty, !result.parts.isEmpty { result.parts[0].notes += twins }
            let error = result.error
            if error != nil || !result.hasNoEffect {
                await record(
                    change, plan.subject, error == nil ? .done : .failed, count: plan.isCounted ? result.count : nil,
                    detail: error ?? plan.detail)
            }
            return result
        } catch let refusal as ChangeRefusal {
            await record(change, plan.subject, .refused, detail: refusal.message)
            throw refusal
        } catch {
            await record(change, plan.subject, .failed, detail: "\(error)")
            throw error
        }
    }

    /// Plans and carries out a change that needs no confirmation, or was confirmed.
    package func perform(_ change: some Change, _ control: ChangeControl = ChangeControl()) async throws -> ChangeResult
    {
        try await apply(change, plan(change), control)
    }

    func onlyQueue() throws -> QueueKeys {
        guard let queue = queues.first, queues.count == 1 else {
            throw ChangeRefusal(
                .invalid, "", "choose one queue: \(queues.names)")
        }
        return queue
    }

    func invalid() throws -> InvalidTokenClient {
        guard let invalidTokens else { throw ChangeRefusal(.invalid, "", "there is no set of invalid tokens here") }
        return invalidTokens
    }

    /// Checks that queues are in the configuration or in Redis.
    /// - Throws: ``ChangeRefusal`` with a suggestion, unless Redis has no queue at all.
    package func checkExistence(of queues: [QueueKeys], _ subject: String = "") async throws {
        for keys in queues where !isForced && !configuredQueues.contains(keys.queue) {
            guard try await QueueOverview.read(fleet.client(for: keys.retry), keys).isEmpty else { continue }
            let known = Set(try await fleet.search().names).union(configuredQueues).subtracting([keys.queue]).sorted()
            guard !known.isEmpty else { return }
            throw ChangeRefusal(.unknown, subject, Self.unknown("queue", keys.queue, known) + forceHint)
        }
    }

    /// Checks that an app is in the configuration, known to a worker, or paused.
    /// - Throws: ``ChangeRefusal`` with a suggestion, unless no app is known at all.
    func checkExistence(ofApp app: String, _ subject: String) async throws {
        guard !isForced else { return }
        let known = try await apps()
        guard !known.isEmpty, !known.contains(app) else { return }
        throw ChangeRefusal(.unknown, subject, Self.unknown("app", app, known) + forceHint)
    }

    /// Returns the names of the apps that the configuration, a worker or a pause has, in ascending order.
    private func apps() async throws -> [String] {
        Set(try await StatusReader(fleet, apps: configuredApps).read(fleet.queues().keys).apps.map(\.name)).sorted()
    }

    /// Returns a note that the name of a campaign may be wrong, because no queue knows it; `nil` if the queues know no campaign at all. The
    /// change is not refused, because it may be made before the campaign begins.
    func doubt(aboutCampaign campaign: String, isStopped: () -> Bool) async throws -> String? {
        let names = try await CampaignStatus.names(in: queues, fleet, isStopped: isStopped)
        return names.isEmpty || names.contains(Name(campaign))
            ? nil : Self.unknown("campaign", campaign, names.sorted().map(\.text))
    }

    /// Returns a sentence for each other campaign or app whose name looks like a name in the change.
    package func twinNotes(
        of change: some Change, isStopped: @escaping @Sendable () -> Bool = { false }
    ) async throws -> [String] {
        func notes(_ noun: String, _ names: [String], _ known: () async throws -> [String]) async throws -> [String] {
            guard !names.isEmpty else { return [] }
            let known = try await known()
            return names.flatMap { name in
                known.twins(of: name).map {
                    "\(noun) \"\($0.shown)\" looks like \"\(name.shown)\" and is not changed"
                }
            }
        }
        let campaigns = try await notes("campaign", change.campaigns) {
            try await CampaignStatus.names(in: queues, fleet, isStopped: isStopped).sorted().map(\.text)
        }
        return try await campaigns + notes("app", change.apps, apps)
    }

    /// Calls `body` for all queues at the same time, so an unreachable queue does not delay the other queues.
    /// - Returns: the results, in the order of the queues.
    /// - Throws: the first error if all queues fail, or an error that is not from Redis.
    func inEachQueue<Value: Sendable>(
        _ body: @escaping @Sendable (QueueKeys) async throws -> Value
    ) async throws -> [(keys: QueueKeys, result: Result<Value, any Error>)] {
        let results = try await queues.concurrentMap { keys -> Result<Value, any Error> in
            do {
                return .success(try await body(keys))
            } catch let error as any RedisFailure {
                return .failure(error)
            }
        }
        if let first = results.first, results.allSatisfy({ if case .failure = $0 { true } else { false } }) {
            _ = try first.get()
        }
        return zip(queues, results).map { ($0, $1) }
    }

    /// Changes all queues at the same time.
    /// - Parameter key: the key that is written.
    /// - Returns: the parts of the result. For a queue that can't be written, the part names the key.
    func changeEach(
        _ key: (QueueKeys) -> String, _ body: @escaping @Sendable (QueueKeys) async throws -> ChangePart
    ) async throws -> [ChangePart] {
        try await inEachQueue(body).map { keys, result in
            switch result {
            case .success(let part): part
            case .failure(let error): .unwritten(keys, key(keys), error)
            }
        }
    }

    package static func unknown(_ what: String, _ name: String, _ known: [String]) -> String {
        let meant = name.nearest(of: known).map { "; did you mean \($0.shown)?" } ?? "."
        let shown = known.prefix(20).map(\.shown).joined(separator: ", ") + (known.count > 20 ? ", …" : "")
        return "unknown \(what) \(name.shown)\(meant) Known: \(shown)."
    }

    private func record(
        _ change: some Change, _ subject: String, _ ending: AuditEntry.Ending, count: Int? = nil, detail: String? = nil
    ) async {
        await record(
            AuditEntry(change.action, subject, by: person, count: count, detail: detail, ending: ending, via: via))
    }

    /// Records an entry. If that fails after a completed change, the change still succeeds, and ``unrecorded`` gets the error. After a
    /// refused or failed change, only the error of the change is reported.
    package func record(_ entry: AuditEntry) async {
        do { try await fleet.record(entry) } catch { if entry.ending == .done { unrecorded(error) } }
    }
}

package struct ChangeRefusal: Error, Sendable, CustomStringConvertible {
    package enum Kind: Sendable {
        /// The fields contradict the state in Redis.
        case invalid
        /// A name is not known.
        case unknown
        /// The state does not allow the change, perhaps because another operator was faster.
        case conflict
    }

    package let kind: Kind
    /// The thing that the change is about, in words.
    package let subject: String
    /// The problem and the remedy.
    package let message: String

    package init(_ kind: Kind, _ subject: String, _ message: String) {
        (self.kind, self.subject, self.message) = (kind, subject, message)
    }

    package var description: String { message }
}

/// The functions that a change calls while it is carried out.
package struct ChangeControl: Sendable {
    /// Gets the number of things that were changed so far.
    package var progress: @Sendable (Int) -> Void = { _ in }
    /// Gets the name of a phase, to show it with the progress. The last phase has no name.
    package var phase: @Sendable (String) -> Void = { _ in }
    /// Gets a message for the operator, such as the reason of a wait.
    package var note: @Sendable (String) -> Void = { _ in }
    package var isStopped: @Sendable () -> Bool = { false }

    package init() {}
}

package struct ChangePlan: Sendable {
    /// The thing that is changed, in words for the audit log, such as `queue default, reason=UnknownApp`.
    package var subject: String
    /// The operator's reason or another detail for the audit log.
    package var detail: String?
    /// The question to confirm; `nil` for a change that is easily undone.
    package var question: String?
    /// The change in the imperative, such as `Requeue 3 jobs`, and its past participle, such as `requeued`.
    package var command = "Continue"
    package var verb = "changed"
    /// The state of the remaining things if the change is stopped, in words.
    package var rest = "the others are unchanged"
    /// One part for each queue, or for each other thing that is changed.
    package var parts: [ChangePart]
    /// Facts that the operator should know before answering the question.
    package var notes: [String] = []
    /// False for a change of one thing, which needs no count.
    package var isCounted = true
    /// True if the change has an effect even if nothing was counted.
    package var actsOnNothing = false
    /// Redis' time of the count, in milliseconds since 1970.
    package var at: Int64 = 0

    package init(_ subject: String, parts: [ChangePart] = []) { (self.subject, self.parts) = (subject, parts) }

    package var count: Int { parts.reduce(0) { $0 + $1.count } }

    package var isEmpty: Bool { isCounted && count == 0 && !actsOnNothing }

    package var groups: [String: Int] { parts.reduce(into: [:]) { $0.merge($1.groups) { $0 + $1 } } }
}

/// The effect that a change would have on one queue, or has had.
package struct ChangePart: Sendable {
    package var queue: String?
    /// The name of the changed thing, if it is not a queue.
    package var subject: String?
    /// The names of the things that were changed, if the opposite change needs them.
    package var changed: [String] = []
    package var count = 0
    /// The numbers of things by state or by reason.
    package var groups: [String: Int] = [:]
    /// The number of notifications of the counted jobs.
    package var notifications = 0
    /// Jobs that match and can't be changed, because workers have claimed them.
    package var claimed = 0
    /// The number of things that were examined, changed or not.
    package var looked = 0
    package var sentence = ""
    /// The consequences of the result, in sentences.
    package var explanation: String?
    /// Facts to know about the result.
    package var notes: [String] = []
    /// The error that ended the work early, or prevented it.
    package var error: String?
    /// The result for programs; `nil` if the other members contain all of it.
    package var report: (any Encodable & Sendable)?

    package init(_ queue: String? = nil, count: Int = 0) { (self.queue, self.count) = (queue, count) }

    /// The part of a queue whose key can't be written.
    static func unwritten(_ keys: QueueKeys, _ key: String, _ error: any Error) -> ChangePart {
        var part = ChangePart(keys.queue)
        part.error = "queue \(keys.queue) is unchanged, because \(key) can't be written: \(error)"
        return part
    }
}

package struct ChangeResult: Sendable {
    package var parts: [ChangePart]
    /// True if there was nothing to do, as for a queue that is paused already.
    package var hasNoEffect = false
    /// A reason to check the result although it is complete, such as an unknown name.
    package var doubt: String?

    package init(_ parts: [ChangePart], hasNoEffect: Bool = false) {
        (self.parts, self.hasNoEffect) = (parts, hasNoEffect)
    }

    package var count: Int { parts.reduce(0) { $0 + $1.count } }
    package var sentence: String { parts.map(\.sentence).filter { !$0.isEmpty }.joined(separator: "; ") }
    /// The sentences and their explanations.
    package var words: String {
        ([sentence] + parts.compactMap(\.explanation) + [doubt ?? ""]).filter { !$0.isEmpty }.joined(separator: ". ")
    }
    package var notes: [String] { parts.flatMap(\.notes) }
    package var error: String? {
        let errors = parts.compactMap(\.error)
        return errors.isEmpty ? nil : errors.joined(separator: "; ")
    }
}

extension [QueueKeys] {
    /// The names of the queues, such as `bulk, default`.
    var names: String { map(\.queue.printable).joined(separator: ", ") }

    /// The names after their noun, such as `queues bulk, default`.
    var inWords: String { "\(count == 1 ? "queue" : "queues") \(names)" }

    /// The names after their noun, or the number of many queues.
    var briefly: String { count > 10 ? Words.count(count, "queue") : inWords }
}
