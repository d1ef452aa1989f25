import PushQueue
import Redis

/// Some results of a queue, and the cursor of the next results.
package struct ResultListing: Sendable {
    package var results: [StoredResult] = []
    /// The number of results that were examined, matching or not.
    package var looked = 0
    /// The ID of the last result that was examined; `nil` if no more follow.
    package var cursor: String?

    package struct Order: Sendable {
        package var newestFirst = false
        /// The time of the oldest result, in milliseconds since 1970.
        package var since: Int64?
        /// The time of the newest result.
        package var until: Int64?

        package init() {}
    }

    /// The approximate number of results per read.
    private static let page = 500

    /// Reads results that match a filter.
    /// - Parameters:
    ///   - last: the result after which to continue; `nil` to begin.
    ///   - limit: the maximum number.
    ///   - end: the search ends at this time.
    /// - Throws: `RedisError`.
    package static func read(
        _ filter: ResultFilter, _ order: Order, after last: StoredResult.Place?, limit: Int,
        until end: ContinuousClock.Instant, _ client: RedisClient, _ keys: QueueKeys
    ) async throws -> ResultListing {
        var (listing, page) = (ResultListing(), ResultPage?.none)
        let (oldest, newest) = (order.since.map(String.init) ?? "-", order.until.map(String.init) ?? "+")
        // The entry of the last result may have more results, so the search begins with that entry.
        var start = last?.entry ?? (order.newestFirst ? newest : oldest)
        while true {
            let count = ResultPage.size(for: Self.page, after: page)
            let next = try await ResultPage.read(
                from: start, to: order.newestFirst ? oldest : newest, newestFirst: order.newestFirst, count: count,
                client, keys)
            for result in next.results {
                if let last, order.newestFirst ? result.place >= last : result.place <= last { continue }
                listing.looked += 1
                listing.cursor = result.id
                guard filter.matches(result) else { continue }
                listing.results.append(result)
                if listing.results.count == limit { return listing }
            }
            guard next.entries.count == count, let entry = next.entries.last else {
                listing.cursor = nil
                return listing
            }
            if .now >= end { return listing }
            (start, page) = ("(\(entry)", next)
        }
    }
}
