/// The ports that a simulator's clients connect to.
struct Listeners: Sendable {
    let main: SwitchableListener
    var gateway: SwitchableListener?
    var feedback: SwitchableListener?

    private var all: [SwitchableListener] { [main, gateway, feedback].compactMap { $0 } }

    /// Closes the ports; connections that are open stay.
    func stop() async throws {
        for listener in all { try await listener.stop() }
    }

    /// Opens them again.
    /// - Throws: the system's error, such as when somebody else has taken a port.
    func start() async throws {
        for listener in all { try await listener.start() }
    }
}
