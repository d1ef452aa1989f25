import ArgumentParser

struct Config: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Print the settings that a worker would have here, and where each is from; secrets are hidden.",
        discussion: """
            Takes the flags of `run`. A setting can be given by its flag, by an environment variable, or in a YAML file \
            (--config), and the first of these wins. In the file a variable's name is written small and without \
            APNS_WORKER_; groups are mappings:

              redis:
                url: redis://redis:6379        # APNS_WORKER_REDIS_URL
              queues:
                critical: {weight: 6}          # or queue: critical:6,default:3
                default: {weight: 3}
              team_id: TEAM123456              # for all apps that have none of their own
              apps:
                shop:
                  topic: com.example.shop      # APNS_WORKER_APPS_SHOP_TOPIC
                  key: /run/secrets/AuthKey_ABC123DEFG.p8
                  max_per_second: 500

            What an app has of its own goes before what all have in common, wherever it stands. A secret can stand in a \
            file of its own: APNS_WORKER_REDIS_URL_FILE, or `url_file`. The exit status is 1 if a worker could not start \
            with these settings.

            A worker looks at its file every five seconds and at SIGHUP, and takes up what has changed: the apps, the \
            settings marked (reloaded) here, and the log level. The others need a restart, which it says.
            """)

    @OptionGroup(title: "Queues") var queues: QueuesOptions
    @OptionGroup(title: "App") var app: AppOptions
    @OptionGroup(title: "Work") var work: WorkOptions
    @OptionGroup(title: "Metrics and probes") var admin: AdminOptions

    @Flag(help: "Leave out what nobody has given.") var given = false
    @Flag(help: "Print JSON: an object a setting, with key, value, source, and whether it is reloaded.") var json =
        false

    func run() async throws {
        let settings = try queues.redis.configuration.settings(
            queues.given, app.given, work.given, admin.given)
        let lines = try EffectiveSettings(settings, includesDefaults: !given).lines
        if json {
            for line in lines { print(try JSONLine.text(line)) }
        } else {
            print(EffectiveSettings.yaml(lines), terminator: "")
        }
        // What one setting alone does not show: files that are not there, settings that contradict each other.
        _ = try settings.worker(named: "config")
    }
}
