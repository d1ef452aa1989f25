import Hummingbird

/// Whether the simulator is there, and what it is doing.
struct HealthRoutes: ControlConcern {
    let target: ControlTarget

    private struct Health: Encodable {
        let status = "ok"
        let port: Int
        let gatewayPort: Int?
        let feedbackPort: Int?
        let listening: Bool
        let connections: Int
        let recorded: UInt64
        let waiting: Int
    }

    let summary = ["GET /health"]

    func add(to router: Router<ControlRoutes.Context>) {
        router.get("/health") { _, _ in
            try ControlAnswer.json(
                Health(
                    port: target.listeners.main.port, gatewayPort: target.listeners.gateway?.port,
                    feedbackPort: target.listeners.feedback?.port,
                    listening: await target.listeners.main.isListening,
                    connections: target.connections.count, recorded: target.service.recorder?.count ?? 0,
                    waiting: target.service.recorder?.waiting ?? 0))
        }
    }
}
