import Foundation
import TestSupport

/// Makes the jobs: each depends only on the seed and its number, so none need be stored.
struct JobMaker: Sendable {
    let count: Int
    /// The number of jobs that are pushed while the faults occur. All later jobs are plain. Without plain jobs, jobs without answers would
    /// look like an outage of APNs, in which failures spend no attempts.
    let regularCount: Int
    private let seed: UInt64
    /// The start of the run, in seconds since 1970.
    private let start: Int
    /// The number of jobs that are pushed per second.
    private let rate: Double
    /// The percentage of poison among the jobs.
    private let poison: Int
    /// True if APNs' answers can defer jobs for up to 90 seconds.
    private let isLong: Bool
    /// The jobs of predetermined kinds, evenly distributed over the run.
    private let always: [Int: Kind]

    /// The number of jobs for the drain. Four of them are pushed per second.
    private static let plainCount = 4000
    private static let kinds: [Kind] = Kind.allCases.flatMap { Array(repeating: $0, count: $0.weight) }

    init(count: Int, seed: UInt64, start: Int, seconds: Int, poison: Int) {
        self.poison = poison
        self.count = count + Self.plainCount
        regularCount = count
        self.seed = SeededGenerator.mixed(seed &+ 1)
        self.start = start
        rate = Double(count) / Double(seconds)
        isLong = seconds >= 120
        always = Dictionary(
            Kind.always.enumerated().map { (count * ($0 + 1) / (Kind.always.count + 1), $1) },
            uniquingKeysWith: { first, _ in first })
    }

    func kind(_ number: Int) -> Kind {
        if number >= regularCount { return .plain }
        if let always = always[number] { return always }
        if random(number, 9) % 100 < poison { return Kind.poison[Int(random(number, 10) % UInt64(Kind.poison.count))] }
        let kind = Self.kinds[Int(random(number, 0) % UInt64(Self.kinds.count))]
        // The campaign begins early, so that it would end early if nothing limited it.
        let isEarly = number < regularCount * 2 / 5
        return (kind == .deferred && !isLong) || (kind.isOfCampaign && !isEarly) ? .plain : kind
    }

    /// The number of the campaign's notifications.
    var campaignTotal: Int {
        (0..<regularCount).reduce(0) { $0 + (kind($1).isOfCampaign ? notifications($1) : 0) }
    }

    func notifications(_ number: Int) -> Int {
        switch kind(number) {
        case .fanOut: 10 + Int(random(number, 1) % 291)
        case .limitedFanOut: 10 + Int(random(number, 1) % 41)
        case .fullFanOut: 1000
        case .bigFanOut: 1001 + Int(random(number, 1) % 2000)
        case .wideFanOut: 10_000 + Int(random(number, 1) % 5000)
        case .hugeFanOut: 100_000
        default: 1
        }
    }

    func copies(_ number: Int) -> Int { kind(number) == .unique ? 2 : 1 }

    /// Returns the kind of a notification. The notifications of a job for many devices are of many kinds.
    func kind(_ number: Int, _ index: Int) -> Kind {
        let kind = kind(number)
        guard kind.isFanOut else { return kind }
        if index == 1 { return .slow }
        switch random(number, UInt64(index) + 2) % 200 {
        case 0..<6: return .gone
        case 6, 7: return .refusedOnce
        case 8: return .answerLost
        case 9: return .malformedToken
        case 10: return .refused
        default: return .plain
        }
    }

    /// Returns the device token of a notification, which contains its job's number and its index.
    func token(_ number: Int, _ index: Int) -> String {
        let kind = kind(number, index)
        if kind == .malformedToken { return "no token: \(number)/\(index)" }
        let tail = random(number, UInt64(index) &+ 0x5EED)
        let rest = [
            (UInt64(number), 8), (UInt64(index), 5), (tail, 15), (SeededGenerator.mixed(tail), 16), (~tail, 16),
        ]
        return kind.prefix + Self.hex(rest)
    }

