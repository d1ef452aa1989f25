import HTTPPort
import HTTPTypes
import Hummingbird

struct ControlRoutes: Sendable {
    /// The longest time that a request can wait, in seconds.
    private static let maximumWait = 300.0

    let service: SimulatedService
    let connections: OpenConnections
    let listeners: Listeners

    /// - Parameter names: further host names that requests can be sent to.
    func router(names: [String]) -> Router<BasicRequestContext> {
        var routes = RouteList()
        routes.router.middlewares.add(ControlErrors(foreign: ForeignRequests(names: names)))
        addHealthAndAccount(to: &routes)
        addRules(\.rules, at: "/rules", example: "prefix=dead,answer=410", to: &routes)
        addDelay(to: &routes)
        addFaults(to: &routes)
        addSettings(to: &routes)
        addTopics(to: &routes)
        addDevices(to: &routes)
        if listeners.gateway != nil {
            addRules(\.gatewayRules, at: "/gateway-rules", example: "prefix=dead,answer=8", to: &routes)
        }
        if listeners.feedback != nil { addFeedback(to: &routes) }
        if let recorder = service.recorder { addNotifications(of: recorder, to: &routes) }
        let (router, lines) = (routes.router, routes.lines)
        let list: @Sendable () throws -> Response = { try .control(["routes": lines]) }
        if let recorder = service.recorder {
            InboxRoutes(inbox: Inbox(service: service, recorder: recorder, port: listeners.main.port))
                .add(to: router, otherwise: list)
        } else {
            router.get("/") { _, _ in try list() }
        }
        return router
    }

    // MARK: Health and account

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

    private func addHealthAndAccount(to routes: inout RouteList) {
        routes.add(.get, "/health") { _, _ in
            try .control(
                Health(
                    port: listeners.main.port, gatewayPort: listeners.gateway?.port,
                    feedbackPort: listeners.feedback?.port, listening: await listeners.main.isListening,
                    connections: connections.count, recorded: service.recorder?.count ?? 0,
                    waiting: service.recorder?.waiting ?? 0))
        }
        // Returns the JSON that `--account` writes.
        routes.add(.get, "/account", "?details=true|false") { request, _ in
            var query = try ControlQuery(request)
            let details = try query.take("details", "must be true or false") { Bool($0) }
            try query.finish()
            return .json(bytes: try service.account.json(details: details ?? false).utf8)
        }
    }

    // MARK: Behaviour, in the forms of the command line

