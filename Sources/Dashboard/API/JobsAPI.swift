import HTTPTypes
import Hummingbird
import NIOCore
import Operations
import PrintableText
import PushJob
import PushQueue
import Redis
import Synchronization
import WebPages

/// `POST /api/v1/jobs`: enqueues all jobs of a request or none, for producers and operators.
///
/// It answers after Redis has answered, so the jobs of an answered request outlive this process.
final class JobsAPI: Sendable {
    private let site: Site
    private let limits = Mutex(RefusalLimits())

    init(site: Site) { self.site = site }

    /// `Retry-After` in seconds for a producer without credit, for a list that is too long, and for a nearly full Redis.
    private static let (creditPause, listPause, memoryPause) = (1, 5, 10)
    /// The lifetime of an `Idempotency-Key` in seconds. In this time, its jobs are sent only once.
    private static let uniqueFor = 86_400

    func add(to routes: RouterGroup<WebContext>) {
        routes.post("/api/v1/jobs") { [self] request, context in try await answer(request, context) }
    }

    private func answer(_ request: Request, _ context: WebContext) async throws -> Response {
        let visitor = context.visitor
        guard !site.configuration.isReadOnly else { throw WebError(.forbidden, "this dashboard is read-only") }
        guard visitor.role != .viewer else {
            throw WebError(.forbidden, "only operators and producers can enqueue jobs")
        }
        try Self.checkCoding(request)
        guard visitor.role == .producer, let name = visitor.name else { return try await enqueue(request, context) }
        let credit = limits.withLock { $0.take(name, now: .now()) }
        guard credit == .granted else {
            if credit == .refusedFirst {
                site.logger.warning(
                    "refusing requests of a producer: too many had mistakes",
                    metadata: ["event": "web_producer_limited", "user": "\(name.printable)"])
            }
            throw WebError(
                .tooManyRequests,
                "too many requests of \(name) had mistakes, or are in progress; fix them, or send fewer",
                retryAfter: Self.creditPause)
        }
        var hasMistakes = false
        defer { if !hasMistakes { limits.withLock { $0.giveBack(name, now: .now()) } } }
        do {
            let response = try await enqueue(request, context)
            hasMistakes = response.status.kind == .clientError
            return response
        } catch let error as WebError {
            hasMistakes = error.status.kind == .clientError && error.status != .tooManyRequests
            throw error
        } catch let error as FieldMistake {
            hasMistakes = true
            throw error
        }
    }

    // MARK: A request

    private func enqueue(_ request: Request, _ context: WebContext) async throws -> Response {
        let visitor = context.visitor
        let query = Fields(request.uri.query ?? "")
        try query.refusingEmpty.check([Field("queue"), Field("strict", .flag)])
        let place = try await site.data.destination(destination(query, visitor))
        let keys = place.source.keys
        let key = try Self.idempotencyKey(request)
        if let memory = try await site.data.memory(of: keys.jobs), memory.isNearlyFull {
            throw WebError(
                .tooManyRequests, "Redis is nearly full: \(memory.memoryInWords ?? ""); nothing was enqueued",
                retryAfter: Self.memoryPause)
        }
        let jobs = try RequestJobs(context.body)
        var terms = DashboardSource.JobTerms()
        (terms.apps, terms.isStrict) = (place.state.apps, try query.isSet("strict"))
        if key != nil { terms.uniqueFor = Self.uniqueFor }
        if let apps = visitor.producer?.apps, apps.count == 1 { terms.app = apps[0] }

        var accepted: [DashboardSource.EnqueuedJob] = []
        accepted.reserveCapacity(jobs.items.count)
        var refused = RefusedJobs(unit: jobs.unit)
        var hints = HintList()
        for (index, item) in jobs.items.enumerated() {
            terms.id = key.map { Self.id(visitor.name ?? "", keys.queue, $0, index + 1) }
            do {
                let job = try site.source.prepare(item.text, place.source, terms)
                if let problem = Self.refusal(of: job.app, visitor.producer) {
                    refused.append(item.number, problem, isForbidden: true)
                } else {
                    for hint in job.hints { hints.append(hint, item.number) }
                    accepted.append(job)
                }
            } catch {
                refused.append(item.number, "\(error)")
            }
        }
        guard refused.count == 0 else { return try refused.response(of: jobs.items.count) }

        var answer = EnqueuedAnswer(
            queue: keys.queue, enqueued: accepted.count, ids: accepted.map(\.id), hints: hints.kinds,
            notes: place.state.notes)
        let request = key.map { key in
            JobPush.Request(
                name: Digest.sha256("\(visitor.name ?? "")\n\(key)").prefix(16).hex, digest: jobs.digest,
                seconds: Self.uniqueFor)
        }
        if let note = try await push(accepted.map(\.body), request, place.client, keys, visitor) {
            answer.notes.append(note)
        }
        return .json(bytes: try answer.json().utf8, status: .accepted)
    }

