import HTTPPort
import Hummingbird

/// All that the control port answers, by concern: a file each.
struct ControlRoutes: Sendable {
    typealias Context = BasicRequestContext

    private let concerns: [any ControlConcern]
    private let foreign: ForeignRequests

    /// - Parameter names: further host names that requests may be sent to.
    init(_ target: ControlTarget, names: [String] = []) {
        foreign = ForeignRequests(names: names)
        var concerns: [any ControlConcern] = [
            HealthRoutes(target: target), AccountRoutes(service: target.service),
            RuleRoutes(service: target.service), DelayRoutes(service: target.service), FaultRoutes(target: target),
        ]
        if target.listeners.gateway != nil { concerns.append(RuleRoutes(gateway: target.service)) }
        if target.listeners.feedback != nil { concerns.append(FeedbackRoutes(service: target.service)) }
        if let recorder = target.service.recorder { concerns.append(NotificationRoutes(recorder: recorder)) }
        self.concerns = concerns
    }

    func router() -> Router<Context> {
        let router = Router(context: Context.self)
        router.middlewares.add(ControlErrors())
        router.middlewares.add(RefusedPages(rule: foreign))
        let routes = concerns.flatMap(\.summary)
        router.get("/") { _, _ in try ControlAnswer.json(["routes": routes]) }
        for concern in concerns { concern.add(to: router) }
        return router
    }
}

/// The routes of one concern.
protocol ControlConcern: Sendable {
    /// A line for each route, for `GET /`.
    var summary: [String] { get }
    func add(to router: Router<ControlRoutes.Context>)
}
