import APNS
import Glibc
import PushJob
import Telemetry

/// The spans and exemplars of notifications whose producers trace them.
extension AppSender {
    /// Records a request that has ended, and the wait before it, if the producer's trace is sampled.
    /// - Parameter time: the time from its submission to its end, in microseconds.
    func trace(_ flight: FlightID, _ result: RequestResult, time: UInt32) {
        let id = inFlight[flight].job
        guard let job = lane.jobs[id].job, let trace = job.trace else { return }
        let producer = Span.Context(traceID: trace.traceID, spanID: trace.parentID)
        let end = Self.nanosecondsSince1970()
        let start = end - UInt64(time) * 1000
        let request = Span.Context(traceID: trace.traceID, spanID: Span.newID())
        if result.isAnswer, lane.metrics.measuresTimes {
            lane.metrics.note(
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
            let wait = Span.Context(traceID: trace.traceID, spanID: Span.newID())
            // Producers' clocks may be ahead of this one.
            let since = UInt64(queuedSince) < start / 1_000_000 ? UInt64(queuedSince) * 1_000_000 : start
            spans.add(
                Span(
                    "push.wait", .consumer, context: wait, parentID: parentID, producer: producer, start: since,
                    end: start, attributes: attributes))
            parentID = wait.spanID
        }
        let (topic, pushType) = address(of: id)
        attributes["apns.topic"] = .text(topic)
        attributes["apns.push_type"] = .text(pushType)
        attributes["server.address"] = .text(configuration.endpoint.host)
        attributes["server.port"] = .number(configuration.endpoint.port)
        if case .response = result {
            attributes["http.request.method"] = .text("POST")
            if let status = result.status { attributes["http.response.status_code"] = .number(status) }
        }
        let isAccepted =
            switch result {
            case .response(let response): response.status == 200
            case .confirmed: true
            case .notProcessed, .uncertain, .refused: false
            }
        spans.add(
            Span(
                "apns.request", .client, context: request, parentID: parentID, producer: producer, start: start,
                end: end, attributes: attributes, failure: isAccepted ? nil : String(result.inWords.prefix(200))))
    }

    private static func nanosecondsSince1970() -> UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}