    /// Returns the queue that a request names, or else the only queue of its producer.
    private func destination(_ query: Fields, _ visitor: Visitor) async throws -> QueueKeys {
        let named = query.all("queue")
        guard named.count <= 1 else {
            throw WebError(.badRequest, "name only one queue; all jobs of a request go to the same queue")
        }
        guard let producer = visitor.producer else {
            guard let name = named.first else { throw WebError(.badRequest, "queue is missing; add ?queue=NAME") }
            return try await site.data.queues(named: [name])[0]
        }
        let list = producer.queues.joined(separator: ", ")
        guard let name = named.first ?? (producer.queues.count == 1 ? producer.queues[0] : nil) else {
            throw WebError(.badRequest, "queue is missing; add ?queue=NAME with one of \(list)")
        }
        guard producer.queues.contains(name) else {
            throw WebError(.forbidden, "this token is not for queue \(name.printable); its queues: \(list)")
        }
        // A producer may enqueue to a queue that does not exist yet; an operator may not.
        return try QueueKeys(prefix: site.source.fleet.prefix, queue: name)
    }

    /// Returns the reason why a producer may not enqueue a job for an app; `nil` if it may.
    private static func refusal(of app: String?, _ producer: ProducerRights?) -> String? {
        guard let producer, !producer.apps.isEmpty else { return nil }
        let list = producer.apps.joined(separator: ", ").printable
        // A job without `app` is sent by the app with its topic, which may be another app.
        guard let app else { return "the job names no app; this token is only for \(list)" }
        return producer.apps.contains(app) ? nil : "this token is not for app \(app.printable); its apps: \(list)"
    }

    private static func idempotencyKey(_ request: Request) throws -> String? {
        guard let key = request.headers[HTTPField.Name("Idempotency-Key")!] else { return nil }
        guard (1...255).contains(key.utf8.count) else {
            throw WebError(.badRequest, "Idempotency-Key must have 1 to 255 bytes")
        }
        return key
    }

    /// Refuses an encoded body, because it would be read as if it were not encoded.
    private static func checkCoding(_ request: Request) throws {
        if let coding = request.headers[.contentEncoding], coding.lowercased() != "identity" {
            throw WebError(
                .unsupportedMediaType, "the body is encoded (\(coding.printable)); send it without Content-Encoding")
        }
        if let coding = request.headers[.transferEncoding], coding.lowercased() != "chunked" {
            throw WebError(.notImplemented, "the transfer coding \(coding.printable) is not supported; use chunked")
        }
    }

    /// Returns the ID for a job without an ID. It is the same in each request with the same key and the same jobs, because it depends on
    /// the job's number and not on its line.
    private static func id(_ user: String, _ queue: String, _ key: String, _ number: Int) -> String {
        // The key is last, because only the key can contain a line feed. So different parts never make the same text.
        Digest.sha256("\(user)\n\(queue)\n\(number)\n\(key)").prefix(12).hex
    }

