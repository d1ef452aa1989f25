import Foundation
import TestSupport
import Testing

/// - Parameters:
///   - rules: the rules of the simulator.
///   - options: the other options of the simulator.
///   - arguments: the arguments of Redis.
func startServers(
    rules: [String] = [], simulator options: [String] = [], redis arguments: [String] = []
) async throws -> (RedisServer, SimulatorProcess) {
    (try RedisServer(arguments: arguments), try await SimulatorProcess(rules: rules, options: options))
}

/// Returns the variables of an app with a key, for commands that use both servers.
func keyEnvironment(_ redis: RedisServer, _ simulator: SimulatorProcess) throws -> [String: String] {
    [
        "APNS_WORKER_REDIS_URL": redis.url, "APNS_WORKER_ENDPOINT": "localhost:\(simulator.port)",
        "APNS_WORKER_CA": try TestCertificates.path("ca.pem"),
        "APNS_WORKER_KEY": try TestCertificates.path("AuthKey_ABC123DEFG.p8"),
        "APNS_WORKER_TEAM_ID": "TEAM123456", "APNS_WORKER_TOPIC": "com.example.app",
    ]
}

/// Returns the variables of apps whose topics are `com.example.<app>`.
func appVariables(_ names: [String]) -> [String: String] {
    var variables = ["APNS_WORKER_APPS": names.joined(separator: ","), "APNS_WORKER_TOPIC": ""]
    for name in names { variables["APNS_WORKER_APPS_\(name.uppercased())_TOPIC"] = "com.example.\(name)" }
    return variables
}

extension WorkerProcess {
    /// With this variable, a worker reclaims after a second, so that a test need not wait. In a test of an outage, such a worker would
    /// reclaim from workers that are about to return.
    static let reclaimsSoon = ["APNS_WORKER_TEST_STEADY_TIME": "1000"]

    /// Starts a worker with its own simulator, and without the APNs variables that workers in tests have.
    static func simulating(
        _ redis: RedisServer, _ options: [String] = [], environment: [String: String] = [:]
    ) throws -> WorkerProcess {
        let none = ["ENDPOINT", "CA", "KEY", "KEY_ID", "TEAM_ID", "TOPIC"].map { ("APNS_WORKER_\($0)", "") }
        return try WorkerProcess(
            redis: redis.url, endpoint: 1, options: ["--simulate"] + options,
            environment: Dictionary(uniqueKeysWithValues: none).merging(environment) { $1 })
    }

    /// Starts a worker that uses both servers.
    convenience init(
        _ redis: RedisServer, _ simulator: SimulatorProcess, _ options: [String] = [],
        environment: [String: String] = [:], logsTo pipe: StalledPipe? = nil
    ) throws {
        try self.init(
            redis: redis.url, endpoint: simulator.port, options: options, environment: environment, logsTo: pipe)
    }
}

/// Runs a command of `apns-worker`.
/// - Parameter redis: the URL of the command's Redis.
func apnsWorker(_ redis: String, _ arguments: String...) async throws -> EndToEnd.CommandLineTests.Output {
    try await apnsWorker(redis, arguments)
}

/// Runs a command of `apns-worker`.
/// - Parameter redis: the URL of the command's Redis, unless the environment has another URL.
func apnsWorker(
    _ redis: String, _ arguments: [String], environment: [String: String] = [:], input: String? = nil
) async throws -> EndToEnd.CommandLineTests.Output {
    try await EndToEnd.CommandLineTests.run(
        arguments, environment: environment.merging(["APNS_WORKER_REDIS_URL": redis]) { own, _ in own }, input: input)
}

extension RedisServer {
    /// Pushes good jobs, one after the other, until a condition holds. A failure spends an attempt only if other jobs of its group are
    /// delivered at the same time.
    /// - Returns: the number of jobs.
    func pushGoodOnes(until description: String, _ condition: () async throws -> Bool) async throws -> Int {
        var count = 0
        try await eventually(description) {
            if try await condition() { return true }
            count += 1
            try push([TestJob.text(TestJob.token("99", count))])
            return false
        }
        try await eventually("they are delivered, too") { try QueueContents(self).isSettled }
        return count
    }

    func endLeases() throws {
        for name in try QueueContents(self).workers { try run("ZADD", "push:{default}:workers", "XX", "1", name) }
    }

