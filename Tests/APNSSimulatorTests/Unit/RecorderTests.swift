import Foundation
import Synchronization
import TestSupport
import Testing

@testable import APNSSimulator

/// Returns a notification with a token and a topic only.
func received(_ number: Int = 1, token: String? = nil, accepted: Bool = true) -> ReceivedNotification {
    var notification = ReceivedNotification(
        time: Int64(number), transport: .http2, connection: 1, accepted: accepted,
        outcome: .answered(status: accepted ? 200 : 410, reason: accepted ? nil : "Unregistered"))
    notification.token = token
    return notification
}

@Suite("The last notifications")
struct NotificationRingTests {
    @Test("are at most the limit, in order, at every fill level", arguments: 1...5)
    func bounds(limit: Int) {
        var ring = NotificationRing(limit: limit)
        for number in 1...17 {
            #expect(ring.append(received(number)) == UInt64(number))
            let page = ring.page(NotificationFilter())
            let oldest = max(1, number - limit + 1)
            #expect(page.entries.map(\.sequence) == (oldest...number).map { UInt64($0) })
            #expect(page.entries.map(\.notification.time) == (oldest...number).map { Int64($0) })
            #expect(page.last == UInt64(number))
            #expect(page.overwritten == UInt64(oldest - 1))
        }
    }

    @Test("are found after any sequence number, and lost ones are counted")
    func after() {
        var ring = NotificationRing(limit: 4)
        for number in 1...10 { _ = ring.append(received(number)) }
        for after in 0...12 {
            var filter = NotificationFilter()
            filter.after = UInt64(after)
            let page = ring.page(filter)
            #expect(page.entries.map(\.sequence) == (7...10).filter { $0 > UInt64(after) })
            #expect(page.overwritten == UInt64(max(0, 6 - after)))
            #expect(page.last == 10)
        }
        var huge = NotificationFilter()
        huge.after = .max
        #expect(ring.page(huge).entries.isEmpty)
    }

    @Test("can be queried by token, by outcome, and a few at a time")
    func filters() {
        var ring = NotificationRing(limit: 100)
        for number in 1...20 {
            _ = ring.append(received(number, token: number % 2 == 0 ? "aa" : "bb", accepted: number % 5 != 0))
        }
        var filter = NotificationFilter()
        filter.token = "AA"
        #expect(ring.page(filter).entries.map(\.sequence) == stride(from: 2, through: 20, by: 2).map { UInt64($0) })
        filter.accepted = false
        #expect(ring.page(filter).entries.map(\.sequence) == [10, 20])
        filter.token = nil
        filter.limit = 3
        let first = ring.page(filter)
        #expect(first.entries.map(\.sequence) == [5, 10, 15] && first.last == 15)
        filter.after = first.last
        let second = ring.page(filter)
        #expect(second.entries.map(\.sequence) == [20] && second.last == 20)
    }

    @Test("can be cleared, which does not count as a loss, and numbers are not used again")
    func clears() {
        var ring = NotificationRing(limit: 3)
        for number in 1...5 { _ = ring.append(received(number)) }
        ring.clear()
        #expect(ring.page(NotificationFilter()).entries.isEmpty)
        #expect(ring.page(NotificationFilter()).overwritten == 0)
        #expect(ring.append(received()) == 6)
        #expect(ring.page(NotificationFilter()).entries.map(\.sequence) == [6])
        #expect(ring.page(NotificationFilter()).overwritten == 0)
        for _ in 0..<4 { _ = ring.append(received()) }
        #expect(ring.page(NotificationFilter()).overwritten == 2)
    }
}

@Suite("The recorder", .timeLimit(.minutes(10)))
struct RecorderTests {
    /// No test may take so long, so a test ends only if its wait is woken.
    private static let forever = Duration.seconds(3600)

