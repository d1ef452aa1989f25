import APNS
import Glibc
import NIOCore
import PushJob
import Telemetry

/// A request of a job whose producer's trace is sampled.
struct RequestTrace {
    let job: Job
    let queue: String
    let app: AppConfiguration
    let appID: AppID
    let topic: String
    let pushType: String
    /// The start of the wait before the request, in milliseconds since 1970; `nil` if it must not be recorded.
    let queuedSince: Int64?

    /// Records two spans and an exemplar of the request, which has ended. The spans are the request and the wait before it.
    /// - Parameter time: the time from the submission of the request to its end, in microseconds.
    func record(_ result: RequestResult, time: UInt32, in lane: LaneContext) {
        guard let trace = job.trace else { return }
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
                time: time, app: appID.index)
        }
        guard let spans = lane.spans else { return }
        var attributes: [String: Span.Value] = [
            "apns.app": .text(app.name), "messaging.system": .text("redis"), "messaging.destination.name": .text(queue),
        ]
        if let jobID = job.id { attributes["messaging.message.id"] = .text(String(buffer: job.text(jobID))) }
        var parentID = producer.spanID
        if let queuedSince {
            let wait = Span.Context(traceID: producer.traceID, spanID: Span.newID())
            // Producers' clocks may be ahead of this machine's.
            let since = UInt64(queuedSince) < start / 1_000_000 ? UInt64(queuedSince) * 1_000_000 : start
            spans.add(
                Span(
                    "push.wait", .consumer, context: wait, parentID: parentID, producer: producer, start: since,
                    end: start, attributes: attributes))
            parentID = wait.spanID
        }
        attributes.merge(requestAttributes(result)) { $1 }
        spans.add(
            Span(
                "apns.request", .client, context: request, parentID: parentID, producer: producer, start: start,
                end: end, attributes: attributes,
                failure: result.isAcceptance ? nil : String(result.inWords.prefix(200))))
    }

    private func requestAttributes(_ result: RequestResult) -> [String: Span.Value] {
        var attributes: [String: Span.Value] = [
            "apns.topic": .text(topic), "apns.push_type": .text(pushType), "server.address": .text(app.endpoint.host),
            "server.port": .number(app.endpoint.port),
        ]
        guard case .response = result else { return attributes }
        attributes["http.request.method"] = .text("POST")
        if let status = result.status { attributes["http.response.status_code"] = .number(status) }
        return attributes
    }
}