    /// Waits until exactly this many notifications of the default queue have an outcome.
    func has(
        _ count: Int, _ outcome: String = "delivered", file: StaticString = #fileID, line: UInt = #line
    ) async throws {
        try await eventually("\(count) are counted as \(outcome)", file: file, line: line) {
            try self.counted(outcome) == count
        }
    }

    /// Starts a command of `apns-worker` on this server.
    func startCommand(_ arguments: [String]) throws -> ChildProcess {
        try ChildProcess(
            BuiltProgram.path("apns-worker"), arguments, environment: ["APNS_WORKER_REDIS_URL": url])
    }

    /// Starts a command of `apns-worker` on a terminal, and types a text there.
    func startOnTerminal(_ command: String, typing text: String) throws -> ChildProcess {
        try ChildProcess(
            "script", ["-qec", "\(BuiltProgram.path("apns-worker")) \(command)", "/dev/null"],
            environment: ["APNS_WORKER_REDIS_URL": url], input: Data(text.utf8))
    }

    /// Runs a command of `apns-worker` on this server.
    func apnsWorker(
        _ arguments: [String], environment: [String: String] = [:], input: String? = nil
    ) async throws -> EndToEnd.CommandLineTests.Output {
        try await EndToEndTests.apnsWorker(url, arguments, environment: environment, input: input)
    }
}

extension EndToEnd.CommandLineTests.Output {
    private func expect(
        _ isRight: Bool, _ words: [String], in text: String, _ location: SourceLocation
    ) -> Self {
        #expect(isRight, "\(self)", sourceLocation: location)
        for word in words { #expect(text.contains(word), "\(self)", sourceLocation: location) }
        return self
    }

    /// Expects this exit status, and these words in the output.
    @discardableResult
    func ends(_ status: Int32, _ words: String..., sourceLocation: SourceLocation = #_sourceLocation) -> Self {
        expect(ending == .exited(status), words, in: output, sourceLocation)
    }

    /// Expects the exit status 0, and these words in the output.
    @discardableResult
    func succeeds(_ words: String..., sourceLocation: SourceLocation = #_sourceLocation) -> Self {
        expect(ending == .exited(0), words, in: output, sourceLocation)
    }

    /// Expects another exit status than 0, and these words in the errors.
    @discardableResult
    func fails(_ words: String..., sourceLocation: SourceLocation = #_sourceLocation) -> Self {
        expect(ending != .exited(0), words, in: errors, sourceLocation)
    }

    /// Expects this exit status, and these words in the errors.
    @discardableResult
    func fails(_ status: Int32, _ words: String..., sourceLocation: SourceLocation = #_sourceLocation) -> Self {
        expect(ending == .exited(status), words, in: errors, sourceLocation)
    }

    /// Expects these words in the output, with any exit status.
    @discardableResult
    func shows(_ words: String..., sourceLocation: SourceLocation = #_sourceLocation) -> Self {
        expect(true, words, in: output, sourceLocation)
    }

    /// Expects these words in the errors, with any exit status.
    @discardableResult
    func reports(_ words: String..., sourceLocation: SourceLocation = #_sourceLocation) -> Self {
        expect(true, words, in: errors, sourceLocation)
    }

    @discardableResult
    func begins(_ text: String, sourceLocation: SourceLocation = #_sourceLocation) -> Self {
        expect(output.hasPrefix(text), [], in: output, sourceLocation)
    }

    /// Expects this pattern in the output, with any exit status.
    @discardableResult
    func matches(_ pattern: some RegexComponent, sourceLocation: SourceLocation = #_sourceLocation) -> Self {
        expect(output.contains(pattern), [], in: output, sourceLocation)
    }

    /// Expects that the output and the errors have none of these words.
    @discardableResult
    func lacks(_ words: String..., sourceLocation: SourceLocation = #_sourceLocation) -> Self {
        expect(!words.contains { output.contains($0) || errors.contains($0) }, [], in: output, sourceLocation)
    }

    /// Expects exactly this output.
    @discardableResult
    func prints(_ text: String, sourceLocation: SourceLocation = #_sourceLocation) -> Self {
        #expect(output == text, "\(self)", sourceLocation: sourceLocation)
        return self
    }
}
