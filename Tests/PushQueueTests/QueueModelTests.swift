import NIOCore
import QueueTestSupport
import TestSupport
import Testing

@testable import PushJob
@testable import PushQueue

/// Lanes that claim, settle, die, return, reclaim and release in random order, and an account of where each job is.
@Suite("A queue with workers that act at random times")
struct QueueModelTests {
    @Test("every job is in one place at any time, and ends once", arguments: 1...8)
    func everyJobIsAccountedFor(seed: UInt64) async throws {
        try await withQueue { queue in
            var model = Model(seed: seed, queue: queue)
            for _ in 0..<250 {
                try await model.step()
                try model.check()
            }
            try await model.finish()
            try model.check()
            #expect(model.ended.count + model.buried == model.pushed)
            #expect(model.duplicates > 0 && model.reservedJobs.count > 5)
            #expect(model.ended.count > 20 && model.buried > 5 && model.reclaimed > 5)
        }
    }
}

private struct Model {
    private struct Worker {
        let connection: TestWorker
        var hasJoined = false
        var next = 1
        var lastClaim: (count: Int, first: Int)?
        var lastBatch: Settlement?
    }

    private static let limits = QueueLimits {
        ($0.maximumReclaims, $0.maximumJobSize, $0.maximumClaimSize) = (4, 400, 900)
    }

    private let queue: TestQueue
    private let sorts: Bool
    private var random: SeededGenerator
    private var workers: [Worker] = []
    private var names = 0
    private(set) var pushed = 0
    /// The numbers of jobs whose settlement Redis has accepted.
    private(set) var ended: Set<Int> = []
    private(set) var buried = 0
    private(set) var reclaimed = 0
    /// The numbers of the jobs that have reserved ids, and their origins.
    private var reservedIDs: [String: (job: Int, origin: ByteBuffer)] = [:]
    /// The numbers of jobs that have got a reservation.
    private(set) var reservedJobs: Set<Int> = []
    private(set) var duplicates = 0

    init(seed: UInt64, queue: TestQueue) {
        random = SeededGenerator(seed: seed)
        self.queue = queue
        sorts = seed.isMultiple(of: 2)
        for _ in 0..<4 { addWorker() }
    }

    private mutating func addWorker() {
        workers.append(Worker(connection: queue.worker("w\(names)", Self.limits)))
        names += 1
    }

