/// Jobs as the libraries write them, with their order of members and their formats of times.
enum SidekiqSamples {
    static let token = "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"
    static let argument = #"{"token":"\#(token)","alert":"Grüße \u00e9 \"x\"","expiration":"1h"}"#

    /// Sidekiq 5.2 and 6: `Sidekiq::Client#normalize_item`, times in seconds.
    static let sidekiq6 = #"""
        {"retry":true,"queue":"push","class":"PushJob","args":[\#(argument)],"jid":"b4a577edbccf1d805744efa9","created_at":1700000000.123456,"enqueued_at":1700000001.5}
        """#
    /// Sidekiq 7 with `CurrentAttributes` and tags, and a number of retries.
    static let sidekiq7 = #"""
        {"retry":5,"queue":"push","tags":["a"],"cattr":{"user_id":1},"class":"PushJob","args":[\#(argument),"more"],"jid":"b4a577edbccf1d805744efa9","created_at":1700000000.12,"enqueued_at":1700000001.5}
        """#
    /// Sidekiq 8: whole milliseconds.
    static let sidekiq8 = #"""
        {"retry":false,"queue":"push","class":"PushJob","args":[\#(argument)],"jid":"b4a577edbccf1d805744efa9","created_at":1700000000123,"enqueued_at":1700000001500}
        """#
    /// Resque 1 and 2: `Resque::Job.create`.
    static let resque = #"{"class":"PushJob","args":[\#(argument)]}"#
    /// A program that passes its job as text.
    static let text = #"""
        {"class":"PushJob","args":["{\"token\":\"\#(token)\",\"alert\":\"Gr\u00fc\u00dfe \\u00e9 \\\"x\\\"\",\"expiration\":\"1h\"}"],"jid":"b4a577edbccf1d805744efa9","enqueued_at":1700000001.5}
        """#
    /// ActiveJob 7.1 through Sidekiq 7.
    static let activeJob = activeJob(
        wrapper: "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper",
        around: #""jid":"b4a577edbccf1d805744efa9","created_at":1700000000.12,"enqueued_at":1700000001.5"#)
    /// ActiveJob through Sidekiq 8, which has its own adapter.
    static let activeJob8 = activeJob(
        wrapper: "Sidekiq::ActiveJob::Wrapper",
        around: #""jid":"b4a577edbccf1d805744efa9","created_at":1700000000120,"enqueued_at":1700000001500"#)

    static func activeJob(wrapper: String, around: String, job: String = activeJobArgument) -> String {
        #"""
        {"retry":true,"queue":"push","wrapped":"PushJob","class":"\#(wrapper)","args":[{"job_class":"PushJob","job_id":"2f967dc1-6d9e-4d46-8d6a-2d4f6b3ee6f1","provider_job_id":null,"queue_name":"push","priority":null,"arguments":[\#(job)],"executions":0,"exception_executions":{},"locale":"en","timezone":"UTC","enqueued_at":"2023-11-14T22:13:21.500000000Z","scheduled_at":null}],\#(around)}
        """#
    }

    static let activeJobArgument = #"""
        {"token":"\#(token)","payload":{"aps":{"alert":{"title":"T","_aj_symbol_keys":["title"]},"_aj_symbol_keys":["alert"]},"n":[1,{"_aj_symbol_keys":[]}],"_aj_symbol_keys":["aps"]},"push_type":{"_aj_serialized":"ActiveJob::Serializers::SymbolSerializer","value":"alert"},"_aj_symbol_keys":["token","payload","push_type"]}
        """#
}
