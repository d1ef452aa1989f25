import ArgumentParser
import FoundationEssentials
import Operations
import PushJob
import PushQueue

struct Plan: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "plan",
        abstract: "Calculate the workers, connections and Redis that a number of notifications needs.",
        discussion: """
            The calculation uses the costs of a notification that `scripts/bench` measured on the machine named in the last \
            line. --measure measures them on this machine, in less than a minute, with a simulated APNs in this process and \
            with keys of its own in Redis, which it deletes at the end. Measure on a Redis without other work, because its \
            whole CPU time counts.

            Each part is sized so that at most 70 % of it is used; the rest is for retries and unevenness. --workers, --lanes, \
            --connections and --streams set a part, to calculate how fast an existing fleet is.

            The exit status is 1 if the fleet is too slow.

              apns-worker plan --tokens 5M --within 2m --job-size 1000 --latency 80ms
              apns-worker plan --tokens 100M --within 1h --topology cluster:3
              apns-worker plan --tokens 5M --within 2m --measure --redis redis://127.0.0.1:6379
              apns-worker plan --tokens 5M --within 2m --workers 4 --lanes 2
            """)

    @Option(help: ArgumentHelp("Number of notifications, such as 200k, 5M or 1.5B.", valueName: "number"))
    var tokens: String
    @Option(help: ArgumentHelp("Time for all notifications, such as 2m.", valueName: "duration"))
    var within: String
    @Option(help: ArgumentHelp("Tokens per job.", valueName: "number"))
    var jobSize = "1"
    @Option(help: ArgumentHelp("Time after which APNs answers a request.", valueName: "duration"))
    var latency = "80ms"
    @Option(help: ArgumentHelp("single, sentinel, or cluster:N with N masters.", valueName: "topology"))
    var topology = "single"

    @Option(help: ArgumentHelp("Number of workers. (default: calculated, at least 2)", valueName: "number"))
    var workers: Int?
    @Option(help: ArgumentHelp("Lanes per worker. (default: calculated, at most 2)", valueName: "number"))
    var lanes: Int?
    @Option(help: ArgumentHelp("Connections per lane. (default: calculated)", valueName: "number"))
    var connections: Int?
    @Option(help: ArgumentHelp("Concurrent requests per connection.", valueName: "number"))
    var streams = 1000

    @Flag(help: "Measure the costs on this machine, with the Redis of --redis.") var measure = false
    @Option(
        help: ArgumentHelp("Notifications of each measurement.", valueName: "number", visibility: .hidden))
    var measuredNotifications = PlanMeasurement.notifications
    @Option(
        help: ArgumentHelp(
            "File with the costs: the member `constants` of an earlier --measure --json.", valueName: "file"))
    var constants: String?
    @Flag(help: "Print the plan and its constants as a JSON object.") var json = false
    @OptionGroup(title: "Redis") var redis: RedisOptions

    func validate() throws {
        if measure, constants != nil { throw ValidationError("--measure and --constants cannot be combined") }
        guard (2000...1_000_000).contains(measuredNotifications) else {
            throw ValidationError("--measured-notifications must be from 2000 to 1000000")
        }
    }

    func run() async throws {
        let work = try work()
        let given = CapacityPlan.Given(workers: workers, lanes: lanes, connections: connections, streams: streams)
        // Mistakes are reported before a measurement.
        _ = try Self.plan(work, given, try PlanConstants.ofProgram())
        let plan = try Self.plan(work, given, try await readConstants())
        let report = PlanReport(plan.plan, plan.constants, isMeasured: measure)
        if json { print(try report.json) } else { Terminal.print(report.text) }
        if !plan.plan.fits { throw ExitCode(ExitStatus.attention.rawValue) }
    }

    private static func plan(
        _ work: CapacityPlan.Work, _ given: CapacityPlan.Given, _ constants: PlanConstants
    ) throws -> (plan: CapacityPlan, constants: PlanConstants) {
        do {
            return (try CapacityPlan(work, given: given, constants), constants)
        } catch {
            throw ValidationError("\(error)")
        }
    }

    private func readConstants() async throws -> PlanConstants {
        if measure {
            let settings = try redis.settings()
            guard settings.given(.redisURL) != nil else {
                throw ValidationError(
                    "--measure writes to Redis, so it needs the server by name: --redis redis://127.0.0.1:6379")
            }
            return try await PlanMeasurement(settings, notifications: measuredNotifications).run()
        }
        guard let constants else { return try .ofProgram() }
        let data: Data
        do { data = try Data(contentsOf: URL(filePath: constants)) } catch {
            throw ValidationError("cannot read \(constants): does it exist, and is it readable?")
        }
        do { return try .read(data) } catch { throw ValidationError("\(constants) \(error)") }
    }

    private func work() throws -> CapacityPlan.Work {
        func count(_ text: String, _ flag: String) throws -> Int {
            guard let number = CountText.number(text) else {
                throw ValidationError("\(flag) is \(text); it must be a whole number such as 1000, 200k, 5M or 1B")
            }
            return number
        }
        return CapacityPlan.Work(
            tokens: try count(tokens, "--tokens"),
            within: try DurationText.option(within, "--within", 1...31_536_000),
            jobSize: try count(jobSize, "--job-size"),
            latency: try DurationText.option(latency, "--latency", 0...600_000, .milliseconds),
            clusterMasters: try masters())
    }

    /// Returns the number of masters of a Cluster; `nil` for a single server.
    private func masters() throws -> Int? {
        if topology == "single" || topology == "sentinel" { return nil }
        let parts = topology.split(separator: ":", omittingEmptySubsequences: false)
        guard parts.count == 2, parts[0] == "cluster", let masters = Int(parts[1]) else {
            throw ValidationError("--topology is \(topology); it must be single, sentinel or cluster:N with N masters")
        }
        return masters
    }
}
