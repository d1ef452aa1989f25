/// A hot queue, divided by name into queues whose slots differ, and the campaign that is sent through all of them.
struct HotQueue: Sendable {
    /// The campaign of some jobs of each queue. It has one limit, which an operator sets for all queues.
    static let campaign = "launch"
    /// The campaign of the jobs whose delays are measured.
    static let timed = "timed"

    /// The names of the queues: `news-0`, `news-1`, …
    let names: [String]

    init(queues: Int) { names = (0..<queues).map { "news-\($0)" } }

    /// Returns the number of the queue that a job is pushed to. A job's id contains the job's number, so copies of a job
    /// are pushed to the same queue.
    func queue(of job: Int) -> Int { job % names.count }

    /// Returns the numbers of a queue's jobs, in order, among those below a limit.
    func jobs(of queue: Int, below limit: Int) -> [Int] { Array(stride(from: queue, to: limit, by: names.count)) }

    /// Returns the name that all keys of a queue begin with.
    static func base(_ name: String) -> String { "push:{\(name)}:" }

    static func jobsKey(_ name: String) -> String { base(name) + "jobs" }

    /// Returns the key of the timed campaign's counters in a queue.
    static func timedKey(_ name: String) -> String { base(name) + "campaign:" + timed }

    static func campaignKey(_ name: String) -> String { base(name) + "campaign:\(campaign)" }
}
