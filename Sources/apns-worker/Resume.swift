import ArgumentParser
import PushQueue

struct Resume: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "End the pause of a queue: workers go on within about a second.")

    @OptionGroup(title: "Queue") var queue: QueueOptions

    func run() async throws {
        try await queue.withClient { client, keys in
            let wasPaused = try await QueuePause.clear(client, keys)
            print("queue \(keys.queue) " + (wasPaused ? "is resumed" : "was not paused"))
        }
    }
}
