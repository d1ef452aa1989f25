import NIOCore
import PrintableText
import Redis

/// The pauses of apps, which the whole fleet keeps.
///
/// Not thread-safe; everything is called, and calls back, on the clients' event loop.
public final class AppPauses {
    /// What a worker that asks for a probe is told.
    public enum ProbeAnswer: Sendable, Equatable {
        /// The app is not paused any more.
        case closed
        /// Send one notification of the app.
        case granted
        /// Not for so many milliseconds; `nil` where only a person ends the pause.
        case wait(milliseconds: Int64?, reason: String)
    }

    /// How long an app is paused.
    public struct Durations: Sendable, Equatable {
        /// The pause before the first probe, in milliseconds.
        public var first: Int64 = 15_000
        /// The longest pause between probes, in milliseconds.
        public var longest: Int64 = 300_000
        /// How long a probe may take before another may be made, in milliseconds.
        public var probe: Int64 = 30_000

        /// The defaults.
        public init() {}
    }

    private let clients: RedisClients
    private let keys: SharedKeys
    private let worker: String
    /// For how long an app is paused from now on.
    public var durations: Durations
    private let scripts: ScriptRunners

    /// - Parameter worker: the name to write down.
    public init(clients: RedisClients, keys: SharedKeys, worker: String, durations: Durations) {
        self.clients = clients
        self.keys = keys
        self.worker = worker
        self.durations = durations
        scripts = ScriptRunners(clients: clients)
    }

    /// APNs has refused an app.
    /// - Parameters:
    ///   - isProbe: whether it was a probe that was refused: the next one comes later.
    ///   - completion: gets in how many milliseconds the next probe is due; `nil` where a person has paused the app.
    public func trip(
        _ app: String, reason: String, isProbe: Bool,
        completion: @escaping (Result<Int64?, QueueConnection.Failure>) -> Void
    ) {
        let key = keys.appPaused(app)
        scripts.runner(for: key).run(
            .trip, [key],
            arguments: { [worker, durations] command in
                command.append(worker)
                command.append(reason)
                command.append(Int(durations.first))
                command.append(Int(durations.longest))
                command.append(isProbe ? 1 : 0)
            },
            completion: { result in
                completion(
                    result.flatMap { reply in
                        guard reply.root.count == 2, let wait = reply.root[1].integer else {
                            return .failure(.unexpectedReply(.trip))
                        }
                        return .success(wait < 0 ? nil : Int64(wait))
                    })
            })
    }

    /// Asks whether to send a probe of a paused app.
    public func probe(
        _ app: String, completion: @escaping (Result<ProbeAnswer, QueueConnection.Failure>) -> Void
    ) {
        let key = keys.appPaused(app)
        scripts.runner(for: key).run(
            .probe, [key],
            arguments: { [worker, durations] command in
                command.append(worker)
                command.append(Int(durations.probe))
            },
            completion: { result in completion(result.flatMap(Self.probeAnswer)) })
    }

    private static func probeAnswer(_ reply: RESPReply) -> Result<ProbeAnswer, QueueConnection.Failure> {
        guard reply.root.count == 3, let wait = reply.root[1].integer, let reason = reply.root[2].string else {
            return .failure(.unexpectedReply(.probe))
        }
        switch reply.root[0].integer {
        case 0: return .success(.closed)
        case 1: return .success(.granted)
        case 2:
            return .success(
                .wait(milliseconds: wait < 0 ? nil : Int64(wait), reason: reason.printable))
        default: return .failure(.unexpectedReply(.probe))
        }
    }

    /// Ends the pause of an app, but for one that a person ordered: a probe got through.
    public func close(_ app: String, completion: @escaping (Result<Void, QueueConnection.Failure>) -> Void) {
        let key = keys.appPaused(app)
        scripts.runner(for: key).run(.close, [key], arguments: { _ in }, completion: { completion($0.map { _ in }) })
    }

    /// The pauses of apps; `nil` for one that is not paused.
    /// - Parameter completion: gets one for each app, in their order; a failure when one of them cannot be read.
    public func read(_ apps: [String], completion: @escaping (Result<[AppPause?], RedisError>) -> Void) {
        var pauses: [AppPause?] = Array(repeating: nil, count: apps.count)
        var (open, failure) = (apps.count, RedisError?.none)
        guard open > 0 else { return completion(.success([])) }
        for (index, app) in apps.enumerated() {
            let key = keys.appPaused(app)
            clients.client(for: key).send(RedisCommand("GET", key)) { result in
                switch result {
                case .success(let reply): pauses[index] = reply.root.bytes.map { AppPause($0) }
                case .failure(let error): failure = failure ?? error
                }
                open -= 1
                if open == 0 { completion(failure.map(Result.failure) ?? .success(pauses)) }
            }
        }
    }
}

extension AppPauses {
    /// Pauses an app because a person wants it, until a person ends it. From a command.
    /// - Throws: `RedisError`.
    public static func order(
        _ pause: AppPause, of app: String, _ client: RedisClient, _ keys: SharedKeys
    ) async throws {
        var command = RedisCommand("SET", keys.appPaused(app))
        command.append(pause.json)
        _ = try await client.call(command)
    }

    /// The pause of an app; `nil` when it is not paused. From a command.
    /// - Throws: `RedisError`.
    public static func read(_ app: String, _ client: RedisClient, _ keys: SharedKeys) async throws -> AppPause? {
        try await client.call(RedisCommand("GET", keys.appPaused(app))).root.bytes.map { AppPause($0) }
    }

    /// Ends the pause of an app, whoever began it. From a command.
    /// - Returns: whether it was paused.
    /// - Throws: `RedisError`.
    public static func end(_ app: String, _ client: RedisClient, _ keys: SharedKeys) async throws -> Bool {
        try await client.call(RedisCommand("DEL", keys.appPaused(app))).root.integer == 1
    }
}
