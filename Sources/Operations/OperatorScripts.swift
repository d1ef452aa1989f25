import NIOCore
import PushQueue
import Redis

extension QueueScript {
    static let overview = QueueScript("overview", PackageResources.overview_lua)
    static let pageJobs = QueueScript("pageJobs", PackageResources.page_jobs_lua)
    static let changeJobs = QueueScript("changeJobs", PackageResources.change_jobs_lua)
    static let countRetries = QueueScript("countRetries", PackageResources.count_retries_lua)
    package static let commandJobs = QueueScript("commandJobs", PackageResources.command_jobs_lua)
    package static let pageDeadLetters = QueueScript("pageDeadLetters", PackageResources.page_lua)
    static let setKey = QueueScript("setKey", PackageResources.set_key_lua)
    static let recordAction = QueueScript("recordAction", PackageResources.record_action_lua)

    /// The scripts that operators run.
    package static let ofOperators = [
        overview, pageJobs, changeJobs, countRetries, commandJobs, pageDeadLetters, setKey, recordAction,
    ]

    /// Sets a key for an operator. Works on a Redis whose memory is full.
    /// - Parameter life: the time until the key expires, in milliseconds; `nil` for never.
    /// - Throws: `RedisError`.
    static func set(
        _ key: String, to value: ByteBuffer, life: Int? = nil, _ client: RedisClient
    ) async throws {
        try await QueueScript.setKey.run(client, [key]) { command in
            command.append(value)
            command.append(life ?? 0)
        } reading: { _ = $0.number() }
    }
}
