import ArgumentParser

struct Channels: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract:
            "Manage the broadcast channels of an app, on which one job updates the Live Activities of all who listen.",
        discussion: """
            A channel is created once, its id given to the devices, and jobs sent to it:

              apns-worker channels create --storage none
              apns-worker enqueue --channel dHN0LXNyY2gtY2hubA== --event update \\
                --timestamp now --content-state '{"score":3}'

            An app may have 10,000 channels in each environment; delete those that are not used any more. Production and \
            sandbox have channels of their own.

            The app and its credential are set as for `apns-worker run`. Channels are managed at another address of \
            Apple's than notifications are sent to, port 2196 for production and 2195 for the sandbox, which firewalls \
            have to let through.
            """,
        subcommands: [CreateChannel.self, ReadChannel.self, DeleteChannel.self, ListChannels.self])
}
