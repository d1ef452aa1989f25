import APNS
import NIOCore

struct SimulatedJob {
    let number: Int
    let queue: Int
    let app: Int
    var body = ""
    var tokens: [String] = []
    /// The number of the job's first notification.
    var first = 0
    /// The job must not be sent before this time, in milliseconds since 1970.
    var sendAt: Int64?
    /// True if the job may end without being sent.
    var expires = false
    var uniqueID: String?
    var campaign: String?
    /// The key of `replaces`: only its newest job must be sent.
    var replaces: String?
    /// True if no worker can read the job, so that it must become a dead letter.
    var isBroken = false

    /// The number of the job's notifications; one for a job that can't be read.
    var count: Int { max(1, tokens.count) }

    static func make(_ number: Int, queue: Int, in simulation: FleetSimulation) -> SimulatedJob {
        var job = SimulatedJob(number: number, queue: queue, app: [0, 0, 1, 2][simulation.random.pick(0...3)])
        let name = ["shop", "chat", "mail"][job.app]
        var members = ##""app":"\##(name)","alert":"#\##(number)#""##
        if simulation.options.faults.contains(.shares), number % 5 > 0 {
            members += #","fair":"t\#(number % 3)""#
            if number % 10 == 3 { members += #","fair_per_second":50"# }
            if number % 17 == 0 { members += #","urgent":true"# }
        }
        let random = simulation.random
        let kind = random.pick(0...999)
        if kind >= 960 { return broken(job, members, random.pick(0...5)) }
        var hasID = random.chance(50)
        switch kind {
        case 0..<530: job.tokens = [token(number, 0)]
        case 530..<550:
            // A device that removes its app at some time, and still gets notifications.
            job.tokens = ["eeeeeeee000\(job.app)000\(random.pick(0...9))" + String(repeating: "b", count: 48)]
        case 550..<669: job.tokens = (0..<random.pick(2...12)).map { token(number, $0) }
        case 669:
            // The job is too large to be processed whole, so it is split.
            job.tokens = (0..<1100).map { token(number, $0) }
        case 670..<750:
            let time = simulation.time.milliseconds / 1000 + Int64(random.pick(1...20))
            job.sendAt = time * 1000
            job.tokens = [token(number, 0)]
            members += #","send_at":\#(time)"#
        case 750..<830:
            job.expires = true
            job.tokens = (0..<random.pick(1...3)).map { token(number, $0) }
            members += #","expiration":\#(simulation.time.milliseconds / 1000 + Int64(random.pick(1...20)))"#
        case 830..<920:
            hasID = false
            let id = "u\(number / 12)-\(queue)-\(random.pick(0...1))"
            job.uniqueID = id
            job.tokens = (0..<random.pick(1...2)).map { token(number, $0) }
            members += #","id":"\#(id)","unique_for":"30d""#
        // A device of one app. Jobs of other apps are also sent to it.
        case _ where random.chance(30):
            job.tokens = [
                "cccccccc000\(random.pick(0...2))000\(random.pick(0...9))" + String(repeating: "b", count: 48)
            ]
        default: job.tokens = ["dddddddd0000000\(random.pick(0...4))" + String(repeating: "b", count: 48)]
        }
        if kind < 670, random.chance(20) {
            let campaign = "c\(random.pick(0...3))"
            job.campaign = campaign
            members += #","campaign":"\#(campaign)""#
        }
        if simulation.options.faults.contains(.replaces), job.uniqueID == nil, number % 3 == 0 {
            let key = "k\(number / 3 % 5)"
            (job.replaces, hasID) = (key, true)
            members += #","replaces":"\#(key)""#
        }
        if hasID { members += #","id":"j\#(number)""# }
        if job.tokens.count == 1, random.chance(80) {
            members += #","token":"\#(job.tokens[0])""#
        } else {
            members += #","tokens":["\#(job.tokens.joined(separator: #"",""#))"]"#
        }
        job.body = "{\(members)}"
        // A producer may push a wrapped job.
        if kind < 10, !hasID { job.body = #"{"apns_worker":1,"attempt":2,"job":\#(job.body)}"# }
        return job
    }

    fileprivate static func token(_ job: Int, _ index: Int) -> String {
        func hex(_ number: Int) -> String {
            let text = String(number, radix: 16)
            return String(repeating: "0", count: 8 - text.count) + text
        }
        return hex(job) + hex(index) + String(repeating: "a", count: 48)
    }

    private static func broken(_ job: SimulatedJob, _ members: String, _ kind: Int) -> SimulatedJob {
        var job = job
        job.isBroken = true
        job.body =
            switch kind {
            case 0: "{\(members)"
            case 1: "{\(members)}"
            case 2: #"{"apns_worker":1,"attempt":-3,"job":{\#(members),"token":"zz"}}"#
            case 3: #"{"apns_worker":1,"reclaims":1e99,"job":{\#(members)}}"#
            case 4:
                #"{"apns_worker":1,"claim":"\"reclaims\":","reclaims":2,"tokens":[],"job":{\#(members),"token":"ab"}}"#
            default: #"{"apns_worker":1,"job":"job":\#(members)}"#
            }
        return job
    }
}

extension SimulatedJob {
    /// Creates a job of the first queue.
    init(_ number: Int, _ members: String, tokens count: Int) {
        self.init(number: number, queue: 0, app: 0)
        tokens = (0..<count).map { Self.token(number, $0) }
        let field = count == 1 ? #""token":"\#(tokens[0])""# : #""tokens":["\#(tokens.joined(separator: #"",""#))"]"#
        body = ##"{\##(members),"alert":"#\##(number)#",\##(field)}"##
    }
}