    /// - Parameter example: a valid rule of this kind, which error messages show.
    private func addRules<Action>(
        _ script: WritableKeyPath<SimulatedService.State, RuleScript<Action>> & Sendable, at path: String,
        example: String, to routes: inout RouteList
    ) {
        let answer = { @Sendable () throws -> Response in
            try .control(["rules": service.state.withLock { $0[keyPath: script].all.map(\.text) }])
        }
        routes.add(.get, path) { _, _ in try answer() }
        routes.add(.put, path, #" {"rules":["RULE"]}"#) { request, _ in
            let texts = try await request.control(\.rules, example: #"{"rules":["\#(example)"]}"#)
            let rules = try texts.map { try Rule<Action>($0) }
            service.state.withLock { $0[keyPath: script].replace(rules) }
            return try answer()
        }
        routes.add(.post, path, #" {"rule":"RULE"}"#) { request, _ in
            let rule = try Rule<Action>(try await request.control(\.rule, example: #"{"rule":"\#(example)"}"#))
            service.state.withLock { $0[keyPath: script].add(rule) }
            return try answer()
        }
        routes.add(.delete, path) { _, _ in
            service.state.withLock { $0[keyPath: script].replace([]) }
            return try answer()
        }
    }

    private struct Delay: Decodable {
        let delay: String?

        private enum Key: CodingKey {
            case delay
        }

        // The member must be present, even if it is null. A body without it was meant for another route.
        init(from decoder: any Decoder) throws {
            delay = try decoder.container(keyedBy: Key.self).decode(String?.self, forKey: .delay)
        }
    }

    private func addDelay(to routes: inout RouteList) {
        let answer = { @Sendable in try Response.control(["delay": service.delay?.description]) }
        routes.add(.get, "/delay") { _, _ in try answer() }
        routes.add(.put, "/delay", #" {"delay":"20ms±5ms"|null}"#) { request, _ in
            let body = try await request.control(Delay.self, example: #"{"delay":"20ms±5ms"} or {"delay":null}"#)
            service.delay = try body.delay.map { text in
                guard let delay = AnswerDelay(text) else {
                    throw HTTPError(.badRequest, message: "delay must be \(AnswerDelay.form), not '\(text)'")
                }
                return delay
            }
            return try answer()
        }
    }

    private func addSettings(to routes: inout RouteList) {
        let answer = { @Sendable in try Response.control(["settings": service.settings.description]) }
        routes.add(.get, "/settings") { _, _ in try answer() }
        routes.add(.patch, "/settings", #" {"settings":"KEY=VALUE,KEY=VALUE"}"#) { request, _ in
            let text = try await request.control(\.settings, example: #"{"settings":"token-interval=off"}"#)
            var settings = service.settings
            try settings.change(text)
            service.settings = settings
            return try answer()
        }
    }

    private func addTopics(to routes: inout RouteList) {
        let answer = { @Sendable in try Response.control(["topics": service.topics.sorted()]) }
        routes.add(.get, "/topics") { _, _ in try answer() }
        routes.add(.put, "/topics", #" {"topics":["BUNDLE-ID"]}"#) { request, _ in
            service.topics = Set(
                try await request.control(\.topics, example: #"{"topics":["com.example.app"]}"#))
            return try answer()
        }
    }

    private func addDevices(to routes: inout RouteList) {
        let answer = { @Sendable in
            try Response.control(["devices": service.state.withLock { $0.devices.devices.map(\.text) }])
        }
        let read = { @Sendable (request: Request) in
            let example = #"{"devices":["token=00fc…,topic=com.example.app,state=unregistered"]}"#
            return try await request.control(\.devices, example: example).map { try RegisteredDevice($0) }
        }
        routes.add(.get, "/devices") { _, _ in try answer() }
        routes.add(.put, "/devices", #" {"devices":["DEVICE"]}"#) { request, _ in
            let devices = try await read(request)
            service.state.withLock { $0.devices = DeviceRegistry(devices) }
            return try answer()
        }
        routes.add(.post, "/devices", #" {"devices":["DEVICE"]}"#) { request, _ in
            let devices = try await read(request)
            service.state.withLock { $0.devices.add(devices) }
            return try answer()
        }
        routes.add(.delete, "/devices") { _, _ in
            service.state.withLock { $0.devices = DeviceRegistry() }
            return try answer()
        }
    }

    // MARK: Faults of all current connections at once

    private func addFaults(to routes: inout RouteList) {
        routes.add(.post, "/faults/goaway", "?reason=REASON") { request, _ in
            var query = try ControlQuery(request)
            let reason = try query.take("reason", "must be letters and digits") { text in
                !text.isEmpty && text.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber) } ? text : nil
            }
            try query.finish()
            return try .control(["connections": connections.fire(.shutDown(reason: reason ?? "Shutdown"))])
        }
        routes.add(.post, "/faults/drop") { _, _ in
            try .control(["connections": connections.fire(.drop)])
        }
        routes.add(.post, "/faults/wedge") { _, _ in
            try .control(["connections": connections.fire(.wedge)])
        }
        routes.add(.post, "/faults/stop-listening") { _, _ in
            try await listeners.stop()
            return try .control(["listening": await listeners.main.isListening])
        }
        routes.add(.post, "/faults/start-listening") { _, _ in
            do {
                try await listeners.start()
            } catch {
                throw HTTPError(.conflict, message: "the ports cannot be reopened: \(error)")
            }
            return try .control(["listening": await listeners.main.isListening])
        }
    }

    // MARK: Feedback

    private struct Feedback: Codable {
        struct Entry: Codable {
            let token: String
            let seconds: Int64?
        }

        let records: [Entry]
    }

    private func addFeedback(to routes: inout RouteList) {
        routes.add(.get, "/feedback") { _, _ in
            let records = service.feedback.waiting.map {
                Feedback.Entry(token: $0.token.hex, seconds: Int64($0.seconds))
            }
            return try .control(Feedback(records: records))
        }
        routes.add(.post, "/feedback", #" {"records":[{"token":"HEX","seconds":NUMBER}]}"#) { request, _ in
            let body = try await request.control(
                Feedback.self, example: #"{"records":[{"token":"00fc…","seconds":1700000000}]}"#)
            let records = try Self.records(body, now: WallClock.milliseconds() / 1000)
            return try .control(["waiting": service.addFeedback(records)])
        }
        routes.add(.delete, "/feedback") { _, _ in try .control(["deleted": service.clearFeedback()]) }
    }

    /// - Parameter now: the time of the records for which the body has no time, in seconds since 1970.
    private static func records(_ body: Feedback, now: Int64) throws(HTTPError) -> [FeedbackRecord] {
        var records: [FeedbackRecord] = []
        for (index, entry) in body.records.enumerated() {
            guard let token = SimulatedToken(feedback: entry.token) else {
                throw HTTPError(
                    .badRequest, message: "records[\(index)]: token must be \(SimulatedToken.feedbackForm)")
            }
            guard let seconds = UInt32(exactly: entry.seconds ?? now) else {
                throw HTTPError(
                    .badRequest,
                    message: "records[\(index)]: seconds must be whole seconds since 1970, up to \(UInt32.max)")
            }
            records.append(FeedbackRecord(token: token, seconds: seconds))
        }
        return records
    }

    // MARK: Notifications

    /// Adds the route that returns received notifications. With `wait`, it waits for the next notification.
    private func addNotifications(of recorder: Recorder, to routes: inout RouteList) {
        routes.add(
            .get, "/notifications", "?after=SEQUENCE&token=HEX&outcome=accepted|refused&limit=NUMBER&wait=SECONDS"
        ) { request, _ in
            let (filter, wait) = try Self.question(request)
            let page = await recorder.notifications(filter, wait: wait)
            var list = Array("[".utf8)
            for entry in page.entries {
                if list.count > 1 { list += ",".utf8 }
                list += entry.notification.json(sequence: entry.sequence)
            }
            list += "]".utf8
            var object = JSONObjectWriter()
            object.member("notifications", json: list)
            object.member("last", page.last)
            object.member("overwritten", page.overwritten)
            return .json(bytes: object.finished)
        }
        routes.add(.delete, "/notifications") { _, _ in try .control(["deleted": recorder.clear()]) }
        routes.add(.delete, "/notifications/:sequence") { _, context in
            guard let sequence = context.parameters.get("sequence", as: UInt64.self), recorder.remove(sequence) else {
                throw HTTPError(
                    .notFound, message: "no notification with this number is kept; GET /notifications lists the numbers"
                )
            }
            return try .control(["deleted": 1])
        }
    }

    private static func question(_ request: Request) throws(HTTPError) -> (NotificationFilter, Duration) {
        var query = try ControlQuery(request)
        var filter = NotificationFilter()
        filter.after = try query.take("after", "must be the number of a recorded notification") { UInt64($0) } ?? 0
        filter.token = try query.take("token", "must be a device token") { $0.isEmpty ? nil : $0 }
        filter.accepted = try query.take("outcome", "must be accepted or refused") { text in
            text == "accepted" ? true : text == "refused" ? false : nil
        }
        filter.limit =
            try query.take("limit", "must be a whole number, at least 1") { Int($0).flatMap { $0 >= 1 ? $0 : nil } }
            ?? filter.limit
        let wait = try query.take("wait", "must be at most \(Int(maximumWait)) seconds") { text in
            Double(text).flatMap { $0 >= 0 && $0 <= maximumWait ? $0 : nil }
        }
        try query.finish()
        return (filter, .seconds(wait ?? 0))
    }
}
