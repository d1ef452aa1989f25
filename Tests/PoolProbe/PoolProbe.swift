import APNS
import Foundation
import Logging
import NIOCore
import NIOPosix
import TLS

/// Sends notifications to a port of 127.0.0.1, and resends each until it is answered. Then prints the maximum number of consecutive failed
/// connections, and this process' memory in KiB: after the first connection, and at its peak.
@main
enum PoolProbe {
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    static func main() async throws {
        let arguments = CommandLine.arguments
        guard arguments.count == 4, let port = Int(arguments[2]), let count = Int(arguments[3]) else {
            throw Failure(description: "usage: PoolProbe AUTHORITY PORT NOTIFICATIONS")
        }
        var tls = TLSClientConfiguration()
        tls.trust = .file(arguments[1])
        tls.applicationProtocols = ["h2"]
        var configuration = ConnectionPool.Configuration(
            PoolConfiguration(endpoint: APNSEndpoint(host: "127.0.0.1", port: port), tls: try TLSContext.client(tls)))
        configuration.reconnect.first = .milliseconds(1)
        configuration.reconnect.longest = .milliseconds(1)
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let eventLoop = group.next()
        let done = eventLoop.makePromise(of: Sender.Report.self)
        let sending = NIOLoopBoundBox.makeBoxSendingValue(Sender?.none, eventLoop: eventLoop)
        try await eventLoop.submit { [configuration] in
            let pool = ConnectionPool(
                configuration, eventLoop: eventLoop, logger: Logger(label: "probe") { _ in SwiftLogNoOpLogHandler() })
            let sender = try Sender(pool, count: count, done: done)
            sending.value = sender
            let bound = NIOLoopBound(sender, eventLoop: eventLoop)
            eventLoop.scheduleRepeatedTask(initialDelay: .zero, delay: .milliseconds(1)) { _ in
                bound.value.pool.check(now: eventLoop.now)
            }
        }.get()
        let report = try await done.futureResult.get()
        print(report.failures, report.memoryBefore, try Memory.peak())
    }
}

final class Sender: TransportDelegate {
    struct Report: Sendable {
        var failures = 0
        var memoryBefore = 0
    }

    let pool: ConnectionPool
    private let notification: APNS.Notification
    private let done: EventLoopPromise<Report>
    private var report = Report()
    private var waiting: Int
    private var unanswered: Int

    init(_ pool: ConnectionPool, count: Int, done: EventLoopPromise<Report>) throws {
        self.pool = pool
        self.done = done
        waiting = count
        unanswered = count
        notification = APNS.Notification(
            deviceToken: try DeviceToken(String(repeating: "0", count: 64)),
            payload: ByteBuffer(string: #"{"aps":{"alert":"x"}}"#), topic: ByteBuffer(string: "com.example.app"))
        pool.setProviderToken("e30.e30.c2ln")
        pool.delegate = self
    }

    func transport(_: any Transport, completed tag: UInt64, with result: RequestResult) {
        if case .response = result { unanswered -= 1 } else { waiting += 1 }
        if unanswered == 0 { done.succeed(report) }
    }

    func transportChanged(_ pool: any Transport) {
        let failures = pool.statistics.failures
        if failures == 1, report.failures == 0 {
            do { report.memoryBefore = try Memory.now() } catch { done.fail(error) }
        }
        report.failures = max(report.failures, failures)
        while waiting > 0, pool.submit(notification, tag: 0, in: .shared) { waiting -= 1 }
    }
}

/// This process' resident memory, in KiB.
enum Memory {
    static func now() throws -> Int { try value("VmRSS:") }
    static func peak() throws -> Int { try value("VmHWM:") }

    private static func value(_ name: String) throws -> Int {
        let lines = try String(contentsOfFile: "/proc/self/status", encoding: .utf8).split(separator: "\n")
        guard let line = lines.first(where: { $0.hasPrefix(name) }),
            let value = Int(line.dropFirst(name.count).drop { $0.isWhitespace }.prefix { $0.isNumber })
        else { throw PoolProbe.Failure(description: "no \(name) in /proc/self/status") }
        return value
    }
}
