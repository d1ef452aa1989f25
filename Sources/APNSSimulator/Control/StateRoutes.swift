import Hummingbird

/// The behaviour without rules, in the form of `--set`.
struct SettingRoutes: ControlConcern {
    let service: SimulatedService

    private struct Settings: Codable {
        let settings: String
    }

    let summary = ["GET /settings", "PATCH /settings {\"settings\":\"KEY=VALUE,KEY=VALUE\"}"]

    func add(to router: Router<ControlContext>) {
        router.get("/settings") { _, _ in try answer() }
        router.patch("/settings") { request, _ in
            let body = try await request.control(Settings.self, example: #"{"settings":"token-interval=off"}"#)
            var settings = service.settings
            try settings.change(body.settings)
            service.settings = settings
            return try answer()
        }
    }

    private func answer() throws -> Response {
        try ControlAnswer.json(Settings(settings: service.settings.description))
    }
}

/// The topics that can be pushed to.
struct TopicRoutes: ControlConcern {
    let service: SimulatedService

    private struct Topics: Codable {
        let topics: [String]
    }

    let summary = ["GET /topics", "PUT /topics {\"topics\":[\"BUNDLE-ID\"]}"]

    func add(to router: Router<ControlContext>) {
        router.get("/topics") { _, _ in try answer() }
        router.put("/topics") { request, _ in
            let body = try await request.control(Topics.self, example: #"{"topics":["com.example.app"]}"#)
            service.topics = Set(body.topics)
            return try answer()
        }
    }

    private func answer() throws -> Response { try ControlAnswer.json(Topics(topics: service.topics.sorted())) }
}

/// The registered device tokens, in the form of `--device`.
struct DeviceRoutes: ControlConcern {
    let service: SimulatedService

    private struct Devices: Codable {
        let devices: [String]

        func read() throws(RuleError) -> [RegisteredDevice] {
            var list: [RegisteredDevice] = []
            for text in devices { list.append(try RegisteredDevice(text)) }
            return list
        }
    }

    private static let example = #"{"devices":["token=00fc…,topic=com.example.app,state=unregistered"]}"#

    let summary = [
        "GET /devices", "PUT /devices {\"devices\":[\"DEVICE\"]}", "POST /devices {\"devices\":[\"DEVICE\"]}",
        "DELETE /devices",
    ]

    func add(to router: Router<ControlContext>) {
        router.get("/devices") { _, _ in try answer() }
        router.put("/devices") { request, _ in
            service.setDevices(try await request.control(Devices.self, example: Self.example).read())
            return try answer()
        }
        router.post("/devices") { request, _ in
            service.addDevices(try await request.control(Devices.self, example: Self.example).read())
            return try answer()
        }
        router.delete("/devices") { _, _ in
            service.setDevices([])
            return try answer()
        }
    }

    private func answer() throws -> Response {
        try ControlAnswer.json(Devices(devices: service.devices.map(\.text)))
    }
}
