/// The requests that connections did not answer, so that they are resent on others.
///
/// A request is identified by its `apns-id`, which is the same at each attempt. Bounded: the newest replace the oldest.
struct UnansweredRequests {
    /// The number of requests that are kept.
    static let capacity = 256

    private struct Entry {
        var id: APNSID
        var connection: Int
        var isRefusal: Bool
    }

    private var entries: [Entry] = []
    private var oldest = 0

    var isEmpty: Bool { entries.isEmpty }

    /// - Parameters:
    ///   - connection: the identifier of the connection that did not answer.
    ///   - isRefusal: true if it refused the request at once; without another connection the request is resent on it.
    mutating func insert(_ id: APNSID, connection: Int, isRefusal: Bool) {
        let entry = Entry(id: id, connection: connection, isRefusal: isRefusal)
        guard entries.count == Self.capacity else { return entries.append(entry) }
        entries[oldest] = entry
        oldest = (oldest + 1) % Self.capacity
    }

    /// The end of a request on a connection, the worst last.
    enum Past: Comparable {
        case none, refused, timedOut
    }

    /// Returns the worst end that a request has had on a connection.
    func past(of id: APNSID, on connection: Int) -> Past {
        var past = Past.none
        for entry in entries where entry.id == id && entry.connection == connection {
            past = max(past, entry.isRefusal ? .refused : .timedOut)
        }
        return past
    }

    /// Removes the entries of a closed connection.
    mutating func forget(connection: Int) {
        guard entries.contains(where: { $0.connection == connection }) else { return }
        // Restores the order of age before entries are removed.
        entries = (entries[oldest...] + entries[..<oldest]).filter { $0.connection != connection }
        oldest = 0
    }
}
