import APNS
import ArgumentParser

struct Channels: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "channels",
        abstract: """
            Manage an app's broadcast channels, each of which updates the Live Activities of all its listeners with \
            one job.
            """,
        discussion: """
            Create a channel once, give its ID to the devices, and send jobs to it:

              apns-worker channels create --storage none
              apns-worker enqueue --channel dHN0LXNyY2gtY2hubA== --event update \\
                --timestamp now --content-state '{"score":3}'

            An app may have 10,000 channels in each environment; delete unused ones. Production and \
            sandbox have channels of their own.

            The app and its credential are set as for `apns-worker run`. Apple manages channels at another address, port 2196 \
            in production and 2195 in the sandbox. Firewalls must allow it.
            """,
        subcommands: [CreateChannel.self, ReadChannel.self, DeleteChannel.self, ListChannels.self])
}

struct CreateChannel: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "create", abstract: "Create a channel and print its ID.",
        discussion: """
            With --storage none, APNs keeps nothing for devices that are offline, and accepts more updates; jobs to the channel \
            must have expiration 0, which is their default. With --storage latest, APNs keeps the latest \
            update until it expires.
            """)

    @OptionGroup var options: ChannelOptions

    @Option(help: "Message storage for offline devices: none or latest.")
    var storage: ChannelStorage

    func run() async throws {
        let place = try options.place()
        let channel = try await place.ask { try await $0.create(storage.policy) }
        var report = place.report
        report.channel = channel.id
        report.storage = storage.rawValue
        report.pushType = channel.pushType
        // Prints only the ID, so that a script can use it.
        try options.report(channel.id, report)
        if !options.json {
            Terminal.note("created this channel of \(place.words); it \(ChannelStorage.sentence(storage.policy))\n")
        }
    }
}

struct ReadChannel: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "read", abstract: "Print the configuration of a channel.")

    @OptionGroup var options: ChannelOptions

    @Argument(help: "Channel ID.") var channel: String

    func run() async throws {
        let place = try options.place()
        let channel = try await place.ask { try await $0.read(id: self.channel) }
        var report = place.report
        report.channel = channel.id
        report.storage = ChannelStorage.word(channel.storagePolicy)
        report.pushType = channel.pushType
        try options.report(
            "channel \(channel.id) of \(place.words) is for \(channel.pushType) and "
                + ChannelStorage.sentence(channel.storagePolicy), report)
    }
}

struct DeleteChannel: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "delete", abstract: "Delete a channel; its listeners get no more updates.",
        discussion: "Later jobs for the channel become dead letters. Asks for confirmation on a terminal.")

    @OptionGroup var options: ChannelOptions

    @Argument(help: "Channel ID.") var channel: String

    @Flag(help: "Do not ask for confirmation.") var yes = false

    func validate() throws { try Confirmation.check(isGiven: yes) }

    func run() async throws {
        let place = try options.place()
        try Confirmation.demand(
            "Delete channel \(channel) of \(place.words) permanently?", isGiven: yes, answer: "yes")
        try await place.ask { try await $0.delete(id: channel) }
        var report = place.report
        report.channel = channel
        report.isDeleted = true
        try options.report("deleted channel \(channel) of \(place.words)", report)
    }
}

struct ListChannels: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "list", abstract: "Print the IDs of all channels, one per line.")

    @OptionGroup var options: ChannelOptions

    func run() async throws {
        let place = try options.place()
        let channels = try await place.ask { try await $0.list() }
        var report = place.report
        report.channels = channels
        guard !channels.isEmpty || options.json else {
            return Terminal.note("there are no channels of \(place.words)\n")
        }
        try options.report(channels.joined(separator: "\n"), report)
    }
}
