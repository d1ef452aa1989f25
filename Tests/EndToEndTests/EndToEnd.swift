import Testing

/// Runs the real binaries against a real `redis-server`, the simulator, and nginx. Each test has its own servers.
///
/// Tests run one at a time: each has several processes, and parallel tests would only wait for each other.
@Suite("End to end", .serialized, .timeLimit(.minutes(10)))
struct EndToEnd {}
