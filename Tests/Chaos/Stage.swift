import Foundation
import NIOCore
import TestSupport

/// The processes of a run, and the effects of faults on them.
final class Stage: Sendable {
    let topology: Topology
    let servers: any QueueServers
    let simulator: SimulatorProcess
    let fleet: Fleet

    init(
        topology: Topology, durability: Durability, queue: HotQueue, workers: Int, lease: Int, seed: UInt64, logs: URL?
    ) async throws {
        self.topology = topology
        let single: SingleServer?
        switch topology {
        case .single:
            let server = try SingleServer(durability)
            (single, servers) = (server, server)
        case .sentinel: (single, servers) = (nil, try await SentinelServers(durability))
        case .cluster: (single, servers) = (nil, try await ClusterServers(durability, queue))
        }
        simulator = try await SimulatorProcess(
            rules: SimulatorRules.all, manyTokens: true,
            options: ["--delay", "20ms±15ms", "--seed", "\(seed)"] + WorkerSettings.simulatorOptions())
        var places: [Fleet.Place] = []
        for slot in 0..<workers {
            var redis: FaultProxy?
            if let single { redis = try await FaultProxy(to: single.port) }
            let apns = try await FaultProxy(to: simulator.port)
            places.append(
                Fleet.Place(
                    redis: redis, apns: apns, clock: try TestClock(),
                    settings: try WorkerSettings(slot: slot, endpoint: apns.port),
                    logs: slot % 4 == 1 ? try StalledPipe() : nil))
        }
        fleet = Fleet(places: places, queue: queue, redisURL: servers.url, lease: lease, logs: logs)
    }

    /// Changes the number of shards of the invalid tokens, before the first worker starts and after the last one has ended.
    func reshard(to shards: Int) async throws {
        // The lease of a worker that was killed lasts for a while.
        try await eventually("the invalid tokens have \(shards) shards") {
            let command = try ChildProcess(
                BuiltProgram.path("apns-worker"), ["invalid", "reshard", "--to", "\(shards)", "--yes"],
                environment: ["APNS_WORKER_REDIS_URL": self.servers.url])
            return try await command.wait() == .exited(0)
        }
    }

    /// Begins a fault.
    /// - Returns: a description of the fault in addition to its name.
    func begin(_ fault: Fault) async throws -> String? {
        switch (fault.action, fault.target) {
        case (.killWorker, .worker(let slot)): fleet.kill(slot)
        case (.stopWorker, .worker(let slot)): fleet.send(SIGSTOP, to: slot)
        case (.endWorker, .worker(let slot)): try fleet.replace(slot)
        case (.rotateCredentials, .worker(let slot)): try fleet.rotateCredentials(slot)
        case (.setClock(let seconds), .worker(let slot)): try fleet.places[slot].clock.set(by: seconds)
        case (.network(let network), .apnsOf(let slot)): try await begin(network, fleet.places[slot].apns)
        case (.network(let network), .redisOf(let slot)):
            if let proxy = fleet.places[slot].redis { try await begin(network, proxy) }
        case (.redis(let redisFault), _): return try await servers.begin(redisFault)
        default: preconditionFailure("the plan has a fault that its target cannot have")
        }
        if case .network(.delay(let milliseconds)) = fault.action { return "\(milliseconds) ms" }
        return nil
    }

    func end(_ fault: Fault) async throws {
        switch (fault.action, fault.target) {
        case (.killWorker, .worker(let slot)): try fleet.start(slot)
        case (.stopWorker, .worker(let slot)): fleet.send(SIGCONT, to: slot)
        case (.network(.cut), _), (.network(.reset), _): break
        case (.network, .apnsOf(let slot)): try await fleet.places[slot].apns.heal()
        case (.network, .redisOf(let slot)): try await fleet.places[slot].redis?.heal()
        case (.redis(let redisFault), _): try await servers.end(redisFault)
        default: break
        }
    }

    func heal() async throws {
        for (slot, place) in fleet.places.enumerated() {
            fleet.send(SIGCONT, to: slot)
            try await place.apns.heal()
            try await place.redis?.heal()
        }
        try await servers.heal()
        try await servers.waitUntilWell()
    }

    private func begin(_ network: Fault.Network, _ proxy: FaultProxy) async throws {
        switch network {
        case .cut: try await proxy.cut()
        case .reset: try await proxy.reset()
        case .blackHole: try await proxy.begin(.blackHole)
        case .noAnswers: try await proxy.begin(.noAnswers)
        case .refusal: try await proxy.begin(.refusal)
        case .delay(let milliseconds): try await proxy.begin(.delay(.milliseconds(Int64(milliseconds))))
        }
    }
}
