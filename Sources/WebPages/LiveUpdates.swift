import HTTPTypes
import Hummingbird
import NIOCore
import Synchronization

/// Keeps open pages up to date with server-sent events.
///
/// The events have the page's URL; a browser requests them with `Accept: text/event-stream`. Each event is the page's
/// `main` element after a change. A script replaces the sections of the page that are marked `data-live`.
package final class LiveUpdates: Sendable {
    /// The maximum number of concurrent streams. Further browsers poll instead.
    package static let maximumStreams = 200

    private let interval: Duration
    private let streams = Atomic(0)

    /// - Parameter interval: the time between two renderings.
    package init(every interval: Duration = .seconds(2)) { self.interval = interval }

    package static func isRequested(by request: Request) -> Bool {
        request.headers[.accept]?.hasPrefix("text/event-stream") ?? false
    }

    /// Returns a stream of events, which ends when the browser closes it or the port stops.
    /// - Parameter main: renders the page's `main` element; nil ends the stream, because its visitor may no longer see
    ///   the page.
    package func response(_ main: @escaping @Sendable () async throws -> HTML?) -> Response {
        guard streams.add(1, ordering: .relaxed).newValue <= Self.maximumStreams else {
            streams.subtract(1, ordering: .relaxed)
            return Response(status: .serviceUnavailable, headers: [.retryAfter: "10"])
        }
        let slot = Slot(of: self)
        return Response(
            status: .ok,
            headers: [
                .contentType: "text/event-stream", .cacheControl: "no-store", .vary: "Accept",
                // Keeps nginx from buffering the events.
                HTTPField.Name("X-Accel-Buffering")!: "no",
            ],
            body: ResponseBody { [interval] writer in
                _ = slot
                var last: String?
                try await writer.write(ByteBuffer(string: "retry: 3000\n\n"))
                while !Task.isCancelled {
                    var event = ": still here\n\n"
                    do {
                        guard let text = try await main()?.text else { break }
                        if text != last {
                            event = Self.event("update", text)
                            last = text
                        }
                    } catch let error as CancellationError {
                        throw error
                    } catch {
                        // The page itself would show the same problem.
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
        // Each of these three line ends begins a new field of server-sent events.
        for line in text.split(omittingEmptySubsequences: false, whereSeparator: { "\n\r\r\n".contains($0) }) {
            event += "data: \(line)\n"
        }
        return event + "\n"
    }

    /// A stream, counted until its response is released.
    private final class Slot: Sendable {
        private let updates: LiveUpdates

        init(of updates: LiveUpdates) { self.updates = updates }

        deinit { updates.streams.subtract(1, ordering: .relaxed) }
    }
}
