import NIOCore

/// A listening port that can be closed and reopened, to simulate a server that is down for a while.
actor SwitchableListener {
    private let bind: @Sendable (_ port: Int) async throws -> any Channel
    private var channel: (any Channel)?
    // Serializes changes, because the actor is reentrant while a change waits for the system.
    private var lastChange: Task<Void, any Error>?
    /// The port, which stays the same.
    nonisolated let port: Int

    /// - Parameter port: 0 for any free one.
    init(port: Int, bind: @escaping @Sendable (_ port: Int) async throws -> any Channel) async throws {
        self.bind = bind
        let channel = try await bind(port)
        self.port = channel.localAddress?.port ?? port
        self.channel = channel
    }

    var isListening: Bool { channel?.isActive == true }

    /// Closes the port, unless it is closed. Open connections stay open.
    func stop() async throws { try await change { try await $0.close() } }

    /// Reopens the port, unless it is open.
    /// - Throws: the system's error, for example if another process uses the port.
    func start() async throws { try await change { try await $0.open() } }

    private func change(_ body: @escaping @Sendable (isolated SwitchableListener) async throws -> Void) async throws {
        let previous = lastChange
        let task = Task {
            // The error of the previous change was thrown to the caller of that change.
            _ = await previous?.result
            try await body(self)
        }
        lastChange = task
        try await task.value
    }

    private func close() async throws {
        guard let channel else { return }
        self.channel = nil
        try await channel.close()
    }

    private func open() async throws {
        if channel == nil { channel = try await bind(port) }
    }
}

/// The ports that a simulator's clients connect to.
struct Listeners: Sendable {
    let main: SwitchableListener
    var gateway: SwitchableListener?
    var feedback: SwitchableListener?

    private var all: [SwitchableListener] { [main, gateway, feedback].compactMap { $0 } }

    /// Closes the ports; open connections stay open.
    func stop() async throws {
        for listener in all { try await listener.stop() }
    }

    /// Reopens the ports.
    /// - Throws: the system's error, for example if another process uses a port.
    func start() async throws {
        for listener in all { try await listener.start() }
    }
}
