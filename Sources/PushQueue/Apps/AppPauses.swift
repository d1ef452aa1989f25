import NIOCore
import PrintableText
import Redis

/// The pauses of apps, which the whole fleet shares.
///
/// Not thread-safe. Use it only on the client's event loop; completions are called there, too.
package final class AppPauses {
    /// The answer to a worker that asks for a probe.
    package enum ProbeAnswer: Sendable, Equatable {
        /// The app is no longer paused.
        case closed
        /// Send one notification of the app.
        case granted
        /// The next probe is later; `nil` if only an operator ends the pause.
        case wait(milliseconds: Int64?, reason: String, detail: String?)
    }

    /// How long an app is paused.
    package struct Durations: Sendable, Equatable {
        /// The pause before the first probe, in milliseconds.
        package var first: Int64 = 15_000
        /// The longest pause between probes, in milliseconds.
        package var longest: Int64 = 300_000
        /// The time limit of a probe, after which another lane can send one, in milliseconds.
        package var probe: Int64 = 30_000

        /// The defaults.
        package init() {}
    }

    private let client: any RedisSender
    private let keys: SharedKeys
    private let worker: String
    /// The durations of pauses from now on.
    package var durations: Durations
    private let scripts: ScriptRunner

    /// - Parameters:
    ///   - client: a client for the slot of the shared keys.
    ///   - worker: the lane's name, which pauses record.
    package convenience init(client: any RedisSender, keys: SharedKeys, worker: String, durations: Durations) {
        self.init(client: client, keys: keys, worker: worker, durations: durations, clock: .server)
    }

    package init(client: any RedisSender, keys: SharedKeys, worker: String, durations: Durations, clock: ClockSource) {
        self.client = client
        self.keys = keys
        self.worker = worker
        self.durations = durations
        scripts = ScriptRunner(client: client, clock: clock)
    }

    /// Pauses an app for all workers with the same configuration, or lengthens its pause, because APNs has refused it.
    /// - Parameters:
    ///   - reason: the reason's code.
    ///   - detail: its explanation.
    ///   - isProbe: true if a probe was refused, which lengthens the pause.
    ///   - configuration: a digest of what APNs has refused, such as the credential. Other functions take the same.
    ///   - completion: gets the milliseconds until the next probe; `nil` if an operator has paused the app.
    package func trip(
        _ app: String, reason: String, detail: String?, isProbe: Bool, configuration: String,
        completion: @escaping (Result<Int64?, QueueFailure>) -> Void
    ) {
        run("trip", app, configuration, completion) { [durations] command in
            command.append(reason)
            command.append(detail ?? "")
            command.append(Int(durations.first))
            command.append(Int(durations.longest))
            command.append(isProbe ? 1 : 0)
        } reading: { _, pause, _ in
            pause.wait
        }
    }

    /// Asks whether to send a probe of a paused app.
    package func probe(
        _ app: String, configuration: String,
        completion: @escaping (Result<ProbeAnswer, QueueFailure>) -> Void
    ) {
        run("probe", app, configuration, completion) { [durations] command in
            command.append(Int(durations.probe))
        } reading: { answer, pause, reply in
            switch answer {
            case 0: return .closed
            case 1: return .granted
            case 2: return .wait(milliseconds: pause.wait, reason: pause.reason, detail: pause.detail)
            default:
                reply.refuse()
                return .closed
            }
        }
    }

    /// Ends the pause of an app, unless an operator ordered it, or it is one of workers with another configuration that
    /// still make probes.
    package func close(
        _ app: String, configuration: String, completion: @escaping (Result<Void, QueueFailure>) -> Void
    ) {
        run("close", app, configuration, completion, arguments: { _ in }, reading: { _, _, _ in })
    }

    /// The milliseconds to the next probe, the reason of the pause, and its explanation.
    private typealias Pause = (wait: Int64?, reason: String, detail: String?)

    private func run<Value>(
        _ action: String, _ app: String, _ configuration: String,
        _ completion: @escaping (Result<Value, QueueFailure>) -> Void,
        arguments: @escaping (inout RedisCommand) -> Void,
        reading read: @escaping (_ answer: Int, Pause, inout ScriptReply) -> Value
    ) {
        scripts.run(
            .gate, [keys.appPaused(app)],
            arguments: { [worker] command in
                command.append(action)
                command.append(worker)
                command.append(configuration)
                arguments(&command)
            },
            completion: completion
        ) { reply in
            let answer = reply.number()
            let pause = Pause(reply.numberIfAny(), reply.text().printable, reply.textIfAny()?.printable)
            return read(answer, pause, &reply)
        }
    }

    /// Reads the pauses of apps, in their order; `nil` for an app that is not paused.
    package func read(
        _ apps: [String], completion: @escaping (Result<[PauseRecord?], QueueFailure>) -> Void
    ) {
        guard !apps.isEmpty else { return completion(.success([])) }
        client.send(Self.query(apps, keys)) { result in
            completion(result.mapError(QueueFailure.redis).map { Self.pauses($0, of: apps) })
        }
    }

    package static func query(_ apps: [String], _ keys: SharedKeys) -> RedisCommand {
        var command = RedisCommand("MGET", expecting: apps.count, bytes: apps.count * 64)
        for app in apps { command.append(keys.appPaused(app)) }
        return command
    }

    package static func pauses(_ reply: RESPReply, of apps: [String]) -> [PauseRecord?] {
        var elements = reply.root.children
        return apps.map { _ in elements.next()?.bytes.map { PauseRecord($0) } }
    }
}
