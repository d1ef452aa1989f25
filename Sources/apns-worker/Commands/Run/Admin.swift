import Logging
import Operations
import PushWorker
import ServiceLifecycle
import Telemetry

/// The admin port of a worker.
struct Admin {
    let address: (host: String, port: Int)
    let log: LogOutput
    let logger: Logger

    /// Starts to listen.
    /// - Throws: `HTTPPortFailure`.
    func start(for worker: Worker) async throws -> AdminServer {
        let server = try await AdminServer.start(
            host: address.host, port: address.port,
            sources: .init(
                metrics: { [log] in
                    var page = await worker.metrics(lostLogLines: log.lost)
                    ProcessMetrics.measure(on: &page)
                    return page
                },
                health: {
                    let liveness = worker.liveness()
                    return Probe(
                        liveness.isReady ? "alive" : "stuck", isGood: liveness.isReady, problems: liveness.probeProblems
                    )
                },
                readiness: {
                    let health = await worker.health()
                    let word = health.isDraining ? "draining" : health.isReady ? "ready" : "not ready"
                    return Probe(word, isGood: health.isReady, problems: health.probeProblems)
                }), logger: logger)
        logger.info(
            "the admin port answers /metrics, /healthz and /readyz",
            metadata: ["event": "admin_port_opened", "host": "\(address.host)", "port": "\(server.port)"])
        return server
    }
}

extension WorkerHealth {
    /// The problems, each with the first step from its row in ``Problem/table``.
    fileprivate var probeProblems: [Probe.Problem] {
        details.map {
            .init(
                $0.sentence, seconds: $0.seconds,
                advice: Operations.Problem.kind($0.kind.rawValue)?.hint ?? "")
        }
    }
}