    @Test("records from several threads, and the file has the same order as the memory")
    func concurrency() async throws {
        let path = FileManager.default.temporaryDirectory.appending(path: "record-\(UUID().uuidString)").path
        defer { try? FileManager.default.removeItem(atPath: path) }
        let file = try RecordFile(path: path) { Issue.record("\($0)") }
        let recorder = Recorder(limit: 10_000, file: file)
        await withTaskGroup(of: Void.self) { group in
            for task in 0..<8 {
                group.addTask { for number in 0..<500 { recorder.record(received(task * 1000 + number)) } }
            }
        }
        var filter = NotificationFilter()
        filter.limit = .max
        let entries = recorder.notifications(filter).entries
        #expect(entries.map(\.sequence) == (1...4000).map { UInt64($0) })
        #expect(Set(entries.map(\.notification.time)).count == 4000)
        let lines = try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n")
        #expect(lines.map { Array($0.utf8) } == entries.map { $0.notification.json(sequence: $0.sequence) })
    }

    @Test("delivers the next matching notification to all waiters")
    func wakes() async throws {
        let recorder = Recorder()
        recorder.record(received(token: "bb"))
        var filter = NotificationFilter()
        filter.token = "aa"
        let asked = filter
        async let first = recorder.notifications(asked, wait: Self.forever)
        async let second = recorder.notifications(asked, wait: Self.forever)
        try await eventually("both wait") { recorder.waiting == 2 }
        recorder.record(received(token: "bb"))
        try await eventually("both wait again") { recorder.waiting == 2 }
        recorder.record(received(token: "aa"))
        #expect(await first.entries.map(\.sequence) == [3])
        #expect(await second.entries.map(\.sequence) == [3])
        #expect(await recorder.notifications(asked, wait: Self.forever).entries.count == 1)
    }

    @Test("waits no longer than requested, and stops when the task or the simulator ends")
    func letsGo() async throws {
        let recorder = Recorder()
        #expect(await recorder.notifications(NotificationFilter(), wait: .milliseconds(20)).entries.isEmpty)
        #expect(recorder.waiting == 0)
        let cancelled = Task { await recorder.notifications(NotificationFilter(), wait: Self.forever) }
        try await eventually("it waits") { recorder.waiting == 1 }
        cancelled.cancel()
        #expect(await cancelled.value.entries.isEmpty)
        async let ended = recorder.notifications(NotificationFilter(), wait: Self.forever)
        try await eventually("it waits") { recorder.waiting == 1 }
        recorder.endWaits()
        #expect(await ended.entries.isEmpty)
        #expect(await recorder.notifications(NotificationFilter(), wait: Self.forever).entries.isEmpty)
    }

    @Test("appends to an existing file, and creates a file that only its owner can read")
    func appends() throws {
        let path = FileManager.default.temporaryDirectory.appending(path: "record-\(UUID().uuidString)").path
        defer { try? FileManager.default.removeItem(atPath: path) }
        for _ in 0..<2 {
            let recorder = Recorder(file: try RecordFile(path: path) { Issue.record("\($0)") })
            recorder.record(received())
            recorder.closeFile()
            recorder.record(received())
        }
        let text = try String(contentsOfFile: path, encoding: .utf8)
        #expect(text.hasSuffix("}\n") && text.split(separator: "\n").count == 2)
        let mode = try FileManager.default.attributesOfItem(atPath: path)[.posixPermissions] as? Int
        #expect(mode == 0o600)
    }

    @Test("reports once that a file cannot be written, and continues in memory")
    func full() throws {
        let failures = Mutex<[RecordFile.Failure]>([])
        let file = try RecordFile(path: "/dev/full") { failure in failures.withLock { $0.append(failure) } }
        let recorder = Recorder(file: file)
        for number in 0..<3 { recorder.record(received(number)) }
        #expect(recorder.notifications().entries.count == 3)
        let reported = failures.withLock { $0 }
        #expect(reported.count == 1 && reported.first == file.failure)
        #expect(reported.first?.description.contains("/dev/full") == true)
        let missing = #expect(throws: RecordFile.Failure.self) { try RecordFile(path: "/does/not/exist") { _ in } }
        #expect(missing?.description.contains("/does/not/exist") == true)
    }
}
