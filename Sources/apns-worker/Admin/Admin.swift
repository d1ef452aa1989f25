import Logging
import PushWorker
import ServiceLifecycle
import Telemetry

/// What a worker that has an admin port measures, and answers there.
struct Admin {
    /// Where the worker is measured.
    let metrics: PrometheusMetrics
    private let address: (host: String, port: Int)
    private let logger: Logger

    init(address: (host: String, port: Int), logger: Logger) {
        self.address = address
        self.logger = logger
        let worker = WorkerMetric.all.map { metric in
            MetricFamily(metric.name, help: metric.help, buckets: metric.buckets.isEmpty ? nil : metric.buckets)
        }
        metrics = PrometheusMetrics(
            families: worker + ProcessMetrics.families, droppedName: "apns_worker_metric_series_dropped_total",
            onProblem: { logger.warning("metrics: \($0)", metadata: ["event": "metric_series_dropped"]) })
    }

    /// Begins to listen.
    /// - Throws: `HTTPPortFailure`.
    func start(for worker: Worker) async throws -> AdminServer {
        let process = ProcessMetrics(factory: metrics)
        let server = try await AdminServer.start(
            host: address.host, port: address.port,
            sources: .init(
                metrics: { [metrics] in
                    await worker.collectMetrics()
                    process.measure()
                    return metrics.text()
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

extension HistogramSeries: BatchRecorder {}

extension WorkerHealth {
    fileprivate var probeProblems: [Probe.Problem] { details.map { .init($0.sentence, seconds: $0.seconds) } }
}
