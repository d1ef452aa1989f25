import PrintableText
import PushQueue
import Redis

/// A Redis server that holds queues.
package struct ServerStatus: Sendable {
    package var found: QueueServer
    package var queues: [String]

    /// `nil` if the server refuses `INFO`.
    package var info: ServerInfo? { try? found.info.get() }

    /// Reads each server that has queues, once.
    /// - Throws: `RedisError`.
    static func read(_ queues: [QueueKeys], _ fleet: Fleet) async throws -> [ServerStatus] {
        var servers: [ServerStatus] = []
        for keys in queues {
            let client = try await fleet.client(for: keys.retry)
            let address = try await client.eventLoop.submit { client.server?.address }.get()
            if let known = servers.firstIndex(where: { $0.found.address == address }) {
                servers[known].queues.append(keys.queue)
            } else {
                servers.append(ServerStatus(found: try await QueueServer.read(client, keys), queues: [keys.queue]))
            }
        }
        return servers
    }
}

extension ServerStatus: Shown {
    package static let columns = Columns<Self>(
        "Server", "A Redis server that holds queues.",
        [
            .init("address", "Address.", \.found.address),
            .init("queues", "Queues that the server holds.", \.queues),
            .init("version", "Version.", \.info?.version),
            .init("role", "Role:", as: .choice(["master", "replica"])) { server in server.info?.role.map { "\($0)" } },
            .init("full", "True if the server's memory is full.", \.found.isFull),
            .init("used_memory_bytes", "Memory that counts against the limit.", as: .bytes, \.info?.usedMemory),
            .init("max_memory_bytes", "Limit of the memory; 0 for no limit.", as: .bytes, \.info?.memoryLimit),
            .init("eviction_policy", "Policy at the limit.", \.info?.evictionPolicy),
            .init("append_only", "True if the server keeps an append-only file.", \.info?.keepsAppendOnlyFile),
            .init("replicas", "Connected replicas.", as: .count, \.info?.replicas),
            .init("replicas_in_step", "Replicas that are in sync.", as: .count, \.info?.replicasInStep),
            .init("writes_refused", "Error with which the server refuses writes, if any.") {
                $0.found.writeRefusal?.message.printable
            },
            .init("error", "Error with which the server refuses INFO, if any.") { server -> String? in
                guard case .failure(let answer) = server.found.info else { return nil }
                return answer.message.printable
            },
        ])
}
