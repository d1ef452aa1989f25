import ArgumentParser

struct Config: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Print the settings a worker would have here, and the place of each; secrets are hidden.",
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

            An app's own value precedes the common one, wherever the two are given. A secret can be in a file of its own: \
            APNS_WORKER_REDIS_URL_FILE, or `url_file`. The exit status is 1 if a worker could not start with these settings.

            Durations have units: 500ms, 45s, 1h30m, 90d. So have sizes (64MiB) and percentages (50%). A number without a \
            unit has that of --reference.

            A worker reads its file again after a change and at SIGHUP, and applies the settings of apps and those marked \
            (reloaded) here. Changes of other settings need a restart, which the log says.
            """)

    @OptionGroup(title: "Queues") var queues: QueuesOptions
    @OptionGroup(title: "App") var app: AppOptions
    @OptionGroup(title: "Binary gateway (--transport gateway)") var gateway: SettingFlags<GatewayFlags>
    @OptionGroup(title: "Work") var work: SettingFlags<WorkFlags>
    @OptionGroup(title: "Metrics and probes") var admin: SettingFlags<AdminFlags>

    @Flag(help: "Omit defaults.") var given = false
    @Flag(help: "Print JSON: an object per setting with key, value, source, and whether it is reloaded.") var json =
        false
    @Flag(help: "Print a Markdown table of all settings, with the forms of their values and their defaults.")
    var reference = false

    func run() async throws {
        if reference { return print(SettingReference.markdown, terminator: "") }
        let settings = try queues.settings(app.given, gateway.given, work.given, admin.given)
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
