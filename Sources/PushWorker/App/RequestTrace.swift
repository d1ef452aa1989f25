import APNS
import Glibc
import NIOCore
import PushJob
import Telemetry

extension AppSender {
    /// Records two spans and an exemplar of a request that has ended, if the producer's trace is sampled. The spans are the request and the
    /// wait before it.
    /// - Parameter time: the time from the submission of the request to its end, in microseconds.
    func trace(_ flight: FlightID, _ result: RequestResult, time: UInt32) {
        let id = inFlight[flight].job
        guard let job = lane.jobs[id].job, let trace = job.trace else { return }
        let producer = Span.Context(traceID: trace.traceID, spanID: trace.parentID)
        let request = Span.Context(traceID: trace.traceID, spanID: Span.newID())
        // In nanoseconds since 1970.
        var clock = timespec()
        clock_gettime(CLOCK_REALTIME, &clock)
        let end = UInt64(clock.tv_sec) * 1_000_000_000 + UInt64(clock.tv_nsec)
        let start = end - UInt64(time) * 1000
        if result.isAnswer, lane.metrics.measuresTimes {
            lane.metrics.record(
                Exemplar(trace: request, value: Double(time) / 1_000_000, time: Double(end / 1_000_000) / 1000),
                time: time, app: self.id.index)
        }
        guard let spans = lane.spans else { return }
        var attributes: [String: Span.Value] = [
            "apns.app": .text(name), "messaging.system": .text("redis"),
            "messaging.destination.name": .text(ledger.queue(of: id).name),
        ]
        if let jobID = job.id { attributes["messaging.message.id"] = .text(String(buffer: job.text(jobID))) }
        var parentID = producer.spanID
        let queuedSince = lane.jobs[id].queuedSince
        // A notification waits once, however often it is sent.
        if queuedSince >= 0, inFlight[flight].resends == 0 {
            let wait = Span.Context(traceID: producer.traceID, spanID: Span.newID())
            // Producers' clocks may be ahead of this machine's.
            let since = UInt64(queuedSince) < start / 1_000_000 ? UInt64(queuedSince) * 1_000_000 : start
            spans.add(
                Span(
                    "push.wait", .consumer, context: wait, parentID: parentID, producer: producer, start: since,
                    end: start, attributes: attributes))
            parentID = wait.spanID
        }
        attributes.merge(requestAttributes(of: id, result)) { $1 }
        spans.add(
            Span(
                "apns.request", .client, context: request, parentID: parentID, producer: producer, start: start,
                end: end, attributes: attributes,
                failure: result.isAcceptance ? nil : String(result.inWords.prefix(200))))
    }

    private func requestAttributes(of id: JobID, _ result: RequestResult) -> [String: Span.Value] {
        let (topic, pushType) = address(of: id)
        var attributes: [String: Span.Value] = [
            "apns.topic": .text(topic), "apns.push_type": .text(pushType),
            "server.address": .text(configuration.endpoint.host),
            "server.port": .number(configuration.endpoint.port),
        ]
        guard case .response = result else { return attributes }
        attributes["http.request.method"] = .text("POST")
        if let status = result.status { attributes["http.response.status_code"] = .number(status) }
        return attributes
    }
}

extension RequestResult {
    fileprivate var isAcceptance: Bool {
        switch self {
        case .response(let response): response.status == 200
        case .confirmed: true
        case .notProcessed, .uncertain, .refused: false
        }
    }
}