    /// Returns the notification that a token is for; `nil` if this run did not make the token.
    func place(of token: some StringProtocol) -> (number: Int, index: Int)? {
        let place: (Int, Int)?
        if token.hasPrefix("no token: ") {
            let parts = token.dropFirst(10).split(separator: "/").compactMap { Int($0) }
            place = parts.count == 2 ? (parts[0], parts[1]) : nil
        } else {
            let digits = token.utf8.dropFirst(4)
            let number = Self.number(hex: digits.prefix(8))
            let index = Self.number(hex: digits.dropFirst(8).prefix(5))
            place = number.flatMap { number in index.map { (number, $0) } }
        }
        guard let place, place.0 >= 0, place.0 < count, place.1 < notifications(place.0),
            self.token(place.0, place.1) == token
        else { return nil }
        return place
    }

    /// Returns the number of the job that contains these bytes.
    static func number(of body: [UInt8]) -> Int? {
        let text = String(decoding: body, as: UTF8.self)
        guard let marker = text.firstRange(of: "chaos-") else { return nil }
        return Int(text[marker.upperBound...].prefix { $0.isNumber })
    }

    func body(_ number: Int) -> [UInt8] {
        let kind = kind(number)
        let name = #""id":"chaos-\#(number)","#
        let device = #""token":"\#(token(number, 0))","#
        // Some workers have a second app, so jobs must name their app.
        let token = #""app":"default",\#(device)"#
        let payload = #""payload":{"aps":{"alert":{"title":"Order \#(number)","body":"It is on its way."}}}"#
        let update = #""payload":{"aps":{"event":"update","timestamp":1,"content-state":{"number":\#(number)}}}"#
        let text: String =
            switch kind {
            case .plain: "{\(name)\(token)\(payload)}"
            case .withoutID: #"{"note":"chaos-\#(number)",\#(token)"priority":5,\#(payload)}"#
            case .background: #"{\#(name)\#(token)"payload":{"aps":{"content-available":1}}}"#
            case .voip:
                // Without an expiration, a call expires after half a minute, and an outage can last longer.
                #"{\#(name)\#(token)"push_type":"voip","expiration":"1d","payload":{"call":"\#(filler(4500))"}}"#
            case .liveActivity: #"{\#(name)\#(token)"push_type":"liveactivity","priority":10,\#(update)}"#
            case .collapsed: #"{\#(name)\#(token)"collapse_id":"c\#(number % 7)","expiration":"1d",\#(payload)}"#
            case .ownAPNsID: #"{\#(name)\#(token)"apns_id":"\#(identifier(number))",\#(payload)}"#
            case .later: #"{\#(name)\#(token)"send_at":\#(laterThanPushed(number)),\#(payload)}"#
            case .shortLived: #"{\#(name)\#(token)"expiration":"4s",\#(payload)}"#
            case .expired: #"{\#(name)\#(token)"expiration":1000000000,\#(payload)}"#
            case .unansweredUntilEnd: #"{\#(name)\#(token)"expiration":"15s",\#(payload)}"#
            case .expiring: #"{\#(name)\#(token)"expiration":"3s",\#(payload)}"#
            case .unanswered: #"{\#(name)\#(token)"on_uncertain":"drop",\#(payload)}"#
            case .exhausted, .cutter, .refusedKey, .unknownReason, .notAPNs, .goneWithoutReason:
                #"{\#(name)\#(token)"max_attempts":2,\#(payload)}"#
            case .timed:
                #"{\#(name)\#(token)"campaign":"\#(HotQueue.timed)","enqueued_at":\#(pushed(number)),\#(payload)}"#
            case .limited: #"{\#(name)\#(token)"campaign":"\#(HotQueue.campaign)",\#(payload)}"#
            case .limitedFanOut: #"{\#(name)\#(tokens(number))"campaign":"\#(HotQueue.campaign)",\#(payload)}"#
            case .fanOut, .fullFanOut, .bigFanOut, .wideFanOut, .hugeFanOut: "{\(name)\(tokens(number))\(payload)}"
            case .bytes70k: #"{\#(name)\#(token)"data":"\#(filler(70_000))",\#(payload)}"#
            case .bytes1M: #"{\#(name)\#(token)"data":"\#(filler(1_000_000))",\#(payload)}"#
            case .bytes7M: #"{\#(name)\#(token)"data":"\#(filler(6_700_000))",\#(payload)}"#
            case .unique: #"{\#(name)\#(token)"unique_for":"1d",\#(payload)}"#
            case .newApp: #"{\#(name)\#(device)"app":"other",\#(payload)}"#
            case .newTopic: #"{\#(name)\#(device)"topic":"com.example.other",\#(payload)}"#
            case .wrapped:
                #"{"apns_worker":1,"attempt":2,"reclaims":1,"id":"chaos-\#(number)","job":{\#(token)\#(payload)}}"#
            case .truncated: "{\(name)\(token)\(payload.dropLast())"
            case .noJSON: "chaos-\(number) token=\(self.token(number, 0))"
            case .notAnObject: "[{\(name)\(token)\(payload)}]"
            case .missingPayload: #"{\#(name)\#(token)"priority":10}"#
            case .tooLarge: #"{\#(name)\#(token)"payload":{"aps":{"alert":"\#(filler(4100))"}}}"#
            case .hostileWrapper, .hostileTokens:
                "{\"apns_worker\":1,\(hostileMember(number)),\"job\":{\(name)\(token)\(payload)}}"
            default: #"{\#(name)\#(token)"expiration":"1d","unknown":[1,{"a":null}],\#(payload)}"#
            }
        return Array(text.utf8)
    }

