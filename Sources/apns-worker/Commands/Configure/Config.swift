import ArgumentParser
import Operations

struct Config: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "config",
        abstract: "Print the effective settings and the source of each. Secrets are masked.",
        discussion: """
            Uses the flags of `run`. A setting can be a flag, an environment variable, or in a YAML file (--config); a flag \
            overrides a variable, and a variable overrides the file. In the file a name is lower-case without APNS_WORKER_, and \
            groups are mappings:

              redis:
                url: redis://redis:6379        # APNS_WORKER_REDIS_URL
              queues:
                critical: {weight: 6}          # or queue: critical:6,default:3
                default: {weight: 3}
              team_id: TEAM123456              # for all apps without their own
              apps:
                shop:
                  topic: com.example.shop      # APNS_WORKER_APPS_SHOP_TOPIC
                  key: /run/secrets/AuthKey_ABC123DEFG.p8
                  max_per_second: 500

            An app's own value overrides the common one. A secret can be in a file of its own: APNS_WORKER_REDIS_URL_FILE, or \
            `url_file`.

            Durations have units (500ms, 45s, 1h30m, 90d), as do sizes (64MiB).

            A worker reads its file again after a change and at SIGHUP, and applies the settings of apps and those marked \
            (reloaded) here. Other changes need a restart, which the log reports.
            """)

    @OptionGroup(title: "Queues") var queues: QueuesOptions
    @OptionGroup(title: "App") var app: AppOptions
    @OptionGroup(title: "Binary gateway (--transport gateway)") var gateway: SettingFlags<GatewayFlags>
    @OptionGroup(title: "Work") var work: SettingFlags<WorkFlags>
    @OptionGroup(title: "Metrics and probes") var admin: SettingFlags<AdminFlags>

    @Flag(help: "Omit defaults.") var given = false
    @Flag(help: "Print the list of each queue in Redis instead, and the command by which producers push jobs.")
    var keys = false
    @Flag(
        help: """
            Print one JSON object per setting: key, value, source and reloaded; with --keys one per queue: queue, list, push \
            and weight.
            """)
    var json = false

    func validate() throws {
        if keys, given { throw ValidationError("--keys and --given cannot be combined") }
    }

    private struct QueueList: Encodable {
        let queue, list, push: String
        let weight: Int
    }

    func run() async throws {
        let settings = try queues.settings(app.given, gateway.given, work.given, admin.given)
        guard !keys else {
            for queue in try QueueSettings(settings).all() {
                let (keys, weight) = (queue.keys, queue.weight)
                let line = QueueList(queue: keys.queue, list: keys.jobs, push: keys.pushCommand, weight: weight)
                print(json ? try JSONLine.text(line) : "\(line.queue)  \(line.push) \(line.list)")
            }
            return
        }
        let lines = try EffectiveSettings(settings, includesDefaults: !given).lines
        if json {
            for line in lines { print(try JSONLine.text(line)) }
        } else {
            Terminal.print(EffectiveSettings.yaml(lines))
        }
        // Reports mistakes that no single setting shows: missing files, and contradictory settings.
        _ = try WorkerSettings(settings).configuration(named: "config")
    }
}
