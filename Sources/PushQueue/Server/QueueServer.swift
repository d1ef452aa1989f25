import NIOCore
import PrintableText
import Redis

/// The Redis server that holds a queue: its report about itself, and its refusal of writes, if any.
public struct QueueServer: Sendable, Equatable {
    /// `host:port`, or the path of a socket.
    public var address: String
    /// True if a failover can put another server in its place: with Sentinels and in a Cluster.
    public var isFailedOver: Bool
    /// The server's report on itself, or its refusal.
    public var info: Result<ServerInfo, RedisServerError>
    /// The error with which the server refuses a producer's write; `nil` if it accepts one, or if the user has no
    /// permission to write.
    public var writeRefusal: RedisServerError?
    /// The number of masters of the Cluster that the server is a node of, although the URL is of a single server; `nil`
    /// if it is not.
    public var clusterSize: Int?

    public init(
        address: String, isFailedOver: Bool = false, info: Result<ServerInfo, RedisServerError>,
        writeRefusal: RedisServerError? = nil
    ) {
        self.address = address
        self.isFailedOver = isFailedOver
        self.info = info
        self.writeRefusal = writeRefusal
    }

    /// Reads the state of the server. Changes nothing.
    ///
    /// It attempts a write: Redis refuses `RPUSHX` for the same reasons as a producer's `RPUSH` (`OOM`, `READONLY`,
    /// `MISCONF`, `NOREPLICAS`). `RPUSHX` pushes only onto a list that exists, and this one never does.
    /// - Parameter client: a ready client of the server that has the queue.
    /// - Throws: `RedisError` if there is no answer; refusals of the server are in the result.
    public static func read(_ client: RedisClient, _ keys: QueueKeys) async throws -> QueueServer {
        let address = try await client.eventLoop.submit { client.server?.address }.get()
        let report = try await answer(client, RedisCommand("INFO"))
        // The client leaves a server that answers like a replica, so this comes last.
        let attempt = try await answer(client, RedisCommand("RPUSHX", keys.stats("write-attempt"), ""))
        var server = QueueServer(
            address: (address ?? client.topology.address).printable, isFailedOver: client.topology.isFailedOver,
            info: report.map { ServerInfo($0.root.string ?? "") })
        if case .success(let info) = server.info, info.isClusterNode, case .single = client.topology,
            case .success(let state) = try await answer(client, RedisCommand("CLUSTER", "INFO"))
        {
            server.clusterSize = ServerInfo.number("cluster_size", in: state.root.string ?? "")
        }
        if case .failure(let error) = attempt, error.prefix != "NOPERM" { server.writeRefusal = error }
        return server
    }

    private static func answer(
        _ client: RedisClient, _ command: RedisCommand
    ) async throws -> Result<RESPReply, RedisServerError> {
        do {
            return .success(try await client.call(command))
        } catch RedisError.server(let error) {
            return .failure(error)
        }
    }

    /// True if the server refuses writes, or would refuse the next one, because its memory is full.
    public var isFull: Bool {
        if let writeRefusal { return writeRefusal.prefix == "OOM" }
        guard case .success(let info) = info, let share = info.memoryShare else { return false }
        return share >= 1 && !info.evicts
    }

    /// True if the server refuses writes, for any reason.
    public var refusesWrites: Bool { writeRefusal != nil || isFull }
}

extension RedisTopology {
    fileprivate var isFailedOver: Bool {
        switch self {
        case .single: false
        case .sentinel, .cluster: true
        }
    }
}
