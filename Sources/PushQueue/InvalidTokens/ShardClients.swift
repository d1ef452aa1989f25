import NIOCore
import Redis

/// The clients of the servers that hold the set of invalid tokens: several if the set is divided. Each call goes to the
/// server of its key, and is repeated while that key is being moved to another server.
///
/// Not thread-safe. Use it only on the clients' event loop; completions are called there, too.
public final class ShardClients {
    /// A check that fails if a call must no longer be made.
    public typealias Check = (_ completion: @escaping Completion<Void>) -> Void

    /// Redis refuses some calls while a shard is moved to another server. They are repeated after this pause, for this long.
    private static let (moveCheck, movePatience) = (TimeAmount.milliseconds(50), TimeAmount.seconds(10))

    /// Returns the client for the slot of a key.
    private let client: (_ key: String) -> any RedisSender
    private let clock: ClockSource
    private var runners: [ObjectIdentifier: ScriptRunner] = [:]

    init(_ client: @escaping (_ key: String) -> any RedisSender, clock: ClockSource) {
        (self.client, self.clock) = (client, clock)
    }

    /// Runs a script on the server of its first key. While that key is being moved to another server, the call is repeated.
    /// - Parameter check: made before each attempt, because the connection or the move can take long.
    public func run<Value>(
        _ script: QueueScript, _ keyNames: [String], if check: @escaping Check = { $0(.success(())) },
        expecting count: Int = 16,
        arguments: @escaping (inout RedisCommand) -> Void, completion: @escaping Completion<Value>,
        reading read: @escaping (inout ScriptReply) -> Value
    ) {
        let client = client(keyNames[0])
        let end = client.eventLoop.now + Self.movePatience
        func attempt() {
            check { [self] result in
                if case .failure(let failure) = result { return completion(.failure(failure)) }
                let runner = runners[ObjectIdentifier(client)] ?? ScriptRunner(client: client, clock: clock)
                runners[ObjectIdentifier(client)] = runner
                runner.run(
                    script, keyNames, expecting: count, arguments: arguments,
                    completion: { result in
                        guard case .failure(let failure) = result, failure.isOfMove, client.eventLoop.now < end else {
                            return completion(result)
                        }
                        client.eventLoop.assumeIsolated().scheduleTask(in: Self.moveCheck) { attempt() }
                    }, reading: read)
            }
        }
        // A shard's client is made when it is first used.
        client.afterFirstAttempt { attempt() }
    }

    public func send(_ command: RedisCommand, for key: String, completion: @escaping RedisCommand.Completion) {
        let client = client(key)
        client.afterFirstAttempt { client.send(command, completion: completion) }
    }

    /// Makes several calls at once.
    /// - Parameter completion: gets the values, in the order of the items, or the first failure.
    public static func join<Item, Value>(
        _ items: [Item], completion: @escaping Completion<[Value]>,
        _ body: (Item, @escaping Completion<Value>) -> Void
    ) {
        guard !items.isEmpty else { return completion(.success([])) }
        var values = [Value?](repeating: nil, count: items.count)
        var (left, failure): (Int, QueueFailure?) = (items.count, nil)
        for (index, item) in items.enumerated() {
            body(item) { result in
                switch result {
                case .success(let value): values[index] = value
                case .failure(let error): failure = failure ?? error
                }
                left -= 1
                if left == 0 { completion(failure.map { .failure($0) } ?? .success(values.compactMap { $0 })) }
            }
        }
    }
}
