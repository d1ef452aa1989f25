/// The known ends of all notifications, from APNs and from Redis.
struct Ledger {
    struct Entry {
        /// The number of times that APNs accepted the notification.
        var accepted: UInt16 = 0
        /// The number of dead letters about the notification.
        var letters: UInt8 = 0
        /// True if a dead letter was written because workers repeatedly died while they had the job.
        var isPoison = false
        var isInvalid = false
    }

    /// The number of notifications of each sort. Without problems, each notification is of exactly one sort.
    struct Sums: Encodable {
        /// Notifications that APNs accepted, and that are in no dead letter.
        var accepted = 0
        /// The part of ``accepted`` that could have expired or been dropped.
        var acceptedAndMayLapse = 0
        var invalid = 0
        /// Notifications in a dead letter that APNs never accepted.
        var dead = 0
        /// Notifications in a dead letter although APNs accepted them: the answers were lost, or the job was poison.
        var acceptedAndDead = 0
        /// Expired or dropped notifications, which are neither accepted nor invalid nor dead.
        var lapsed = 0
        /// Acceptances beyond the first.
        var duplicates = 0
        /// Dead letters of whole jobs with many tokens: Redis counts each as one.
        var uncountedDead = 0
        var poison = 0
        /// Copies of jobs with unique_for.
        var copies = 0
        /// Notifications of the campaign.
        var ofCampaign = 0
    }

    let maker: JobMaker
    private let queue: HotQueue
    private(set) var entries: [Entry] = []
    /// The place of each job's first notification among the entries.
    private(set) var starts: [Int32] = []
    private(set) var sums = Sums()
    private(set) var problems = Problems()
    /// Dead letters of whole jobs with several notifications.
    private var uncountedDead = 0

    init(_ maker: JobMaker, _ queue: HotQueue) {
        self.maker = maker
        self.queue = queue
        var total = 0
        starts.reserveCapacity(maker.count)
        for number in 0..<maker.count {
            starts.append(Int32(total))
            total += maker.notifications(number)
        }
        entries = Array(repeating: Entry(), count: total)
    }

    // MARK: Recording

    mutating func accepted(_ token: Substring, _ times: Int) {
        guard let index = index(of: token) else { return problems.add("APNs accepted an unknown token", "\(token)") }
        entries[index].accepted = UInt16(clamping: times)
    }

    mutating func invalid(_ token: String) {
        guard let index = index(of: token) else { return problems.add("an unknown token is in the invalid set", token) }
        entries[index].isInvalid = true
    }

    mutating func dead(_ letter: QueueRemains.Letter) {
        guard let number = JobMaker.number(of: letter.original), number < maker.count else {
            return problems.add("a dead letter is of an unknown job", String(letter.header.reason))
        }
        if queue.names[queue.queue(of: number)] != letter.queue {
            problems.add("a dead letter is in another queue than its job", "chaos-\(number) in \(letter.queue)")
        }
        let kind = maker.kind(number)
        // A piece of a split job has the original without its tokens.
        if !kind.isSplit, letter.original != maker.body(number) {
            problems.add("a dead letter has other bytes than were pushed", "chaos-\(number)")
        }
        if let tokens = letter.header.tokens {
            for token in tokens {
                guard let place = maker.place(of: token), place.number == number else {
                    problems.add("a dead letter has an unknown token", "chaos-\(number)")
                    continue
                }
                bury(place.number, place.index, letter)
            }
        } else {
            let count = maker.notifications(number)
            for index in 0..<count { bury(number, index, letter) }
            uncountedDead += count - 1
        }
    }

    mutating func unsettled(_ body: [UInt8], in place: String) {
        let name = JobMaker.number(of: body).map { "chaos-\($0)" } ?? "an unknown job"
        problems.add("stuck", "\(name) in \(place)")
    }

    private mutating func bury(_ number: Int, _ index: Int, _ letter: QueueRemains.Letter) {
        let place = Int(starts[number]) + index
        entries[place].letters += 1
        if letter.header.reason == "Poison" {
            entries[place].isPoison = true
        } else if letter.header.reason != maker.kind(number, index).expectation.reason {
            let name = "chaos-\(number)/\(index) (\(maker.kind(number, index))): \(letter.header.reason)"
            problems.add("dead for another reason than it should be", name)
        }
    }

    private func index(of token: some StringProtocol) -> Int? {
        maker.place(of: token).map { Int(starts[$0.number]) + $0.index }
    }

    // MARK: Adding up

    /// Checks that each notification has exactly one end, and that this end is possible for its kind.
    mutating func close() {
        sums.uncountedDead = uncountedDead
        for number in 0..<maker.count {
            sums.copies += maker.copies(number) - 1
            for index in 0..<maker.notifications(number) {
                let kind = maker.kind(number, index)
                let entry = entries[Int(starts[number]) + index]
                if maker.kind(number).isOfCampaign { sums.ofCampaign += 1 }
                close(entry, kind.expectation, "chaos-\(number)/\(index) (\(kind))")
            }
        }
    }

    private mutating func close(_ entry: Entry, _ expectation: Expectation, _ name: @autoclosure () -> String) {
        let wasAccepted = entry.accepted > 0
        if wasAccepted {
            sums.duplicates += Int(entry.accepted) - 1
            if !expectation.mayBeAccepted { problems.add("accepted though it could not be", name()) }
        }
        if entry.isInvalid {
            sums.invalid += 1
            if entry.letters > 0 { problems.add("both invalid and dead", name()) }
            if wasAccepted { problems.add("both accepted and invalid", name()) }
            if !expectation.ends.contains(.invalid) { problems.add("invalid though its token is not", name()) }
        } else if entry.letters > 0 {
            if wasAccepted { sums.acceptedAndDead += 1 } else { sums.dead += 1 }
            if entry.isPoison { sums.poison += 1 }
            if entry.letters > 1 { problems.add("in several dead letters", name()) }
            if !entry.isPoison, !expectation.ends.contains(.dead) {
                problems.add("dead though it should not be", name())
            }
        } else if wasAccepted {
            sums.accepted += 1
            if expectation.ends.contains(.lapsed) {
                sums.acceptedAndMayLapse += 1
            } else if !expectation.ends.contains(.delivered), expectation.mayBeAccepted {
                problems.add("accepted, and not kept as the dead letter that it should be", name())
            }
        } else {
            sums.lapsed += 1
            if !expectation.ends.contains(.lapsed) { problems.add("lost", name()) }
        }
    }
}

/// The problems by kind, each with its count and its first instances by name.
struct Problems: Encodable {
    struct Sort: Encodable {
        var count = 0
        var examples: [String] = []
    }

    private static let examples = 20
    private(set) var sorts: [String: Sort] = [:]

    var isEmpty: Bool { sorts.isEmpty }

    mutating func add(_ what: String, _ example: String) {
        sorts[what, default: Sort()].count += 1
        if sorts[what, default: Sort()].examples.count < Self.examples { sorts[what]?.examples.append(example) }
    }

    mutating func add(_ other: Problems) {
        sorts.merge(other.sorts) { one, other in
            Sort(count: one.count + other.count, examples: Array((one.examples + other.examples).prefix(Self.examples)))
        }
    }
}
