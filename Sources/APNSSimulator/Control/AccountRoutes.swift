import Hummingbird

/// What the simulator has seen and said, as `--account` writes it.
struct AccountRoutes: ControlConcern {
    let service: SimulatedService

    let summary = ["GET /account?details=true|false"]

    func add(to router: Router<ControlRoutes.Context>) {
        router.get("/account") { request, _ in
            var query = try ControlQuery(request)
            let details = try query.take("details", "must be true or false") { Bool($0) }
            try query.finish()
            return ControlAnswer.json(bytes: Array(try service.account.json(details: details ?? false).utf8))
        }
    }
}
