import ArgumentParser
import CProcess
import Glibc
import PushWorker
import Sockets

@main
struct ApnsWorker: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "apns-worker",
        abstract: "Delivers Apple push notifications for job systems.",
        discussion: """
            Producers push JSON jobs onto a Redis list. Workers send them to APNs over HTTP/2, retry failures, and keep jobs \
            that cannot be delivered as dead letters with their reason.

            A first push without an Apple account:

              apns-worker run --simulate &
              apns-worker enqueue --token 00fc13ad… --alert 'Hello'

            With a key from Apple's developer site:

              export APNS_WORKER_KEY=AuthKey_ABC123DEFG.p8 APNS_WORKER_KEY_ID=ABC123DEFG
              export APNS_WORKER_TEAM_ID=TEAM123456 APNS_WORKER_TOPIC=com.example.app
              apns-worker run &
              apns-worker enqueue --token 00fc13ad… --alert 'Hello'

            Any language can enqueue (`schema` prints the JSON Schema of a job): RPUSH push:{default}:jobs \
            '{"token":"…","payload":{"aps":{"alert":"Hello"}},"enqueued_at":1795279247}'

            `apns-worker help <topic>` explains: \(HelpTopic.names).
            """,
        version: WorkerVersion.current,
        groupedSubcommands: [
            CommandGroup(name: "Run", subcommands: [Run.self, Health.self]),
            CommandGroup(name: "Send", subcommands: [Enqueue.self, Campaign.self]),
            CommandGroup(
                name: "Inspect",
                subcommands: [
                    Status.self, Web.self, Jobs.self, Device.self, Results.self, Dead.self, Invalid.self,
                ]),
            CommandGroup(name: "Repair", subcommands: [Requeue.self, Feedback.self]),
            CommandGroup(name: "Control", subcommands: [Pause.self, Resume.self, Quiet.self, Stop.self]),
            CommandGroup(
                name: "Configure",
                subcommands: [Check.self, Config.self, Schema.self, Channels.self, WebUser.self]),
        ])

    static func main() async {
        ProcessMemory.keepPrivate()
        // If a parent ignored SIGCHLD, the exit statuses of the programs of `--exec` would be lost.
        signal(SIGCHLD, SIG_DFL)
        Interruption.endProcess()
        let arguments = Array(CommandLine.arguments.dropFirst())
        let end = CommandEnd(program: Self.self, arguments: arguments)
        DescriptorLimit.raise()
        if let problem = DescriptorLimit.problem { end.afterRunning(CommandFailure(.configuration, problem)) }
        var command: any ParsableCommand
        do {
            if try HelpText.answers(arguments, of: Self.self) { return }
            _ = try CommandNames.find(arguments, in: Self.self)
            command = try await asyncParseAsRoot(arguments)
        } catch {
            end.afterParsing(error)
        }
        do {
            if var asynchronous = command as? any AsyncParsableCommand {
                try await asynchronous.run()
            } else {
                try command.run()
            }
            try Terminal.checkOutput()
        } catch {
            end.afterRunning(error)
        }
    }
}

/// Protects keys and passwords in the memory of this process.
enum ProcessMemory {
    /// Turns off core dumps, and prevents other processes of the same user from reading this one's memory and environment.
    ///
    /// The process can still read `/proc/self`, except the few files that only their owner may open, such as `environ`.
    /// The kernel resets the setting at `execve`, so it does not extend to programs that this one starts.
    static func keepPrivate() {
        guard cprocess_set_dumpable(0) != 0 else { return }
        Terminal.note("warning: core dumps cannot be turned off: \(String(cString: strerror(errno)))\n")
    }
}
