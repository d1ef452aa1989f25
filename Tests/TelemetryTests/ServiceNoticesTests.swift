import Testing

@testable import Telemetry

@Suite("What systemd is told of a service")
struct ServiceNoticesTests {
    /// The messages, of which all have been taken.
    private static func sent(_ notices: inout ServiceNotices, _ view: ServiceNotices.View) -> [String] {
        let messages = notices.messages(view)
        notices.wasSent()
        return messages
    }

    private static func view(_ change: (inout ServiceNotices.View) -> Void = { _ in }) -> ServiceNotices.View {
        var view = ServiceNotices.View()
        view.hasStarted = true
        change(&view)
        return view
    }

    private static let ready = "STATUS=ready; since the start 0 delivered, 0 dead letters"

    @Test("it is ready once it has started, and not before, and that is said once")
    func ready() {
        var notices = ServiceNotices(isWatched: false)
        var messages = Self.sent(&notices, ServiceNotices.View())
        #expect(messages == ["STATUS=starting"])
        messages = Self.sent(&notices, ServiceNotices.View())
        #expect(messages.isEmpty)
        messages = Self.sent(&notices, Self.view())
        #expect(messages == ["READY=1", Self.ready])
        messages = Self.sent(&notices, Self.view())
        #expect(messages.isEmpty)
    }

    @Test("what keeps it from its work does not keep it from being ready: systemd would end it for that")
    func readyWithProblems() {
        var notices = ServiceNotices(isWatched: false)
        let messages = Self.sent(&notices, Self.view { $0.problems = ["Redis is away", "nobody sends"] })
        #expect(messages == ["READY=1", "STATUS=not ready: Redis is away; nobody sends"])
    }

    @Test("what was not taken is said again, in its order")
    func again() {
        var notices = ServiceNotices(isWatched: false)
        _ = notices.messages(Self.view())
        notices.reloadBegan(at: 7)
        _ = notices.messages(Self.view())
        notices.reloadEnded(refused: nil)
        let messages = Self.sent(&notices, Self.view())
        #expect(messages == ["READY=1", "RELOADING=1\nMONOTONIC_USEC=7", "READY=1", Self.ready])
        let after = Self.sent(&notices, Self.view())
        #expect(after.isEmpty)
    }

    @Test("the watchdog is fed each time, whatever else is wrong, but not while something is stuck")
    func watchdog() {
        var notices = ServiceNotices(isWatched: true)
        var messages = Self.sent(&notices, ServiceNotices.View())
        #expect(messages == ["STATUS=starting\nWATCHDOG=1"])
        messages = Self.sent(&notices, Self.view { $0.problems = ["Redis is away"] })
        #expect(messages.last?.hasSuffix("\nWATCHDOG=1") == true)
        messages = Self.sent(&notices, Self.view { $0.problems = ["Redis is away"] })
        #expect(messages == ["WATCHDOG=1"])
        messages = Self.sent(&notices, Self.view { $0.stuck = ["lane 1 is stuck"] })
        #expect(messages == ["STATUS=stuck: lane 1 is stuck"])
        messages = Self.sent(&notices, Self.view { $0.stuck = ["lane 1 is stuck"] })
        #expect(messages.isEmpty)
        notices.stopping()
        messages = Self.sent(&notices, Self.view())
        #expect(messages.first == "STOPPING=1" && messages.last?.hasSuffix("\nWATCHDOG=1") == true)
    }

    @Test("one that stops is never ready again, nor reloading")
    func stopping() {
        var notices = ServiceNotices(isWatched: false)
        _ = Self.sent(&notices, Self.view())
        notices.reloadBegan(at: 1)
        notices.stopping()
        notices.stopping()
        notices.reloadEnded(refused: nil)
        notices.reloadBegan(at: 2)
        let messages = Self.sent(&notices, Self.view())
        #expect(messages.dropLast() == ["RELOADING=1\nMONOTONIC_USEC=1", "STOPPING=1"])
        #expect(messages.last?.hasPrefix("STATUS=draining") == true)
    }

    @Test("one that is stopped before it has started is not ready")
    func stoppedAtOnce() {
        var notices = ServiceNotices(isWatched: false)
        notices.stopping()
        let messages = Self.sent(&notices, Self.view())
        #expect(messages.first == "STOPPING=1" && !messages.contains("READY=1"))
    }

    @Test("a reload before the start is none")
    func earlyReload() {
        var notices = ServiceNotices(isWatched: false)
        notices.reloadBegan(at: 1)
        notices.reloadEnded(refused: nil)
        let messages = Self.sent(&notices, ServiceNotices.View())
        #expect(messages == ["STATUS=starting"])
    }

    @Test("a configuration that was refused is in the status until one is taken")
    func refused() {
        var notices = ServiceNotices(isWatched: false)
        _ = Self.sent(&notices, Self.view())
        notices.reloadBegan(at: 1)
        notices.reloadEnded(refused: "line 1: no such\nsetting")
        var messages = Self.sent(&notices, Self.view())
        let sentence = "the changed configuration was refused, and the one before stays: line 1: no such setting"
        #expect(messages.last == Self.ready + "; " + sentence)
        notices.reloadBegan(at: 2)
        notices.reloadEnded(refused: nil)
        messages = Self.sent(&notices, Self.view())
        #expect(messages.last == Self.ready)
    }

    @Test("a status is one line, and not an endless one")
    func oneLine() {
        var notices = ServiceNotices(isWatched: false)
        let problem = "one\nREADY=1\r" + String(repeating: "é", count: 2000)
        let messages = Self.sent(&notices, Self.view { $0.problems = [problem] })
        #expect(messages.last?.hasPrefix("STATUS=not ready: one READY=1 éé") == true)
        #expect(messages.last.map { $0.unicodeScalars.count < 600 } == true)
    }

    @Test(
        "a socket has a path or an abstract name that fits",
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

    @Test("a socket that nobody has made is an error that says so")
    func nobody() throws {
        let socket = try NotifySocket("/nowhere/notify")
        #expect(throws: NotifySocket.Failure(description: "No such file or directory")) { try socket.send("READY=1") }
    }
}
