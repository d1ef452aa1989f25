import COpenSSL
import NIOCore
import PrintableText
import PushQueue
import Redis

extension RedisServerError {
    private static let temporary: Set = [
        "OOM", "LOADING", "BUSY", "MISCONF", "READONLY", "MASTERDOWN", "CLUSTERDOWN", "NOREPLICAS", "TRYAGAIN",
    ]

    /// True if the same command may succeed later.
    package var isTemporary: Bool { Self.temporary.contains(prefix) }

    /// True if a script refused a cursor that none of its replies had.
    package var refusesCursor: Bool { message.hasSuffix(": a cursor that no reply had") }
}

extension QueueScript {
    static let overview = QueueScript("overview", PackageResources.overview_lua)
    static let pageJobs = QueueScript("pageJobs", PackageResources.page_jobs_lua)
    static let changeJobs = QueueScript("changeJobs", PackageResources.change_jobs_lua)
    static let countRetries = QueueScript("countRetries", PackageResources.count_retries_lua)
    package static let enqueueJobs = QueueScript("enqueueJobs", PackageResources.enqueue_jobs_lua)
    static let forget = QueueScript("forget", PackageResources.forget_lua)
    package static let commandJobs = QueueScript("commandJobs", PackageResources.command_jobs_lua)
    static let guardCampaign = QueueScript("guardCampaign", PackageResources.guard_campaign_lua)
    package static let countCampaign = QueueScript("countCampaign", PackageResources.count_campaign_lua)
    package static let sendJobs = QueueScript("sendJobs", PackageResources.send_jobs_lua)
    package static let pageDeadLetters = QueueScript("pageDeadLetters", PackageResources.page_lua)
    static let write = QueueScript("write", PackageResources.write_lua)
    static let divide = QueueScript("divide", PackageResources.divide_lua)
    static let copyRegistrations = QueueScript("copyRegistrations", PackageResources.copy_registrations_lua)

    /// The scripts that operators run.
    package static let ofOperators = [
        overview, pageJobs, changeJobs, countRetries, enqueueJobs, forget, commandJobs, guardCampaign, countCampaign,
        sendJobs, pageDeadLetters, write, divide, copyRegistrations,
    ]

    /// Runs a command that writes a key. Works on a Redis whose memory is full.
    /// - Returns: the text of the reply.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`.
    @discardableResult
    static func write(
        _ name: String, _ key: String, _ client: RedisClient, arguments: (inout RedisCommand) -> Void
    ) async throws -> String {
        try await write.run(client, [key]) { command in
            command.append(name)
            arguments(&command)
        } reading: {
            $0.text()
        }
    }
}

/// A script that programs run often, so that it is sent by its digest.
struct FrequentScript: Sendable {
    private let script: QueueScript
    /// The SHA-1 of the source, in hex, by which Redis knows it.
    private let digest: String

    init(_ script: QueueScript) {
        self.script = script
        var digest = [UInt8](repeating: 0, count: 20)
        _ = SHA1(script.source, script.source.count, &digest)
        self.digest = digest.hex
    }

    /// Runs the script once; its source is sent only to a server that does not know it.
    /// - Parameters:
    ///   - count: the approximate number of arguments, and `bytes` their size.
    ///   - arguments: appends them; called again if the source must be sent.
    /// - Throws: `RedisError`, or `QueueFailure/unexpectedReply(_:)`.
    func run<Value>(
        _ client: RedisClient, _ keys: [String], expecting count: Int = 16, bytes: Int = 512,
        arguments: (inout RedisCommand) -> Void, reading read: (inout ScriptReply) -> Value
    ) async throws -> Value {
        func command(_ name: String, _ bytes: Int, _ text: (inout RedisCommand) -> Void) -> RedisCommand {
            var command = RedisCommand(name, expecting: keys.count + count + 3, bytes: bytes)
            text(&command)
            command.append(keys.count)
            for key in keys { command.append(key) }
            arguments(&command)
            return command
        }
        let reply: RESPReply
        do {
            reply = try await client.call(command("EVALSHA", bytes) { $0.append(digest) })
        } catch RedisError.server(let error) where error.prefix == "NOSCRIPT" {
            // The server was restarted, or its scripts were flushed. `EVAL` also loads the script again.
            reply = try await client.call(
                command("EVAL", bytes + script.source.count) { $0.append(script.source) })
        }
        return try ScriptReply.read(reply, of: script, read)
    }
}