    /// Pushes jobs, and adds them to the totals of their campaigns.
    /// - Returns: a note if the jobs are enqueued but the totals could not be changed.
    private func push(
        _ jobs: [ByteBuffer], _ request: JobPush.Request?, _ client: RedisClient, _ keys: QueueKeys, _ visitor: Visitor
    ) async throws -> String? {
        do {
            let maximum = visitor.producer?.maximumQueueLength
            let outcome: JobPush.Outcome
            do {
                outcome = try await JobPush.push(jobs, client, keys, maximumLength: maximum, request: request)
            } catch RedisError.notConnected {
                // Nothing was sent, so it is safe to push again. Waiting for the connection before each push would cost two hops between
                // event loops.
                let ready = try await site.source.fleet.client(for: keys.jobs)
                outcome = try await JobPush.push(jobs, ready, keys, maximumLength: maximum, request: request)
            }
            switch outcome {
            case .pushed: break
            case .repeated: return nil
            case .otherRequest:
                throw WebError(
                    .unprocessableContent,
                    "this Idempotency-Key was used for other jobs; nothing was enqueued. Use a new key for each request"
                )
            case .listIsTooLong(let length):
                throw WebError(
                    .tooManyRequests,
                    "queue \(keys.queue) has \(Words.count(length, "waiting job")); nothing was enqueued",
                    retryAfter: Self.listPause)
            }
        } catch RedisError.server(let error) where error.prefix == "OOM" {
            throw WebError(
                .tooManyRequests, "Redis is full, and nothing was enqueued; try again later",
                retryAfter: Self.memoryPause)
        } catch let error as RedisError {
            throw WebError(
                .serviceUnavailable,
                error.mayHaveBeenExecuted
                    ? "Redis did not answer: \(error). Either all jobs are enqueued or none. Repeat the request with the same "
                        + "Idempotency-Key, so that they are sent only once"
                    : "Redis: \(error). Nothing was enqueued")
        }
        if visitor.role == .operator {
            let desk = try await site.desk(visitor)
            await desk.record(
                AuditEntry(.testSend, "queue \(keys.queue)", by: visitor.by, count: jobs.count, via: .web))
        }
        do {
            // The totals remain open, because further requests can belong to the same campaigns.
            try await CampaignCounts.addTotals(of: jobs, isOpen: true, client, keys)
            return nil
        } catch let error as RedisError {
            // Returns a note instead of an error. After an error, the producer would enqueue the jobs again.
            return "the totals of campaigns were not counted: \(error)"
        }
    }
}

struct EnqueuedAnswer {
    let queue: String
    let enqueued: Int
    /// The ID of each job; `nil` for a job in a worker's wrapper without an ID.
    let ids: [String?]
    let hints: [HintList.Kind]
    var notes: [String]

    /// Returns the answer as JSON. `JSONEncoder` writes only the hints and notes, because it would take most of the time of a small
    /// request.
    func json() throws -> String {
        var text = ByteBuffer()
        text.reserveCapacity(256 + 32 * ids.count)
        text.writeString(
            #"{"enqueued":\#(enqueued),"hints":\#(hints.isEmpty ? "[]" : try JSONLine.text(hints)),"ids":["#)
        for (number, id) in ids.enumerated() {
            if number > 0 { text.writeStaticString(",") }
            if let id { text.writeJSONString(id) } else { text.writeStaticString("null") }
        }
        text.writeString(#"],"notes":\#(notes.isEmpty ? "[]" : try JSONLine.text(notes)),"queue":"#)
        text.writeJSONString(queue)
        text.writeStaticString("}")
        return JSONLine.escaped(String(buffer: text))
    }
}

/// The likely mistakes in the jobs of a request, each kind once.
struct HintList {
    struct Kind: Encodable {
        /// The number of the first job with this mistake. ``jobs`` is the number of all such jobs.
        let first: Int
        var jobs = 1
        let hint, message: String
    }

    private(set) var kinds: [Kind] = []
    private var places: [String: Int] = [:]

    mutating func append(_ hint: DashboardSource.JobHint, _ number: Int) {
        if let place = places[hint.kind] {
            kinds[place].jobs += 1
        } else {
            places[hint.kind] = kinds.count
            kinds.append(Kind(first: number, hint: hint.rule, message: hint.message))
        }
    }
}

private struct RefusedJobs {
    struct Job: Encodable {
        let number: Int
        let error: String
    }

    private struct Answer: Encodable {
        let error: String
        let refused: [Job]
    }

    private static let listed = 100

    let unit: String
    private(set) var count = 0
    private var jobs: [Job] = []
    private var areForbidden = true

    init(unit: String) { self.unit = unit }

    mutating func append(_ number: Int, _ error: String, isForbidden: Bool = false) {
        count += 1
        areForbidden = areForbidden && isForbidden
        if jobs.count < Self.listed { jobs.append(Job(number: number, error: error)) }
    }

    /// Returns the answer, with status 403 if the producer's rights are the only reason, and 400 otherwise.
    func response(of all: Int) throws -> Response {
        let first = jobs.first.map { all == 1 ? $0.error : "\(unit) \($0.number): \($0.error)" } ?? ""
        let rest = count > 1 ? "; \(count) of \(Words.count(all, "job")) are refused" : ""
        return try .json(
            Answer(error: "\(first)\(rest); nothing was enqueued", refused: jobs),
            status: areForbidden ? .forbidden : .badRequest)
    }
}
