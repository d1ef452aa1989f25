import HTTPTypes
import Hummingbird
import NIOCore
import Synchronization

/// Keeps pages in browsers up to date by server-sent events.
///
/// The address of the events is that of the page; a browser asks for them by `Accept: text/event-stream`. Each event is the
/// page's `main` element after a change. A script puts the parts that are marked `data-live` into the page.
package final class LiveUpdates: Sendable {
    /// The maximum number of streams at once. Further browsers ask again after a while instead.
    package static let maximumStreams = 200

    private let interval: Duration
    private let streams = Atomic(0)

    /// - Parameter interval: the time between two looks.
    package init(every interval: Duration = .seconds(2)) { self.interval = interval }

    /// True if a request asks for events.
    package static func isRequested(by request: Request) -> Bool {
        request.headers[.accept]?.hasPrefix("text/event-stream") ?? false
    }

    /// Returns a stream of events, which ends when the browser closes it or the port is stopped.
    /// - Parameter main: renders the page's `main` element.
    package func response(_ main: @escaping @Sendable () async throws -> HTML) -> Response {
        guard streams.add(1, ordering: .relaxed).newValue <= Self.maximumStreams else {
            streams.subtract(1, ordering: .relaxed)
            return Response(status: .serviceUnavailable, headers: [.retryAfter: "10"])
        }
        let slot = Slot(of: self)
        return Response(
            status: .ok,
            headers: [
                .contentType: "text/event-stream", .cacheControl: "no-store", .vary: "Accept",
                // nginx would hold the events back.
                HTTPField.Name("X-Accel-Buffering")!: "no",
            ],
            body: ResponseBody { [interval] writer in
                _ = slot
                var last: String?
                try await writer.write(ByteBuffer(string: "retry: 3000\n\n"))
                while !Task.isCancelled {
                    var event = ": still here\n\n"
                    do {
                        let text = try await main().text
                        if text != last {
                            event = Self.event("update", text)
                            last = text
                        }
                    } catch let error as CancellationError {
                        throw error
                    } catch {
                        // The page itself would show the problem.
                        event = Self.event("problem", "\(error)")
                        last = nil
                    }
                    try await writer.write(ByteBuffer(string: event))
                    try await Task.sleep(for: interval)
                }
                try await writer.finish(nil)
            })
    }

    private static func event(_ name: String, _ text: String) -> String {
        var event = "event: \(name)\n"
        for line in text.split(separator: "\n", omittingEmptySubsequences: false) { event += "data: \(line)\n" }
        return event + "\n"
    }

    /// A stream that is counted until its response is released.
    private final class Slot: Sendable {
        private let updates: LiveUpdates

        init(of updates: LiveUpdates) { self.updates = updates }

        deinit { updates.streams.subtract(1, ordering: .relaxed) }
    }
}
