import Testing

/// The real binaries against a real `redis-server`, the simulator, and nginx. Each test has servers of its own.
///
/// One test at a time: each has several processes, and two of them at once would only wait for each other.
@Suite("End to end", .serialized, .timeLimit(.minutes(4)))
struct EndToEnd {}
