import NIOCore
import Synchronization

/// Where records go besides Redis.
struct FeedbackOutputs: Sendable {
    /// Standard output, for `--list`.
    let list: FeedbackOutput?
    /// For `--exec`.
    let command: FeedbackCommand?

    /// Whether anybody wants them.
    var isWanted: Bool { list != nil || command != nil }

    /// Hands them over; one that is slow does not keep the other waiting.
    func write(_ lines: ByteBuffer, count: Int) async {
        async let listed: Void? = list?.write(lines, count: count)
        async let handed: Void? = command?.write(lines, count: count)
        _ = await (listed, handed)
    }
}

/// How many records have been read, of all apps.
final class FeedbackProgress: Sendable {
    private let count = Atomic(0)

    var records: Int { count.load(ordering: .relaxed) }

    func add(_ records: Int) { count.add(records, ordering: .relaxed) }
}
