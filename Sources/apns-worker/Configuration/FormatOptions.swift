import ArgumentParser

/// How the jobs of the queues are written, and which lists they are on.
struct FormatOptions: ParsableArguments {
    @Option(
        help: """
            How jobs are written, and where they are: native on the queue's own list, sidekiq on the list queue:<queue>, \
            resque on resque:queue:<queue>; ActiveJob's are known in both. (APNS_WORKER_FORMAT; default native)
            """)
    var format: String?

    @Option(
        help: """
            The key of the list of jobs, if it is another one, such as shop:queue:push. (APNS_WORKER_LIST; default by \
            the format)
            """)
    var list: String?

    @Option(
        help: """
            With the formats sidekiq and resque: the classes whose jobs are taken, with commas between them; the others \
            on the list become dead letters. (APNS_WORKER_JOB_CLASS; default all)
            """)
    var jobClass: String?

    /// What the flags say.
    var given: [SettingKey: String] {
        SettingKey.given([(.format, format), (.list, list), (.jobClass, jobClass)])
    }
}
