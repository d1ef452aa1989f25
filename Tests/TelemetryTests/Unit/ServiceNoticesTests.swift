import Testing

@testable import Telemetry

@Suite("Notices to systemd")
struct ServiceNoticesTests {
    /// Returns the messages, and records that all of them were sent.
    private static func sent(
        _ notices: inout ServiceNotices, hasStarted: Bool = true, isStuck: Bool = false
    ) -> [String] {
        let messages = notices.messages(hasStarted: hasStarted, isStuck: isStuck)
        notices.wasSent()
        return messages
    }

    @Test("readiness is sent once, after the start")
    func ready() {
        var notices = ServiceNotices(isWatched: false)
        #expect(Self.sent(&notices, hasStarted: false).isEmpty)
        #expect(Self.sent(&notices) == ["READY=1"])
        #expect(Self.sent(&notices).isEmpty)
    }

    @Test("lost notices are sent again, in order")
    func again() {
        var notices = ServiceNotices(isWatched: false)
        _ = notices.messages(hasStarted: true, isStuck: false)
        notices.reloadBegan(at: 7)
        _ = notices.messages(hasStarted: true, isStuck: false)
        notices.reloadEnded()
        #expect(Self.sent(&notices) == ["READY=1", "RELOADING=1\nMONOTONIC_USEC=7", "READY=1"])
        #expect(Self.sent(&notices).isEmpty)
    }

    @Test("the watchdog is notified each time, but not while something is stuck")
    func watchdog() {
        var notices = ServiceNotices(isWatched: true)
        #expect(Self.sent(&notices, hasStarted: false) == ["WATCHDOG=1"])
        #expect(Self.sent(&notices) == ["READY=1", "WATCHDOG=1"])
        #expect(Self.sent(&notices) == ["WATCHDOG=1"])
        #expect(Self.sent(&notices, isStuck: true).isEmpty)
        notices.stopping()
        #expect(Self.sent(&notices) == ["STOPPING=1", "WATCHDOG=1"])
    }

    @Test("a stopping process is never ready again, nor reloading")
    func stopping() {
        var notices = ServiceNotices(isWatched: false)
        _ = Self.sent(&notices)
        notices.reloadBegan(at: 1)
        notices.stopping()
        notices.stopping()
        notices.reloadEnded()
        notices.reloadBegan(at: 2)
        #expect(Self.sent(&notices) == ["RELOADING=1\nMONOTONIC_USEC=1", "STOPPING=1"])
    }

    @Test("a process that is stopped before it has started is not ready")
    func stoppedAtOnce() {
        var notices = ServiceNotices(isWatched: false)
        notices.stopping()
        #expect(Self.sent(&notices) == ["STOPPING=1"])
    }

    @Test("a reload before the start is not reported")
    func earlyReload() {
        var notices = ServiceNotices(isWatched: false)
        notices.reloadBegan(at: 1)
        notices.reloadEnded()
        #expect(Self.sent(&notices, hasStarted: false).isEmpty)
    }

    @Test(
        "a socket has a path or an abstract name within the length limit",
        arguments: [
            ("/run/systemd/notify", true), ("@notify", true), ("/" + String(repeating: "x", count: 106), true),
            ("@" + String(repeating: "x", count: 106), true), ("", false), ("/", false), ("@", false),
            ("notify", false), ("vsock:2:1234", false), ("/" + String(repeating: "x", count: 107), false),
            ("@" + String(repeating: "x", count: 107), false),
        ])
    func name(name: String, isOne: Bool) {
        if isOne {
            #expect(throws: Never.self) { try NotifySocket(name) }
        } else {
            #expect(throws: NotifySocket.Failure.self) { try NotifySocket(name) }
        }
    }

    @Test("a socket that does not exist is an error that names the cause")
    func nobody() throws {
        let socket = try NotifySocket("/nowhere/notify")
        #expect(throws: NotifySocket.Failure(description: "No such file or directory")) { try socket.send("READY=1") }
    }
}
