/// Polls a condition until it holds.
/// - Parameters:
///   - what: the condition in words, for the error.
///   - limit: the time after which the error is thrown. It is long, because a slow machine must not fail a test.
/// - Throws: ``ChildProcess/Failure`` with the condition, the place of the call, and the last output of all child processes.
package func eventually(
    _ what: String = "a condition", within limit: Duration = .seconds(180), file: StaticString = #fileID,
    line: UInt = #line, _ condition: () async throws -> Bool
) async throws {
    let first = ContinuousClock.now
    while true {
        let start = ContinuousClock.now
        if try await condition() { return }
        let end = ContinuousClock.now
        guard end < first + limit else {
            throw ChildProcess.Failure(
                description: "waited \(limit) in vain: \(what) (\(file):\(line))\(ChildProcess.lastWords)")
        }
        // A pause is short at first, so that a quick condition costs no time, and longer later, so that a slow one costs few polls. Many
        // tests run at a time, so the pause is also longer if a poll takes long.
        let pause = max(.milliseconds(1), min((end - first) / 10, .milliseconds(50)))
        try await Task.sleep(for: max(pause, min((end - start) * 6, .milliseconds(600))))
    }
}

/// Sends a command repeatedly until it has its effect, for servers that may refuse a command or abandon it silently.
/// - Parameters:
///   - interval: the time between an accepted command and the next.
///   - order: sends the command. If it returns false because the command was refused, the command is sent again at once.
///   - isDone: returns true once the command has had its effect.
/// - Throws: like ``eventually(_:within:file:line:_:)``.
package func eventually(
    _ what: String, within limit: Duration = .seconds(180), orderingEvery interval: Duration,
    _ order: () async throws -> Bool,
    until isDone: () async throws -> Bool
) async throws {
    var orderedAt: ContinuousClock.Instant?
    try await eventually(what, within: limit) {
        if orderedAt.map({ ContinuousClock.now - $0 > interval }) ?? true, try await order() { orderedAt = .now }
        return try await isDone()
    }
}
