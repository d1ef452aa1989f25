import NIOConcurrencyHelpers
import NIOCore

/// A value made from secrets, such as a TLS context. It is made again when their files change.
///
/// The files are read when the value is needed, at most once per second, so the next connection uses replaced secrets. While the files are
/// unusable, the last usable value is kept.
public final class Renewable<Value: Sendable>: Sendable {
    public enum Change: Sendable {
        case renewed
        /// The files are unusable, so the previous value is kept. Reported once per problem.
        case unusable(any Error)
    }

    private struct State {
        var value: Value
        var watch: SecretWatch
        var lookedAt: NIODeadline
        var change: Change?
    }

    private static var interval: TimeAmount { .seconds(1) }

    public let sources: [SecretSource]
    private let state: NIOLockedValueBox<State>
    private let make: @Sendable ([[UInt8]]) throws -> Value

    /// Creates a value that never changes.
    public init(_ value: Value) {
        sources = []
        state = NIOLockedValueBox(
            State(value: value, watch: SecretWatch([], inUse: []), lookedAt: .distantPast))
        make = { _ in value }
    }

    /// Reads the sources and makes the value.
    /// - Parameter make: makes the value from the contents, in the order of the sources.
    /// - Throws: ``SecretSource/Unreadable``, or an error of `make`.
    public init(_ sources: [SecretSource], make: @escaping @Sendable ([[UInt8]]) throws -> Value) throws {
        let contents = try sources.map { try $0.read() }
        self.sources = sources
        self.make = make
        state = NIOLockedValueBox(
            State(value: try make(contents), watch: SecretWatch(sources, inUse: contents), lookedAt: .now()))
    }

    /// The value, made from the files as they are now. Reading them blocks the thread.
    public var current: Value {
        state.withLockedValue { state in
            look(&state, now: .now())
            return state.value
        }
    }

    /// Looks at the files, and returns the last change since the previous call.
    public func takeChange() -> Change? {
        state.withLockedValue { state in
            look(&state, now: .now())
            defer { state.change = nil }
            return state.change
        }
    }

    private func look(_ state: inout State, now: NIODeadline) {
        guard state.watch.canChange, now - state.lookedAt >= Self.interval else { return }
        state.lookedAt = now
        // New contents count only when two reads in a row find the same contents.
        for _ in 0..<2 {
            switch state.watch.renew(make) {
            case .unchanged: break
            case .renewed(let value):
                state.value = value
                state.change = .renewed
            case .failed(let error): state.change = .unusable(error)
            }
        }
    }
}
