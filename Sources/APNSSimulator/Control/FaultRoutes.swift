import Hummingbird

/// What goes wrong at this moment, for every connection there is.
struct FaultRoutes: ControlConcern {
    let target: ControlTarget

    let summary = [
        "POST /faults/goaway?reason=REASON", "POST /faults/drop", "POST /faults/wedge",
        "POST /faults/stop-listening", "POST /faults/start-listening",
    ]

    func add(to router: Router<ControlRoutes.Context>) {
        router.post("/faults/goaway") { request, _ in
            var query = try ControlQuery(request)
            let reason = try query.take("reason", "must be letters and digits") { text in
                !text.isEmpty && text.allSatisfy { $0.isASCII && ($0.isLetter || $0.isNumber) } ? text : nil
            }
            try query.finish()
            let count = target.connections.fire(SimulatorShutdown(reason: reason ?? "Shutdown"))
            return try ControlAnswer.json(["connections": count])
        }
        router.post("/faults/drop") { _, _ in
            try ControlAnswer.json(["connections": target.connections.fire(SimulatorDrop())])
        }
        router.post("/faults/wedge") { _, _ in
            try ControlAnswer.json(["connections": target.connections.fire(SimulatorWedge())])
        }
        router.post("/faults/stop-listening") { _, _ in
            try await target.listeners.stop()
            return try await listening()
        }
        router.post("/faults/start-listening") { _, _ in
            do {
                try await target.listeners.start()
            } catch {
                throw ControlError(.conflict, "the ports cannot be listened on again: \(error)")
            }
            return try await listening()
        }
    }

    private func listening() async throws -> Response {
        try ControlAnswer.json(["listening": await target.listeners.main.isListening])
    }
}
