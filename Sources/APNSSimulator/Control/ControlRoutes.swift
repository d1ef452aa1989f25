import HTTPPort
import Hummingbird

/// All routes of the control port.
struct ControlRoutes: Sendable {
    private let concerns: [any ControlConcern]
    private let inbox: InboxRoutes?
    private let foreign: ForeignRequests

    /// - Parameter names: further host names that requests can be sent to.
    init(_ target: ControlTarget, names: [String] = []) {
        foreign = ForeignRequests(names: names)
        var concerns: [any ControlConcern] = [
            HealthRoutes(target: target), AccountRoutes(service: target.service),
            RuleRoutes(service: target.service), DelayRoutes(service: target.service), FaultRoutes(target: target),
            SettingRoutes(service: target.service), TopicRoutes(service: target.service),
            DeviceRoutes(service: target.service),
        ]
        if target.listeners.gateway != nil { concerns.append(RuleRoutes(gateway: target.service)) }
        if target.listeners.feedback != nil { concerns.append(FeedbackRoutes(service: target.service)) }
        if let recorder = target.service.recorder { concerns.append(NotificationRoutes(recorder: recorder)) }
        inbox = target.service.recorder.map { InboxRoutes(target.service, $0, port: target.listeners.main.port) }
        self.concerns = concerns
    }

    func router() -> Router<ControlContext> {
        let router = Router(context: ControlContext.self)
        router.middlewares.add(ControlErrors())
        router.middlewares.add(RefusedPages(rule: foreign))
        let routes = concerns.flatMap(\.summary)
        let list: @Sendable () throws -> Response = { try ControlAnswer.json(["routes": routes]) }
        if let inbox { inbox.add(to: router, otherwise: list) } else { router.get("/") { _, _ in try list() } }
        for concern in concerns { concern.add(to: router) }
        return router
    }
}

/// The simulator's health and state.
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

    func add(to router: Router<ControlContext>) {
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
