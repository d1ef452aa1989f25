import NIOCore
import Redis
import Synchronization
import TestSupport

/// A busy client: dozens of commands in flight, each on its own two keys, until one fails.
final class Pipeline: Sendable {
    private struct State {
        var next = 0
        var isStopped = false
        var unanswered = 0
        var answers: [Int] = []
        var failures: [String] = []
    }

    private static let depth = 50

    private let client: RedisClient
    private let tag: String
    private let pause: TimeAmount
    private let state = Mutex(State())

    /// - Parameter pause: the time between an answer and the next command.
    init(_ client: RedisClient, tag: String, pause: TimeAmount = .zero) {
        self.client = client
        self.tag = tag
        self.pause = pause
    }

    /// The errors; there should be none.
    var failures: [String] { state.withLock { Array($0.failures.prefix(5)) } }

    func start() {
        client.eventLoop.execute { for _ in 0..<Self.depth { self.sendNext() } }
    }

    /// Waits until this many more commands are answered.
    func advance(by count: Int) async throws {
        let goal = answered + count
        try await eventually { self.answered >= goal || !self.failures.isEmpty }
    }

    /// Ends the load.
    /// - Returns: the values that were appended to the list, in the order of the answers.
    func finish() async throws -> [Int] {
        state.withLock { $0.isStopped = true }
        try await eventually { self.state.withLock { $0.unanswered == 0 } }
        return state.withLock { $0.answers }
    }

    private var answered: Int { state.withLock { $0.answers.count } }

    private func sendNext() {
        let number = state.withLock { state -> Int? in
            guard !state.isStopped, state.failures.isEmpty else { return nil }
            defer { state.next += 1 }
            state.unanswered += 2
            return state.next
        }
        guard let number else { return }
        client.send(RedisCommand("RPUSH", "\(tag)list", "\(number)")) { result in
            self.state.withLock { state in
                state.unanswered -= 1
                switch result {
                case .success: state.answers.append(number)
                case .failure(let error): state.failures.append("\(number): \(error)")
                }
            }
        }
        client.send(RedisCommand("INCR", "\(tag)count")) { result in
            self.state.withLock { state in
                state.unanswered -= 1
                if case .failure(let error) = result { state.failures.append("count \(number): \(error)") }
            }
            self.client.eventLoop.scheduleTask(in: self.pause) { self.sendNext() }
        }
    }
}
