import NIOCore
import PushQueue
import Redis

extension RedisServerError {
    private static let temporary: Set = [
        "OOM", "LOADING", "BUSY", "MISCONF", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "TRYAGAIN",
    ]

    /// True if the same command may succeed later.
    package var isTemporary: Bool { Self.temporary.contains(prefix) }

    /// True if a script refused a cursor that it never returned. The error then has the code `CURSOR` after the script's name.
    package var refusesCursor: Bool { message.contains(": CURSOR ") }
}

extension QueueScript {
    static let overview = QueueScript("overview", PackageResources.overview_lua)
    static let leases = QueueScript("leases", PackageResources.leases_lua)
    static let pageJobs = QueueScript("pageJobs", PackageResources.page_jobs_lua)
    static let changeJobs = QueueScript("changeJobs", PackageResources.change_jobs_lua)
    static let countPostponed = QueueScript("countPostponed", PackageResources.count_postponed_lua)
    package static let enqueueJobs = QueueScript("enqueueJobs", PackageResources.enqueue_jobs_lua)
    static let forget = QueueScript("forget", PackageResources.forget_lua)
    package static let commandJobs = QueueScript("commandJobs", PackageResources.command_jobs_lua)
    static let guardCampaign = QueueScript("guardCampaign", PackageResources.guard_campaign_lua)
    package static let countCampaign = QueueScript("countCampaign", PackageResources.count_campaign_lua)
    package static let sendJobs = QueueScript("sendJobs", PackageResources.send_jobs_lua)
    package static let pageDeadLetters = QueueScript("pageDeadLetters", PackageResources.page_lua)
    static let acknowledgeResults = QueueScript("acknowledgeResults", PackageResources.acknowledge_lua)
    static let divide = QueueScript("divide", PackageResources.divide_lua)

    package static let ofOperators = [
        overview, leases, pageJobs, changeJobs, countPostponed, enqueueJobs, forget, commandJobs, guardCampaign,
        countCampaign, sendJobs, pageDeadLetters, acknowledgeResults, divide,
    ]

    /// Sets a key. Works on a Redis whose memory is full.
    /// - Parameter arguments: appends the value, and options of `SET`.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`.
    static func set(_ key: String, _ client: RedisClient, arguments: (inout RedisCommand) -> Void) async throws {
        try await write.run(client, [key]) { command in
            command.append("SET")
            arguments(&command)
        } reading: {
            _ = $0.text()
        }
    }
}