    mutating func step() async throws {
        let index = Int.random(in: 0..<workers.count, using: &random)
        let name = workers[index].connection.name
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<20: try push()
        case 20..<45: try await claim(index)
        case 45..<55: try await reserve(index)
        case 55..<75: try await settle(index)
        case 75..<80:
            // The reply to a batch was lost, and the batch is written again.
            guard let settlement = workers[index].lastBatch else { return }
            let before = try queue.everything()
            #expect(try await workers[index].connection.settle(settlement) == settlement.count)
            #expect(try queue.everything() == before)
        case 80..<84: try queue.endLease(name)
        case 84..<87:
            // Killed: its lease ends.
            try queue.endLease(name)
            workers.remove(at: index)
            addWorker()
        case 87..<94: try await reclaim(by: index)
        case 94..<97:
            // As the server does for a blocking wait.
            try queue.redis.run("LMOVE", queue.keys.jobs, queue.keys.inbox, "LEFT", "RIGHT")
        default:
            try await workers[index].connection.release()
            workers.remove(at: index)
            addWorker()
        }
    }

    private mutating func push() throws {
        for _ in 0..<Int.random(in: 1...8, using: &random) {
            let mark = "#\(pushed)#"
            let filling = String(repeating: "x", count: .random(in: 0...450, using: &random))
            let body =
                switch Int.random(in: 0..<4, using: &random) {
                case 0: "garbage \u{0}\n\(mark)"
                case 1: #"{"apns_worker":1,"attempt":2,"token":"\#(mark)","payload":{}}"#
                case 2: #"{"token":"ab","fair":"\#(pushed % 3)","payload":"\#(filling)\#(mark)"}"#
                default: mark
                }
            try queue.push([body])
            pushed += 1
        }
    }

    private mutating func claim(_ index: Int) async throws {
        var worker = workers[index]
        let isRepeated = worker.lastClaim != nil && Int.random(in: 0..<6, using: &random) == 0
        let count = Int.random(in: 1...12, using: &random)
        let (asked, first) = isRepeated ? worker.lastClaim ?? (count, worker.next) : (count, worker.next)
        let claimed = try await worker.connection.claim(asked, first: first, join: !worker.hasJoined, sort: sorts)
        if claimed.leaseLost {
            try await worker.connection.release()
            workers.remove(at: index)
            return addWorker()
        }
        let held = try queue.claims(worker.connection.name)
        for (offset, body) in claimed.texts.enumerated() { #expect(held[first + offset] == body) }
        worker.hasJoined = true
        worker.lastClaim = (asked, first)
        worker.next = max(worker.next, first + asked)
        workers[index] = worker
    }

    /// Settles some of the worker's claims, and of its former claims.
    private mutating func settle(_ index: Int) async throws {
        // Numbers that were never claimed may still be claimed, so they are not used.
        guard workers[index].next > 1 else { return }
        let name = workers[index].connection.name
        let held = try queue.claims(name)
        var numbers = held.keys.sorted().shuffled(using: &random).prefix(.random(in: 0...10, using: &random)) + []
        let foreign = (0..<2).map { _ in Int.random(in: 1...max(1, workers[index].next - 1), using: &random) }.filter {
            held[$0] == nil
        }
        numbers += Set(foreign)
        let connection = workers[index].connection
        var settlement = Settlement()
        var endings: [Int: String] = [:]
        for number in numbers {
            let id = connection.id(number)
            let body = held[number].map { ByteBuffer(string: $0) } ?? ByteBuffer()
            let envelope = Envelope.read(body)
            switch Int.random(in: 0..<8, using: &random) {
            case 0...2:
                settlement.end(id, Outcome.allCases.randomElement(using: &random) ?? .delivered)
                endings[number] = held[number]
            case 3...5:
                var writer = EnvelopeWriter(attempt: envelope.attempt + 1)
                writer.write(claim: ByteBuffer(string: "\(name):\(number)"))
                let fails = Bool.random(using: &random)
                if fails { writer.write(errorStatus: 503, reason: "Shutdown", at: 1) }
                if Bool.random(using: &random) { writer.write(reclaims: envelope.reclaims) }
                writer.write(reserved: envelope.keepsReservation)
                let delay = Int64(Bool.random(using: &random) ? 0 : 600_000)
                settlement.postpone(
                    id, fails ? .retried : .deferred, due: .after(milliseconds: delay), head: writer.head(),
                    reason: "Shutdown",
                    original: envelope.original)
            case 6:
                settlement.bury(id, reason: "BadTopic", attempts: 1, members: ByteBuffer(), original: envelope.original)
            default:
                settlement.end(id, .delivered, notifications: 3)
                endings[number] = held[number]
            }
        }
        #expect(try await workers[index].connection.settle(settlement) == numbers.count { held[$0] == nil })
        for body in endings.values { #expect(ended.insert(try Self.number(of: body)).inserted) }
        workers[index].lastBatch = settlement
        // A claim whose jobs are being settled has been answered: it is not repeated.
        workers[index].lastClaim = nil
    }

    /// Reserves ids for some of the worker's claims, and for one that it does not have.
    private mutating func reserve(_ index: Int) async throws {
        let worker = workers[index]
        let held = try queue.claims(worker.connection.name)
        var (reservations, expected): ([Reservation], [ReservationResult]) = ([], [])
        for (number, text) in held.sorted(by: { $0.key < $1.key }).prefix(5) {
            let body = ByteBuffer(string: text)
            let job = try Self.number(of: text)
            let own = reservedIDs.first { $0.value.job == job }
            let id = own?.key ?? "id-\(Int.random(in: 0..<60, using: &random))"
            let origin =
                Envelope.read(body).origin.map { body.getSlice(at: $0.offset, length: $0.length) ?? body }
                ?? worker.connection.origin(number)
            reservations.append(
                Reservation(
                    claim: worker.connection.id(number), id: ByteBuffer(string: id), origin: origin,
                    milliseconds: 600_000))
            // A job that was wrapped by a producer or a test has another origin in each claim.
            if let known = reservedIDs[id] {
                expected.append(known.origin == origin ? .granted : .duplicate)
                duplicates += known.origin == origin ? 0 : 1
            } else {
                expected.append(.granted)
                reservedIDs[id] = (job, origin)
                reservedJobs.insert(job)
            }
        }
        if worker.next > 1 {
            reservations.append(.bare(worker.connection, 1_000_000, id: "never"))
            expected.append(.lost)
        }
        #expect(try await worker.connection.reserve(reservations) == expected)
        // The reply was lost, and the reservation is repeated.
        let before = try queue.everything()
        #expect(try await worker.connection.reserve(reservations) == expected)
        #expect(try queue.everything() == before)
        // A claim whose ids are being reserved has been answered: it is not repeated.
        workers[index].lastClaim = nil
    }

    private mutating func reclaim(by index: Int) async throws {
        guard let other = try queue.workers().randomElement(using: &random) else { return }
        if let counts = try await workers[index].connection.reclaim(other) { reclaimed += counts[0] }
    }

    mutating func finish() async throws {
        for name in try queue.workers() {
            try queue.endLease(name)
            if let counts = try await queue.worker("reclaimer").reclaim(name) { reclaimed += counts[0] }
        }
        for set in queue.keys.postponed {
            for member in try queue.texts("ZRANGE", set, "0", "-1") { try queue.redis.run("ZADD", set, "1", member) }
        }
        let last = queue.worker("last")
        var first = 1
        while true {
            let claimed = try await last.claim(50, first: first, sort: sorts)
            guard !claimed.bodies.isEmpty else { break }
            try await last.settle { settlement in
                for offset in claimed.bodies.indices { settlement.end(first + offset, .delivered) }
            }
            for body in claimed.texts { #expect(ended.insert(try Self.number(of: body)).inserted) }
            first += 50
        }
    }

    /// Checks that each job is in exactly one place: a key of Redis, or among the ended jobs.
    mutating func check() throws {
        var places = Array(ended)
        let letters = try queue.dead()
        buried = letters.count
        for letter in letters {
            places.append(try Self.number(of: letter.original.text))
            #expect(!Envelope.read(letter.original).isWrapped)
        }
        var bodies = try queue.jobs() + queue.inbox() + queue.retries()
        for member in try queue.redis.run("ZRANGE", queue.keys.sorted, "0", "-1").elements ?? [] {
            let member = ByteBuffer(bytes: member.bytes)
            bodies.append(Envelope.read(member).originalBytes(in: member).text)
        }
        for key in try queue.everything().keys {
            guard let worker = key.split(separator: ":").last.map(String.init) else { continue }
            if key == queue.keys.claimed(worker) { bodies += try queue.claims(worker).values }
        }
        for body in bodies {
            let number = try Self.number(of: body)
            places.append(number)
        }
        let doubled = Dictionary(grouping: places) { $0 }.filter { $1.count > 1 }.keys.sorted()
        try #require(doubled == [])
        try #require(Set(0..<pushed).subtracting(places).sorted() == [])
    }

    private static func number(of body: String) throws -> Int {
        let parts = body.split(separator: "#", omittingEmptySubsequences: false)
        try #require(parts.count == 3, "a body with one mark: \(body)")
        return try #require(Int(parts[1]))
    }
}