    /// Returns a member of a wrapper that could destroy or multiply jobs.
    private func hostileMember(_ number: Int) -> String {
        let members =
            kind(number) == .hostileTokens
            ? [#""tokens":[1e999]"#, #""tokens":{}"#, #""tokens":[]"#, #""id":[1]"#]
            : [
                #""attempt":1e999"#, #""attempt":-1"#, #""reclaims":1e308"#, #""reclaims":"1","reclaims":1"#,
                #""enqueued":-1e999"#, #""origin":{"a":null}"#, #""reserved":"yes""#, #""requeues":0.5"#,
            ]
        return members[Int(random(number, 1) % UInt64(members.count))]
    }

    private func tokens(_ number: Int) -> String {
        let tokens = (0..<notifications(number)).map { "\"\(token(number, $0))\"" }
        return "\"app\":\"default\",\"tokens\":[\(tokens.joined(separator: ","))],"
    }

    /// Returns the planned time of the job's push.
    private func pushed(_ number: Int) -> Double {
        (Double(start) * 1000 + Double(number) * 1000 / rate).rounded() / 1000
    }

    /// Returns a time some seconds after the job is pushed.
    private func laterThanPushed(_ number: Int) -> Int {
        Int(pushed(number)) + Int(random(number, 1) % 15)
    }

    private func identifier(_ number: Int) -> String {
        "\(Self.hex([(random(number, 1), 8)]))-0000-4000-8000-\(Self.hex([(UInt64(number), 12)]))"
    }

    private func filler(_ count: Int) -> String { String(repeating: "x", count: count) }

    private func random(_ number: Int, _ salt: UInt64) -> UInt64 {
        SeededGenerator.mixed(SeededGenerator.mixed(seed &+ UInt64(number)) &+ salt &* 0x9E37_79B9_7F4A_7C15)
    }

    /// Returns numbers in hex, one after the other, each with its number of digits. Longer numbers lose their first digits.
    private static func hex(_ parts: [(value: UInt64, digits: Int)]) -> String {
        String(unsafeUninitializedCapacity: parts.reduce(0) { $0 + $1.digits }) { buffer in
            var end = 0
            for (value, digits) in parts {
                end += digits
                var rest = value
                for place in (end - digits..<end).reversed() {
                    let digit = UInt8(rest & 15)
                    buffer[place] = digit + UInt8(ascii: digit < 10 ? "0" : "W")
                    rest >>= 4
                }
            }
            return end
        }
    }

    private static func number(hex digits: some Sequence<UInt8>) -> Int? {
        var number = 0
        for digit in digits {
            switch digit {
            case UInt8(ascii: "0")...UInt8(ascii: "9"): number = number << 4 | Int(digit - UInt8(ascii: "0"))
            case UInt8(ascii: "a")...UInt8(ascii: "f"): number = number << 4 | Int(digit - UInt8(ascii: "W"))
            default: return nil
            }
        }
        return number
    }
}
