import NIOCore
import Operations
import PrintableText
import PushJob
import PushQueue
import PushWorker
import Redis

extension QueueState {
    /// Warns on standard error about conditions that prevent jobs from being sent.
    func warn() { for note in notes { Terminal.note("note: \(note)\n") } }
}

/// Checks jobs before they are enqueued.
struct EnqueueCheck {
    /// A job that can be enqueued.
    struct Accepted {
        var job: ByteBuffer
        /// Its existing or new ID; `nil` for a wrapped job without an ID.
        var id: String?
        /// The app that the job names.
        var app: String?
        var hints: [Hint] = []
    }

    let format: JobFormat
    /// The names of the workers' apps; `nil` if unknown.
    let apps: Set<String>?
    /// True to refuse jobs with likely mistakes.
    var isStrict = false
    /// Members for a job that does not have them: the ID in place of a new ID, `unique_for` in seconds, and the app.
    var id: String?
    var uniqueFor: Int?
    var app: String?

    /// Checks a job, and adds the members that it lacks.
    /// - Throws: ``Mistake``, the reason why the job is not enqueued.
    func prepare(_ body: ByteBuffer) throws(Mistake) -> Accepted {
        let review = JobCheck.review(body, as: format, now: Moment.now)
        if let defect = review.defect {
            // A job that lacks only its ID gets an ID.
            if let named = named(body) { return try prepare(named) }
            throw Mistake(defect)
        }
        guard let job = review.job else { throw Mistake("the job cannot be read") }
        let named = job.app.map { String(buffer: job.text($0)) }
        if let name = named ?? app, let unknown = unknownApp(name) {
            throw Mistake(unknown)
        }
        if isStrict, let hint = review.hints.first { throw Mistake(hint.detail) }
        var accepted = Accepted(
            job: body, id: job.id.map { String(buffer: job.text($0)) }, app: named ?? app, hints: review.hints)
        let needsID = accepted.id == nil
        var members: [(name: String, value: String)] = []
        // A job can't have both `replaces` and `unique_for`.
        let uniqueFor = job.replaces == nil ? uniqueFor : nil
        if job.uniqueFor == nil, let uniqueFor { members.append(("unique_for", "\"\(uniqueFor)s\"")) }
        if named == nil, let app { members.append(("app", Self.json(app))) }
        guard needsID || !members.isEmpty else { return accepted }
        guard !job.envelope.isWrapped else {
            // No member can be inserted, because a worker's wrapper must begin with its mark.
            guard let member = members.first else { return accepted }
            throw Mistake("`\(member.name)` cannot be added to a job in a worker's wrapper")
        }
        if format != .native, let member = members.first {
            throw Mistake("`\(member.name)` cannot be added to a job in Sidekiq's form; set it in the job")
        }
        for member in members { accepted.job = NewID.insert(member.name, member.value, into: accepted.job) }
        if needsID {
            let id = self.id ?? NewID.make()
            accepted.job = NewID.insert(id, into: accepted.job, as: format)
            accepted.id = id
        }
        let isComplete = (try? JobDecoder.decode(accepted.job, as: format)).map { job in
            job.id.map { String(buffer: job.text($0)) } == accepted.id && (uniqueFor == nil || job.uniqueFor != nil)
                && job.app.map { String(buffer: job.text($0)) } == accepted.app
        }
        guard isComplete == true else {
            let names = (needsID ? ["id"] : []) + members.map(\.name)
            throw Mistake("\(names.joined(separator: ", ")) cannot be added to the job")
        }
        return accepted
    }

    /// Returns the job with an ID, if its only mistake is a `replaces` without an ID.
    private func named(_ body: ByteBuffer) -> ByteBuffer? {
        do throws(JobError) {
            _ = try JobDecoder.decode(body, as: format)
        } catch .missingID(.replaces) {
            return NewID.insert(id ?? NewID.make(), into: body, as: format)
        } catch {}
        return nil
    }

    private static func json(_ text: String) -> String {
        var buffer = ByteBuffer()
        buffer.writeJSONString(text)
        return String(buffer: buffer)
    }

    /// Returns the problem of a job whose app no worker has.
    private func unknownApp(_ name: String) -> String? {
        guard let apps, !apps.contains(name) else { return nil }
        let known = apps.sorted()
        let hint =
            name.nearest(of: known).map { "; did you mean \($0)?" } ?? "; they have \(known.joined(separator: ", "))"
        return "no worker has an app \(name.printable)\(hint.printable)"
    }
}

/// Notes about lines. The first line of a kind is printed at once, and the number of further lines at the end.
struct LineNotes {
    /// A kind of note, as `--json` prints it.
    struct Kind: Encodable {
        /// The first line with the note, counted from 1.
        let line: Int
        /// The count of lines with the note.
        var lines = 1
        /// The rule of a hint; `nil` for a refusal.
        let hint: String?
        /// The message about the first line.
        let message: String
        /// The numbers of up to three further lines.
        var others: [Int] = []

        enum CodingKeys: String, CodingKey { case line, lines, hint, message }
    }

    private var order: [String] = []
    private var kinds: [String: Kind] = [:]

    mutating func refused(_ refusal: Mistake, line: Int) {
        // Texts of one kind differ only in numbers, such as positions and sizes.
        note("\(refusal)".filter { !$0.isNumber }, nil, "\(refusal)", line, "line \(line): \(refusal)")
    }

    mutating func found(_ hint: Hint, line: Int) {
        note(
            "\(hint.rule.rawValue) \(hint.subject)", hint.rule, hint.detail, line, "line \(line): note: \(hint.detail)")
    }

    private mutating func note(
        _ kind: String, _ rule: Hint.Rule?, _ message: String, _ line: Int, _ text: String
    ) {
        guard kinds[kind] == nil else {
            kinds[kind]?.lines += 1
            if kinds[kind]?.others.count ?? 3 < 3 { kinds[kind]?.others.append(line) }
            return
        }
        order.append(kind)
        kinds[kind] = Kind(line: line, hint: rule?.rawValue, message: message)
        Terminal.note(text + "\n")
    }

    /// Writes the numbers of lines to standard error and, for programs, all kinds to standard output.
    func summarize(isJSON: Bool) throws {
        for kind in order.compactMap({ kinds[$0] }) {
            if kind.lines > 1 {
                let others = kind.others.map(String.init).joined(separator: ", ")
                let more = kind.lines - 1 > kind.others.count ? ", …" : ""
                Terminal.note("line \(kind.line) and \(kind.lines - 1) more (\(others)\(more)): the same note\n")
            }
            if isJSON { Terminal.print(try JSONLine.text(kind) + "\n") }
        }
    }
}
