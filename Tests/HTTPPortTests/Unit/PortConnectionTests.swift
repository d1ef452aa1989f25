import NIOCore
import Testing

@testable import HTTPPort

@Suite("A connection of a port")
struct PortConnectionTests {
    private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

    private static var limits: PortLimits {
        var limits = PortLimits()
        limits.request = .seconds(10)
        limits.idle = .seconds(100)
        limits.stall = .seconds(20)
        limits.linger = .seconds(2)
        return limits
    }

    private func connection() -> PortConnection { PortConnection(Self.limits, now: start) }

    /// Returns a connection whose first request was answered a second after the start.
    private func answered() -> PortConnection {
        var connection = connection()
        connection.bytesReceived(now: start)
        connection.requestBegan()
        connection.requestEnded()
        connection.answerEnded(now: start + .seconds(1))
        return connection
    }

    @Test("must send its first request in time, counted from its start")
    func first() {
        let connection = connection()
        #expect(connection.waitingSince == start)
        #expect(!connection.isOverdue(now: start + .milliseconds(9999)))
        #expect(connection.isOverdue(now: start + .seconds(10)))
    }

    @Test("does not gain time by sending a request byte by byte")
    func dripping() {
        var connection = connection()
        for second in 1...9 { connection.bytesReceived(now: start + .seconds(Int64(second))) }
        #expect(connection.waitingSince == start + .seconds(1))
        #expect(connection.isOverdue(now: start + .seconds(11)))
    }

    @Test("has no deadline while its request is being answered")
    func working() {
        var connection = connection()
        connection.bytesReceived(now: start)
        connection.requestBegan()
        connection.requestEnded()
        #expect(connection.waitingSince == nil)
        #expect(!connection.isOverdue(now: start + .hours(1)))
    }

    @Test("has one while its request's body arrives, also after the answer")
    func body() {
        var connection = connection()
        connection.bytesReceived(now: start)
        connection.requestBegan()
        connection.answerEnded(now: start + .seconds(1))
        connection.bytesReceived(now: start + .seconds(9))
        #expect(connection.isOverdue(now: start + .seconds(10)))
        connection.requestEnded()
        #expect(!connection.isOverdue(now: start + .seconds(100)))
    }

    @Test("may be idle for longer between requests, and has the same time for each")
    func idle() {
        var connection = answered()
        #expect(connection.waitingSince == start + .seconds(1))
        #expect(!connection.isOverdue(now: start + .seconds(100)))
        #expect(connection.isOverdue(now: start + .seconds(101)))
        connection.bytesReceived(now: start + .seconds(50))
        #expect(connection.isOverdue(now: start + .seconds(60)))
    }

    @Test("must read its answer; each byte that it reads extends its time")
    func stalled() {
        var connection = answered()
        connection.holds(1000, now: start + .seconds(2))
        connection.holds(1000, now: start + .seconds(12))
        #expect(connection.waitingSince == start + .seconds(2))
        #expect(connection.isOverdue(now: start + .seconds(22)))
        connection.holds(999, now: start + .seconds(21))
        #expect(!connection.isOverdue(now: start + .seconds(22)))
        // More was written to the client, and it received nothing.
        connection.holds(5000, now: start + .seconds(40))
        #expect(connection.isOverdue(now: start + .seconds(41)))
        connection.holds(0, now: start + .seconds(41))
        #expect(!connection.isOverdue(now: start + .seconds(41)))
    }

    @Test("is closed soon after its last answer, whatever it sends")
    func closing() {
        var connection = connection()
        connection.bytesReceived(now: start)
        // An answer to malformed input has no request.
        connection.answerEnded(now: start)
        #expect(!connection.isClosing)
        connection.outputClosed(now: start + .seconds(1))
        #expect(connection.isClosing)
        connection.outputClosed(now: start + .seconds(2))
        connection.bytesReceived(now: start + .seconds(2))
        #expect(!connection.isOverdue(now: start + .milliseconds(2999)))
        #expect(connection.isOverdue(now: start + .seconds(3)))
    }

    @Test("are at most an eighth of the file descriptors")
    func share() {
        let limits = PortLimits()
        #expect(limits.connections(descriptors: 1_048_576) == 64)
        #expect(limits.connections(descriptors: nil) == 64)
        #expect(limits.connections(descriptors: 256) == 32)
        #expect(limits.connections(descriptors: 10) == 2)
    }
}
