import Foundation
import TestSupport
import Testing

extension EndToEnd {
    /// A Redis and a simulated gateway, and workers between them.
    struct GatewayScene {
        struct Result {
            let worker: WorkerProcess.Account
            let queue: QueueContents
            let simulator: SimulatorProcess.Account
            let log: String
        }

        let redis: RedisServer
        let simulator: SimulatorProcess

        /// - Parameter rules: the `--gateway-rule`s of the simulator.
        init(rules: [String] = [], options: [String] = []) async throws {
            redis = try RedisServer()
            simulator = try await SimulatorProcess(gateway: rules, options: options)
        }

        /// Returns a simulator whose gateway listens on this port.
        static func gateway(on port: Int, rules: [String] = []) async throws -> SimulatorProcess {
            try await SimulatorProcess(
                options: ["--gateway-port", "\(port)", "--client-ca", try TestCertificates.path("ca.pem")]
                    + rules.flatMap { ["--gateway-rule", $0] })
        }

        func gatewayPort() throws -> Int { try #require(simulator.gatewayPort) }

        func queue() throws -> QueueContents { try QueueContents(redis) }

        /// The number of jobs that are not claimed: in the list, or deferred.
        func kept() throws -> Int {
            let queue = try queue()
            return queue.jobs.count + queue.retries.count
        }

        /// Starts a worker that sends to the gateway.
        func worker(
            confirmAfter: Int = 1000, options: [String] = [], environment: [String: String] = [:]
        ) throws -> WorkerProcess {
            try WorkerProcess(
                redis: redis.url, gateway: try gatewayPort(), confirmAfter: confirmAfter,
                options: options, environment: environment)
        }

        /// Waits until the queue is empty and the worker has ended, and expects all accounts to agree.
        func finish(
            _ worker: WorkerProcess, exactlyOnce: Bool = true, sourceLocation: SourceLocation = #_sourceLocation
        ) async throws -> Result {
            let account: WorkerProcess.Account
            do { account = try await worker.finish() } catch {
                let queue = try queue()
                Issue.record("\(queue.jobs.count) jobs, \(queue.retries.count) retries, \(queue.claims) claims left")
                throw error
            }
            let result = Result(
                worker: account, queue: try queue(), simulator: try await simulator.stop(), log: worker.log)
            expectAgreement(account, result.queue, sourceLocation: sourceLocation)
            let duplicates = result.simulator.acceptedByToken.values.reduce(0) { $0 + $1 - 1 }
            let limit = exactlyOnce ? 0 : account.possibleDuplicates
            #expect(duplicates <= limit, "\(duplicates) were accepted again", sourceLocation: sourceLocation)
            return result
        }

        /// Sends jobs, each to its own device, and returns the accounts and the queue.
        /// - Parameter exactlyOnce: true if no job may be sent twice, or counted as a possible duplicate.
        static func deliver(
            _ jobs: [String], rules: [String] = [], confirmAfter: Int = 1000, options: [String] = [],
            environment: [String: String] = [:], simulatorOptions: [String] = [], exactlyOnce: Bool = true,
            sourceLocation: SourceLocation = #_sourceLocation
        ) async throws -> Result {
            let scene = try await GatewayScene(rules: rules, options: simulatorOptions)
            try scene.redis.push(jobs)
            let worker = try scene.worker(
                confirmAfter: confirmAfter, options: ["--exit-when-done"] + options, environment: environment)
            let result = try await scene.finish(worker, exactlyOnce: exactlyOnce, sourceLocation: sourceLocation)
            if exactlyOnce { #expect(result.worker.possibleDuplicates == 0, sourceLocation: sourceLocation) }
            return result
        }
    }
}
