import APNS
import Glibc
import NIOCore
import PushJob
import Telemetry

/// The spans and the exemplar of a request that has ended, if the producer's trace is sampled.
struct RequestTrace {
    private let app: AppSender
    private let flight: FlightID
    private let id: JobID
    private let job: Job
    private let result: RequestResult
    /// The time from its submission to its end, in microseconds.
    private let time: UInt32
    private let producer: Span.Context
    private let request: Span.Context
    /// In nanoseconds since 1970.
    private let start: UInt64
    private let end: UInt64

    /// - Parameter time: the time from the submission of the request to its end, in microseconds.
    /// - Returns: `nil` if its job has no trace.
    init?(_ flight: FlightID, _ result: RequestResult, time: UInt32, _ app: AppSender) {
        let id = app.inFlight[flight].job
        guard let job = app.lane.jobs[id].job, let trace = job.trace else { return nil }
        self.app = app
        self.flight = flight
        self.id = id
        self.job = job
        self.result = result
        self.time = time
        producer = Span.Context(traceID: trace.traceID, spanID: trace.parentID)
        request = Span.Context(traceID: trace.traceID, spanID: Span.newID())
        end = Self.nanosecondsSince1970()
        start = end - UInt64(time) * 1000
    }

    /// Records the request, and the wait before it.
    func record() {
        if result.isAnswer, app.lane.metrics.measuresTimes {
            app.lane.metrics.record(
                Exemplar(trace: request, value: Double(time) / 1_000_000, time: Double(end / 1_000_000) / 1000),
                time: time, app: app.id.index)
        }
        guard let spans = app.lane.spans else { return }
        var attributes: [String: Span.Value] = [
            "apns.app": .text(app.name), "messaging.system": .text("redis"),
            "messaging.destination.name": .text(app.ledger.queue(of: id).name),
        ]
        if let jobID = job.id { attributes["messaging.message.id"] = .text(String(buffer: job.text(jobID))) }
        var parentID = producer.spanID
        let queuedSince = app.lane.jobs[id].queuedSince
        // A notification waits once, however often it is sent.
        if queuedSince >= 0, app.inFlight[flight].resends == 0 {
            let wait = Span.Context(traceID: producer.traceID, spanID: Span.newID())
            // Producers' clocks may be ahead of this one.
            let since = UInt64(queuedSince) < start / 1_000_000 ? UInt64(queuedSince) * 1_000_000 : start
            spans.add(
                Span(
                    "push.wait", .consumer, context: wait, parentID: parentID, producer: producer, start: since,
                    end: start, attributes: attributes))
            parentID = wait.spanID
        }
        attributes.merge(requestAttributes) { $1 }
        spans.add(
            Span(
                "apns.request", .client, context: request, parentID: parentID, producer: producer, start: start,
                end: end, attributes: attributes, failure: isAccepted ? nil : String(result.inWords.prefix(200))))
    }

    private var requestAttributes: [String: Span.Value] {
        let (topic, pushType) = app.address(of: id)
        var attributes: [String: Span.Value] = [
            "apns.topic": .text(topic), "apns.push_type": .text(pushType),
            "server.address": .text(app.configuration.endpoint.host),
            "server.port": .number(app.configuration.endpoint.port),
        ]
        guard case .response = result else { return attributes }
        attributes["http.request.method"] = .text("POST")
        if let status = result.status { attributes["http.response.status_code"] = .number(status) }
        return attributes
    }

    private var isAccepted: Bool {
        switch result {
        case .response(let response): response.status == 200
        case .confirmed: true
        case .notProcessed, .uncertain, .refused: false
        }
    }

    private static func nanosecondsSince1970() -> UInt64 {
        var time = timespec()
        clock_gettime(CLOCK_REALTIME, &time)
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}
