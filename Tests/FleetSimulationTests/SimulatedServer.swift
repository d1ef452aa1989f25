import Foundation
import NIOCore
import Operations
import TestSupport

@testable import PushQueue
@testable import Redis

/// The real Redis of a simulation, over a blocking connection.
final class SimulatedServer {
    static let clock = "simulation:clock"
    /// The scripts, by the digests of their sources.
    static let scripts = Dictionary(
        (QueueScript.ofWorkers + QueueScript.ofOperators).map { $0.reading(.key(clock)) }.map { ($0.digest, $0) },
        uniquingKeysWith: { one, _ in one })

    /// The sources of the scripts as a mutation changes them. All runs on a server have the same mutation, or none.
    var mutated: [QueueScript: MutatedSource] = [:]

    private let process: RedisServer
    private let descriptor: Int32
    private let decoder = RESPDecoder()
    private var input = [UInt8](repeating: 0, count: RESPDecoder.portion)

    init() throws {
        let path = FileManager.default.temporaryDirectory.appendingPathComponent(
            "simulation-\(UInt32.random(in: 0...UInt32.max)).sock"
        ).path
        process = try RedisServer(arguments: ["--unixsocket", path, "--maxmemory-policy", "noeviction"])
        descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8.prefix($0.count - 1)) }
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        guard result == 0 else { throw FleetSimulation.Violation(description: "no connection to \(path)") }
    }

    deinit { close(descriptor) }

    /// Removes all data and all scripts, because a run would differ from another if its scripts were already loaded.
    func reset() {
        run([
            RedisCommand("CONFIG", "SET", "maxmemory", "0"), RedisCommand("FLUSHALL", "SYNC"),
            RedisCommand("SCRIPT", "FLUSH", "SYNC"),
        ])
    }

    @discardableResult
    func run(_ command: RedisCommand) -> RESPReply { run([command])[0] }

    /// Executes commands in one round trip.
    @discardableResult
    func run(_ commands: [RedisCommand]) -> [RESPReply] {
        var output = ByteBuffer()
        do {
            for command in commands { try command.encode(into: &output) }
            try write(output)
            var replies: [RESPReply] = []
            while replies.count < commands.count {
                if let reply = try decoder.next() {
                    replies.append(reply)
                    continue
                }
                let count = read(descriptor, &input, input.count)
                guard count > 0 else { preconditionFailure("redis-server has ended: \(process.log.suffix(2000))") }
                try input.withUnsafeBytes { try decoder.feed(UnsafeRawBufferPointer(rebasing: $0[..<count])) }
            }
            return replies
        } catch {
            preconditionFailure("redis-server: \(error)")
        }
    }

    private func write(_ bytes: ByteBuffer) throws {
        bytes.withUnsafeReadableBytes { bytes in
            var rest = bytes[...]
            while !rest.isEmpty {
                let count = Foundation.write(descriptor, UnsafeRawBufferPointer(rebasing: rest).baseAddress, rest.count)
                guard count > 0 else { preconditionFailure("redis-server has ended: \(process.log.suffix(2000))") }
                rest = rest.dropFirst(count)
            }
        }
    }

    func dump() -> [(key: String, dump: ByteBuffer)] {
        let keys = run(RedisCommand("KEYS", "*")).root.children.compactMap(\.string).sorted()
        let dumps = run(keys.map { RedisCommand("DUMP", $0) })
        return zip(keys, dumps).compactMap { key, dump in dump.root.bytes.map { (key, $0) } }
    }

    func restore(_ dumps: [(key: String, dump: ByteBuffer)]) {
        run(
            [RedisCommand("FLUSHALL", "SYNC")]
                + dumps.map { key, dump in
                    var command = RedisCommand("RESTORE", key, "0")
                    command.append(dump)
                    return command
                })
    }
}

/// The source of a script that a mutation has changed.
struct MutatedSource {
    let text: String
    let digest: String

    init(of script: QueueScript, replacing find: String, by replacement: String) {
        text = String(decoding: script.source, as: UTF8.self).replacingOccurrences(of: find, with: replacement)
        digest = QueueScript.digest(of: Array(text.utf8))
    }
}

struct CommandArguments {
    private let command: RedisCommand
    private var starts: [Int] = []
    private var keyCount = 0

    init(_ command: RedisCommand) {
        self.command = command
        starts.reserveCapacity(command.lengths.count)
        var start = command.arguments.readerIndex
        for length in command.lengths {
            starts.append(start)
            start += length
        }
        if starts.count > 2, self[0].hasPrefix("EVAL") { keyCount = Int(self[2]) ?? 0 }
    }

    func text(_ index: Int) -> String {
        command.arguments.getString(at: starts[index], length: command.lengths[index]) ?? ""
    }

    subscript(index: Int) -> String { index < starts.count ? text(index) : "" }

    /// Returns a key of a script, counted from 0.
    func key(_ index: Int) -> String? { index < keyCount ? self[3 + index] : nil }

    /// Returns an argument of a script, counted from 0.
    func value(_ index: Int) -> String? {
        let index = 3 + keyCount + index
        return index < starts.count ? self[index] : nil
    }

    /// The script that the command runs.
    var script: QueueScript? {
        switch self[0] {
        case "EVALSHA": SimulatedServer.scripts[self[1]]
        case "EVAL": SimulatedServer.scripts[QueueScript.digest(of: Array(self[1].utf8))]
        default: nil
        }
    }

    /// Returns the command with a text in its script's source replaced.
    /// - Parameter known: a cache of the changed sources by script. Searching a source takes longer than a step.
    func replacing(
        _ find: String, by replacement: String, _ known: inout [QueueScript: MutatedSource]
    ) -> RedisCommand {
        guard let script else { return command }
        let mutated = known[script] ?? MutatedSource(of: script, replacing: find, by: replacement)
        known[script] = mutated
        var changed = RedisCommand(self[0])
        for index in 1..<starts.count {
            if index == 1 {
                changed.append(self[0] == "EVAL" ? mutated.text : mutated.digest)
            } else if let bytes = command.arguments.getSlice(at: starts[index], length: command.lengths[index]) {
                changed.append(bytes)
            }
        }
        return changed
    }
}
