import ArgumentParser

/// The configuration file.
struct ConfigurationOptions: ParsableArguments {
    @Option(
        name: .customLong("config"),
        help: """
            A YAML file with settings; flags and variables go before it. See `apns-worker config --help`. \
            (APNS_WORKER_CONFIG)
            """)
    var file: String?

    /// The settings of a command.
    /// - Parameter flags: what its flags say.
    func settings(_ flags: [SettingKey: String]...) throws -> Settings {
        try Settings(filePath: file, flags: flags.reduce(into: [:]) { $0.merge($1) { $1 } })
    }
}

extension SettingKey {
    /// The flags that were given.
    static func given(_ flags: [(SettingKey, String?)]) -> [SettingKey: String] {
        Dictionary(uniqueKeysWithValues: flags.compactMap { key, text in text.map { (key, $0) } })
    }

    /// The same of flags that are numbers.
    static func given(_ flags: [(SettingKey, Int?)]) -> [SettingKey: String] {
        given(flags.map { ($0, $1.map(String.init)) })
    }
}
